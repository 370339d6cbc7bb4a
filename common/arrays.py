"""Read and write lists of arrays as .npz files, the format of checkpoints and kept models."""

import pathlib

import numpy as np

from ctrpipe.common.files import atomic_path


def write_arrays(path: pathlib.Path, arrays: list[np.ndarray]) -> None:
    """Writes the arrays to a file atomically: a killed process leaves the old file or the new one."""
    with atomic_path(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, *arrays)


def read_arrays(path: pathlib.Path) -> list[np.ndarray]:
    """Returns the arrays of a file written by `write_arrays`, in the same order."""
    with np.load(path) as values:
        return [values[f"arr_{index}"] for index in range(len(values.files))]
