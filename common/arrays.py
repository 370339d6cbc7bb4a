"""Lists of arrays in .npz files, as checkpoints and kept models store them."""

import pathlib

import numpy as np

from ctrpipe.common.files import atomic_path


def write_arrays(path: pathlib.Path, arrays: list[np.ndarray]) -> None:
    """Writes the arrays to a file that appears whole, so that a killed process leaves the old file or the new one."""
    with atomic_path(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, *arrays)


def read_arrays(path: pathlib.Path) -> list[np.ndarray]:
    """Returns the arrays of a file of `write_arrays`, in the order in which they were written."""
    with np.load(path) as values:
        return [values[f"arr_{index}"] for index in range(len(values.files))]
