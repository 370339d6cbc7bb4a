"""Statistics of each column for the report's data page, exact, by the column's kind.

TFDV knows only numbers and texts: it counts a list as one value, and a time as a category.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.epochs import eight_digits, epoch_seconds
from ctrpipe.transforms.log.payload import decoded
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import is_vector, vector_array

MOST_FREQUENT = 5  # values named of a column
MOST_SHOWN = 100  # characters shown of a value: a text may be long


@dataclasses.dataclass(frozen=True)
class ColumnSummary:
    """The values of a column in a set of rows. Attributes that do not apply to its kind are None.

    Attributes:
        name: The column.
        kind: The kind of its feature, or label or weight.
        missing_rate: The share of rows without a value: for a list, without an element.
        unique: The number of distinct values: for a list, of its elements; for a vector, None.
        mean, low, high: The mean and range of the finite numbers, or of all numbers of vectors.
        elements: `mean` and `most` number of elements per non-empty list.
        span: The first and the last time, ISO 8601 in UTC.
        top: The most frequent values, or elements, with their numbers of occurrences.
    """

    name: str
    kind: str
    missing_rate: float | None
    unique: int | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    elements: dict[str, float] | None = None
    span: list[str] | None = None
    top: list[tuple[str, int]] = dataclasses.field(default_factory=list)


def summarise_columns(spec: LogSpec, rows: pa.Table) -> list[dict[str, Any]]:
    """Returns a ColumnSummary of each column as a dict: labels and weight first, then the features in their order.

    Args:
        spec: The description of the log.
        rows: Checked rows, with the columns of `payload_schema`.
    """
    names = dict.fromkeys([*spec.target_columns, *spec.feature_columns])
    return [dataclasses.asdict(_summary(spec, name, _whole(rows[name]))) for name in names]


def time_spans(spec: LogSpec, rows: Mapping[str, pa.Table]) -> dict[str, dict[str, list[str]]]:
    """Returns, for each column of times, the first and the last time of each split that has one.

    Args:
        spec: The description of the log.
        rows: Rows of each split, by its name.
    """
    spans: dict[str, dict[str, list[str]]] = {}
    for name, time_format in spec.time_formats.items():
        columns = {split: _whole(table[name]) for split, table in rows.items()}
        dates = any(_are_dates(column, time_format) for column in columns.values())
        by_split = {split: _span(column, time_format, dates) for split, column in columns.items()}
        spans[name] = {split: span for split, span in by_split.items() if span}
    return spans


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array without a dictionary."""
    return decoded(column.combine_chunks())


def _summary(spec: LogSpec, name: str, column: pa.Array) -> ColumnSummary:
    feature = spec.feature_by_column.get(name)
    kind = feature.kind if feature else "weight" if name == spec.data.weight else "label"
    rate = column.null_count / len(column) if len(column) else None
    if is_vector(column.type):
        return _of_numbers(ColumnSummary(name, kind, rate), vector_array(column.drop_null()).reshape(-1))
    if pa.types.is_floating(column.type):
        numbers = number_array(column.drop_null())
        known = _of_numbers(ColumnSummary(name, kind, rate), numbers)
        values, counts = np.unique(numbers, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
        top = [(number_text(values[place]), int(counts[place])) for place in order]
        return dataclasses.replace(known, unique=len(values), top=top)
    if time_format := spec.time_formats.get(name):
        span = _span(column, time_format, _are_dates(column, time_format))
        return ColumnSummary(name, kind, rate, unique=pc.count_distinct(column).as_py(), span=span)
    if separator := spec.separators.get(name):
        return _of_lists(ColumnSummary(name, kind, rate), column, separator, spec.weight_separators.get(name, ""))
    unique, top = _counted(column.drop_null())
    return ColumnSummary(name, kind, rate, unique=unique, top=top)


def _of_numbers(summary: ColumnSummary, numbers: np.ndarray) -> ColumnSummary:
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    if not len(finite):
        return summary
    return dataclasses.replace(summary, mean=float(finite.mean()), low=float(finite.min()), high=float(finite.max()))


def _of_lists(summary: ColumnSummary, column: pa.Array, separator: str, weights: str) -> ColumnSummary:
    lists = pc.split_pattern(column, separator.encode())
    elements, rows = lists.flatten(), pc.list_parent_indices(lists)
    known = pc.greater(pc.binary_length(elements), 0)
    elements, rows = elements.filter(known), rows.filter(known).to_numpy()
    if weights:  # what follows the last sign between an element and its weight
        elements = pc.list_element(pc.split_pattern(elements, weights.encode(), max_splits=1, reverse=True), 0)
    lengths = np.bincount(rows, minlength=len(column))
    unique, top = _counted(elements)
    own = lengths[lengths > 0]
    return dataclasses.replace(
        summary,
        missing_rate=float((lengths == 0).mean()) if len(column) else None,
        unique=unique,
        elements={"mean": float(own.mean()), "most": int(own.max())} if len(own) else None,
        top=top,
    )


def _counted(values: pa.Array) -> tuple[int, list[tuple[str, int]]]:
    """Returns the number of distinct values, and the most frequent values; ties are in order of first occurrence."""
    counted = pc.value_counts(values)
    counts = counted.field("counts").to_numpy()
    order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    names = counted.field("values").take(pa.array(order)).to_pylist()
    shown = [name.decode("utf-8", "replace")[:MOST_SHOWN] for name in names]
    return len(counts), list(zip(shown, counts[order].tolist(), strict=True))


def _are_dates(column: pa.Array, time_format: str) -> bool:
    """Returns whether eight digits are YYYYMMDD, which `auto` leaves open: see EightDigits."""
    return time_format == "auto" and bool(eight_digits(column.drop_null()).no_hour)


def _span(column: pa.Array, time_format: str, dates: bool) -> list[str] | None:
    seconds = epoch_seconds(column.drop_null(), time_format, dates)
    known = seconds[np.isfinite(seconds)]
    return [_time_text(float(end)) for end in (known.min(), known.max())] if len(known) else None


def _time_text(seconds: float) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return moment.isoformat(sep=" ", timespec="minutes")


def number_text(value: np.floating) -> str:
    """Returns a float32 in the fewest digits that give it back: 0.1, 1234567, 1e-05."""
    if abs(value) >= 1e15 or 0 < abs(value) < 1e-4:
        return np.format_float_scientific(value, unique=True, trim="-")
    return np.format_float_positional(value, unique=True, trim="-")
