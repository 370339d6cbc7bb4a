"""Assigns the rows of a log to the training, validation and test rows, as `data.split` says."""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.hashing import splitmix64
from ctrpipe.common.printable import excerpt
from ctrpipe.common.stores import absolute
from ctrpipe.transforms.log.batches import LogBatch
from ctrpipe.transforms.log.files import Range, find_files
from ctrpipe.transforms.log.ordering import Boundary, Keys, Ordering, Value, kinds_of, usual_kind
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec, spellings
from ctrpipe.transforms.log.split import SPLITS, Split, SplitFiles
from ctrpipe.transforms.log.times import time_pattern
from ctrpipe.transforms.log.words import USUAL_MISSING

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOOKED_AT = 10_000  # values that tell what the column of the time holds
# The forms of dates that are written as numbers, by their digits.
_COMPACT_FORMS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_FEWEST_DATES = 2  # different ones
Apply = Callable[[Callable[[Range], Any], list[Range]], list[Any]]  # applies a function to ranges, on some workers


@dataclasses.dataclass(frozen=True)
class Division:
    """The division of one log: the settings of `data.split`, with boundaries found in the log.

    Attributes:
        split: The section `data.split`.
        seed: Seed of `by: hash` and `by: group`.
        ordering: How the times are compared (`by: time`).
        boundaries: Where the validation and the test rows begin (`by: time`).
        parts: For each file the index of its split in SPLITS (`by: files`).
    """

    split: Split
    seed: int
    ordering: Ordering | None = None
    boundaries: tuple[Boundary, Boundary] | None = None
    parts: tuple[int, ...] = ()

    @property
    def is_by_order(self) -> bool:
        """Whether a row's split depends on the number of rows of the whole log."""
        return self.split.by == "order"

    def indices(self, batch: LogBatch, file: int) -> np.ndarray:
        """Returns the index in SPLITS of each row's split, `[N]`. Not for `by: order`.

        Args:
            batch: The rows, with their keys.
            file: The index of their file.
        """
        rows = len(batch.lines)
        if self.split.by == "files":
            return np.full(rows, self.parts[file])
        if self.boundaries is not None:
            assert batch.keys is not None
            first, second = (boundary.behind(batch.keys) for boundary in self.boundaries)
            return first.astype(np.int8) + second.astype(np.int8)
        draws = _uniform(self.seed, file, batch.lines - 1)
        if self.split.by == "group":
            assert isinstance(batch.keys, pa.Array)
            draws = _of_groups(self.seed, batch.keys, draws)
        return np.searchsorted(list(shares(self.split)), draws, side="right")

    def shown(self, value: Value) -> str:
        """Returns the text of a row's key."""
        return self.ordering.shown(value) if self.ordering else str(value)


def shares(split: Split) -> tuple[float, float]:
    """Returns the share of the rows before the validation rows, and the share before the test rows."""
    return 1 - split.test - split.validation, 1 - split.test


def order_bounds(split: Split, rows: int) -> list[int]:
    """Returns the number of the first row of each split, and the number of rows (`by: order`)."""
    # Rounding gives 12,000 instead of 11,999 for 0.2 of 60,000 rows.
    return [0, *(round(share * rows) for share in shares(split)), rows]


def find_division(spec: LogSpec, files: Sequence[str], ranges: Sequence[Range], seed: int, apply: Apply) -> Division:
    """Reads as much of the log as its division requires. `by: time` reads the first values of the column.

    With `last`, and with shares of the time, it reads the whole column to find the first and the last time.

    Args:
        spec: The description of the log.
        files: The files of the log, in order.
        ranges: The ranges of the files.
        seed: Seed of `by: hash` and `by: group`.
        apply: Applies a function to ranges.

    Raises:
        InputError: the column cannot be compared with the boundaries, or a file cannot be read.
    """
    split = spec.data.split
    if split.files:
        return Division(split, seed, parts=tuple(_part_of(path, split.files) for path in files))
    if split.by != "time":
        return Division(split, seed)
    ordering = find_ordering(spec, ranges)
    if not split.needs_span:
        return Division(split, seed, ordering, _given(split, ordering))
    spans = [span for span in apply(SpanOf(spec, ordering), list(ranges)) if span]
    if not spans:
        raise InputError(f"data.split: no row has a value of {split.column}; name another column")
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    if split.last:
        ends = [Fraction(high) - 2 * split.microseconds, Fraction(high) - split.microseconds]
    else:
        whole = Fraction(high) - Fraction(low)
        validation, test = Fraction(str(split.validation)), Fraction(str(split.test))
        ends = [Fraction(low) + (1 - validation - test) * whole, Fraction(low) + (1 - test) * whole]
    return Division(split, seed, ordering, (Boundary(ends[0], after=True), Boundary(ends[1], after=True)))


