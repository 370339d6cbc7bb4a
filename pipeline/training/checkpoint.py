"""Arrays on disk, in their order."""

import os
import pathlib

import numpy as np


def write_arrays(path: pathlib.Path, arrays: list[np.ndarray]) -> None:
    """Writes them in one rename: a kill leaves the former file or this one."""
    fresh = path.with_name(f".{path.name}")
    with open(fresh, "wb") as file:
        np.savez(file, *arrays)
    os.replace(fresh, path)


def read_arrays(path: pathlib.Path) -> list[np.ndarray]:
    """The arrays that np.savez wrote without names, in their order."""
    with np.load(path) as values:
        return [values[f"arr_{index}"] for index in range(len(values.files))]
