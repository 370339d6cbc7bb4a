"""Generates the logs for the preprocessing benchmark; existing files are reused."""

import itertools
import pathlib
from collections.abc import Iterator

import numpy as np

from ctrpipe.common.files import atomic_path
from ctrpipe.transforms.generate import generate

SEED = 1
LABEL = "label"
NUMBERS = [f"I{index}" for index in range(1, 14)]
VALUES = [f"C{index}" for index in range(1, 27)]
COLUMNS = [LABEL, *NUMBERS, *VALUES]
VALIDATION, TEST = 0.1, 0.1  # shares of the rows, taken from the end
SPLITS = ("train", "valid", "test")


def raw_log(folder: pathlib.Path, rows: int) -> pathlib.Path:
    """Returns a log in Criteo's format: TSV without a header."""
    path = folder / f"criteo_{rows}.tsv"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        generate("criteo", rows, SEED, path)
    return path


def bad_log(folder: pathlib.Path, rows: int, rate: float) -> pathlib.Path:
    """Returns a copy of the log with a share of malformed rows."""
    path = folder / f"criteo_{rows}_bad_{rate}.tsv"
    if not path.exists():
        random = np.random.default_rng(SEED)
        with open(raw_log(folder, rows), "rb") as log, atomic_path(path) as part, open(part, "wb") as spoilt:
            for line in log:
                spoilt.write(spoil(line, random) if random.random() < rate else line)
    return path


def spoil(line: bytes, random: np.random.Generator) -> bytes:
    """Returns a malformed line: truncated, with a word for a number, or with an invalid label."""
    values = line.rstrip(b"\n").split(b"\t")
    kind = random.integers(3)
    if kind == 0:
        values = values[: random.integers(1, len(values))]
    elif kind == 1:
        values[1 + random.integers(len(NUMBERS))] = b"many"
    else:
        values[0] = b"2"
    return b"\t".join(values) + b"\n"


def split_logs(folder: pathlib.Path, rows: int, separator: str) -> pathlib.Path:
    """Returns the log for the peers: train/, valid/ and test/, each with one file `log.csv` with a header."""
    target = folder / f"criteo_{rows}_{'commas' if separator == ',' else 'tabs'}"
    first, last = round((1 - VALIDATION - TEST) * rows), round((1 - TEST) * rows)
    counts = dict(zip(SPLITS, (first, last - first, rows - last), strict=True))
    if not all((target / name / "log.csv").exists() for name in SPLITS):
        with open(raw_log(folder, rows), "rb") as log:
            for name, count in counts.items():
                (target / name).mkdir(parents=True, exist_ok=True)
                _write(target / name / "log.csv", itertools.islice(log, count), separator.encode())
    return target


def _write(path: pathlib.Path, lines: Iterator[bytes], separator: bytes) -> None:
    with atomic_path(path) as part, open(part, "wb") as file:
        file.write(separator.join(name.encode() for name in COLUMNS) + b"\n")
        file.writelines(line.replace(b"\t", separator) for line in lines)


def values_of(path: pathlib.Path, first: int, count: int) -> list[list[bytes]]:
    """Returns the categorical values of `count` rows from row `first` on, one list per row."""
    with open(path, "rb") as log:
        lines = itertools.islice(log, first, first + count)
        return [line.rstrip(b"\n").split(b"\t")[-len(VALUES) :] for line in lines]