@dataclasses.dataclass(frozen=True)
class SpanOf:
    """Returns the first and last key of a range's rows; None if no row has a key."""

    spec: LogSpec
    ordering: Ordering

    def __call__(self, part: Range) -> tuple[Value, Value] | None:
        reader = LogReader(self.spec, features=False, ordering=self.ordering)
        spans = [span_of(batch.keys) for batch in reader.read_range(part) if batch.keys is not None and len(batch.keys)]
        return (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None


def span_of(keys: Keys) -> tuple[Value, Value]:
    """Returns the smallest and the largest key."""
    if isinstance(keys, np.ndarray):
        return keys.min().item(), keys.max().item()
    span = pc.min_max(keys).as_py()
    return span["min"], span["max"]


# What the column of the time holds -----------------------------------------------------------------------------------


def find_ordering(spec: LogSpec, ranges: Sequence[Range]) -> Ordering:
    """Returns the ordering of a log's times, by the configuration and the column's first values.

    Raises:
        InputError: the column's values do not match the configuration, or a file cannot be read.
    """
    split, column = spec.data.split, spec.data.split.column
    data = spec.data
    words = sorted(spellings(data.missing_values)) if data.missing_values is not None else USUAL_MISSING
    missing = tuple(word.encode() for word in words)
    if split.compare_as == "text":
        return Ordering("text", missing=() if data.missing_values is None else missing)
    if spec.split_format != "auto" and split.compare_as != "number":
        return Ordering("moment", spec.split_format, missing, data.decimal)
    if split.compare_as == "number":
        return Ordering("number", missing=missing, decimal=data.decimal)
    first = _first_values(spec, ranges, missing)
    if not len(first):
        raise InputError(f"data.split: {column} has no value in the first rows; name another column")
    pointed = pc.replace_substring(first, b",", b".") if data.decimal == "," else first
    kind, row = usual_kind(pointed)
    example = excerpt(first[row].as_py(), 40)
    if kind == "text":
        raise InputError(
            f"data.split: {column} has values as '{example}', which are not numbers, dates or moments; set "
            "time_format, or compare_as: text"
        )
    if kind == "number" and (split.last or split.compare_as == "time"):
        asked = "last" if split.last else "compare_as: time"
        raise InputError(
            f"data.split: {asked} needs dates or moments, and {column} has numbers as {example}; give their form by "
            "time_format, or validation_from and test_from as numbers"
        )
    if kind == "number" and split.needs_span and (written := _compact_form(first)):
        raise InputError(
            f"data.split: {column} has numbers as {example}, which look like dates, and shares are of the time; set "
            f"time_format: '{written}', or compare_as: number"
        )
    if kind == "epoch" and split.compare_as == "auto" and _are_numbers(split):
        return Ordering("number", missing=missing, decimal=data.decimal)
    return Ordering(kind, missing=missing, decimal=data.decimal)


def _compact_form(values: pa.Array) -> str | None:
    """Returns the form of numbers that are all dates, such as 20260501, with or without a time of day; None for
    others.
    """
    lengths = pc.unique(pc.binary_length(values)).to_pylist()
    written = _COMPACT_FORMS.get(lengths[0]) if len(lengths) == 1 else None
    if written is None or len(pc.unique(values)) < _FEWEST_DATES:
        return None
    matched = pc.match_substring_regex(values, time_pattern(written)).fill_null(False)
    years = pc.match_substring_regex(values, r"^(19[7-9]|20)")  # the years that a log may have
    return written if pc.all(pc.and_(matched, years)).as_py() else None


def _are_numbers(split: Split) -> bool:
    """Returns whether both boundaries are numbers. The column's numbers are then compared without a conversion to
    times.
    """
    if split.validation_from is None or split.test_from is None:
        return False
    texts = pa.array([split.validation_from.encode(), split.test_from.encode()], pa.binary())
    return all(kind in ("number", "epoch") for kind in kinds_of(texts))


def _first_values(spec: LogSpec, ranges: Sequence[Range], missing: tuple[bytes, ...]) -> pa.Array:
    """Returns the first non-missing values of the time column, binary, at most _LOOKED_AT."""
    reader = LogReader(spec, features=False)
    for part in ranges:
        for batch in reader.read_range(part):
            assert isinstance(batch.keys, pa.Array)
            present = batch.keys.drop_null()
            words = pa.array([b"", *missing], pa.binary())
            present = present.filter(pc.invert(pc.is_in(present, value_set=words)))
            if len(present):
                return present[:_LOOKED_AT]
    return pa.array([], pa.binary())


def _given(split: Split, ordering: Ordering) -> tuple[Boundary, Boundary]:
    """Returns the boundaries of the configuration.

    Raises:
        InputError: a boundary cannot be compared with the column's values.
    """
    boundaries: list[Boundary] = []
    for name in ("validation_from", "test_from"):
        try:
            boundaries.append(Boundary(ordering.boundary(str(getattr(split, name)))))
        except ValueError as error:
            raise InputError(
                f"data.split: {name} {error}, which cannot be compared with {split.column}: its values are "
                f"{ordering.plural}; write the boundary as they are written, or set compare_as"
            ) from error
    return boundaries[0], boundaries[1]


def _part_of(path: str, files: SplitFiles) -> int:
    for index, name in enumerate(SPLITS):
        if path in getattr(files, name):
            return index
    raise ValueError(f"{path} is in no split; placed_files lists the files of each")


# By chance -----------------------------------------------------------------------------------------------------------


def _uniform(seed: int, file: int, lines: np.ndarray) -> np.ndarray:
    """Returns SplitMix64 hashes of seed, file index and line index (both from 0) as float64 [N] in [0, 1)."""
    return _draws(np.array([seed]), np.array([file]), lines)


def _draws(*numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        state = np.zeros(1, np.uint64)
        for number in numbers:
            state = splitmix64(state + number.astype(np.uint64) * _GOLDEN)
        draws: np.ndarray = (state >> np.uint64(11)) * 2.0**-53
    return draws


def _of_groups(seed: int, groups: pa.Array, otherwise: np.ndarray) -> np.ndarray:
    """Returns one uniform draw per distinct value, `[N]` in [0, 1); for a row without a value, its draw in
    `otherwise`.
    """
    distinct = groups.dictionary_encode()
    words = distinct.dictionary.to_pylist()
    hashes = np.fromiter(map(zlib.crc32, words), np.uint64, len(words))
    draws = np.append(_draws(np.array([seed]), hashes), 0.0)
    places = distinct.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    return np.where(places == len(words), otherwise, draws[places])


def placed_files(split: Split, patterns: Sequence[str]) -> tuple[Split, list[str]]:
    """Returns a split whose `files` list single files, and all files of the log, in the order of the splits.

    Any other split is returned unchanged, with the files of the patterns.

    Args:
        split: The split.
        patterns: The files and globs of the log. With `by: files`, those of the training rows, unless `files` names
            them.

    Raises:
        InputError: a file is missing or in two splits, or both the patterns and `files` name training files.
    """
    if split.files is None:
        return split, find_files(list(patterns))
    if split.files.train and patterns:
        raise InputError("data.split.files.train names the training files; leave out data.paths and --data, or train")
    named = {"train": split.files.train or list(patterns), **{n: getattr(split.files, n) for n in SPLITS[1:]}}
    files = {name: [absolute(path) for path in find_files(list(given))] for name, given in named.items()}
    places: dict[str, str] = {}
    for name, paths in files.items():
        for path in paths:
            if places.setdefault(path, name) != name:
                raise InputError(f"data.split.files: {path} is in {places[path]} and in {name}; name it once")
    return split.model_copy(update={"files": SplitFiles(**files)}), list(places)
