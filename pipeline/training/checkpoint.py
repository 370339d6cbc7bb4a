"""Arrays on disk, in their order."""

import pathlib

import numpy as np

from common.files import atomic_path


def write_arrays(path: pathlib.Path, arrays: list[np.ndarray]) -> None:
    """Writes them in one rename: a kill leaves the former file or this one."""
    with atomic_path(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, *arrays)


def read_arrays(path: pathlib.Path) -> list[np.ndarray]:
    """Returns the arrays that np.savez wrote without names, in their order."""
    with np.load(path) as values:
        return [values[f"arr_{index}"] for index in range(len(values.files))]
