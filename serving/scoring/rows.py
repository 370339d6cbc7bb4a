"""Rows of a raw log -> probabilities, at nearly the rate of the model alone.

A value is packed once for all rows of a block that have it: the servable's own transform (signature `transform_raw`) is
asked for each column's different values, and its answers are laid out row by row. That holds because an id, or a dense
feature, depends on one column of its own row and on nothing else; of a text's columns the different rows are taken.

What a row of Criteo's 39 columns takes, in microseconds of one core (DCN-v2 of width 16, MLP 400-400; AMD EPYC): the
model 33, reading and checking the line 2.9, finding the different values 0.7, packing them 0.8, laying them out 0.3.
Packing every row for itself takes 4.4: a third of it hands the values over as Python's objects.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import InputError, one_line
from serving.assets import read_log_spec
from serving.loader import Servable
from transforms.features.packed_files import INPUTS
from transforms.log.raw_arrays import raw_arrays
from transforms.log.spec import LogSpec, Multivalent, Numeric, Text, Time

PACKED, TRANSFORM, RAW = "serving_packed", "transform_raw", "serving_raw"
# Rows that the model answers at once, and values of a column that the transform is asked for at once.
MODEL_ROWS = 1 << 12
TRANSFORM_ROWS = 1 << 14
_TIME_FIELDS = 3

Inputs = dict[str, np.ndarray]


class Scorer:
    """A loaded version that scores blocks of rows; may be called from several threads.

    A version without `transform_raw` (from another exporter, or from before there was one) answers `serving_raw`, which
    is slower.

    Args:
        version: The version's folder.

    Raises:
        InputError: the version cannot be loaded, or has no such signature.
    """

    def __init__(self, version: pathlib.Path):
        self.version = version
        self.spec = read_log_spec(version)
        self.tasks = list(self.spec.data.labels)
        try:
            self._servable = Servable(version)
        except Exception as error:
            reason = one_line(error, 300)
            raise InputError(f"{version}: the model cannot be loaded: {reason}") from error
        self.packs = {PACKED, TRANSFORM} <= set(self._servable.signatures)
        if not self.packs and RAW not in self._servable.signatures:
            raise InputError(f"{version}: the model has no signature {RAW}; export it with ctrpipe")
        self._places = _places(self.spec)

    def __call__(self, rows: pa.Table, check: Callable[[], None] = lambda: None) -> dict[str, np.ndarray]:
        """Probabilities by task, float32 [N].

        Args:
            rows: The columns as the reader gives them, null = missing.
            check: Called before each batch; what it raises ends the work.
        """
        signature, batches = (PACKED, self._packed) if self.packs else (RAW, self._raw)
        parts: dict[str, list[np.ndarray]] = {task: [np.empty(0, np.float32)] for task in self.tasks}
        for batch in batches(rows) if rows.num_rows else ():
            check()
            answer = self._servable.run(signature, batch, self.tasks)
            for task in self.tasks:
                parts[task].append(answer[task])
        return {task: np.concatenate(found) for task, found in parts.items()}

    def close(self) -> None:
        self._servable.close()

    def _raw(self, rows: pa.Table) -> Iterator[Inputs]:
        for batch in rows.to_batches(MODEL_ROWS):
            columns = {
                name: values.dictionary_encode() if pa.types.is_binary(values.type) else values
                for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield raw_arrays(pa.RecordBatch.from_pydict(columns), self.spec)

    def _packed(self, rows: pa.Table) -> Iterator[Inputs]:
        values: Inputs = {}
        places: Inputs = {}
        for name in self.spec.feature_columns:
            values[name], places[name] = _different(rows.column(name))
        if self.spec.text:
            _together(list(self.spec.text.columns), values, places)
        tables = self._tables(values)
        for start in range(0, rows.num_rows, MODEL_ROWS):
            count = min(MODEL_ROWS, rows.num_rows - start)
            inputs = {name: np.empty((count, width), INPUTS[name]) for name, width in _widths(self._places).items()}
            for place, table in zip(self._places, tables, strict=True):
                rows_of_table = places[place.column][start : start + count]
                inputs[place.tensor][:, place.first : place.stop] = np.take(table, rows_of_table, axis=0)
            yield inputs

    def _tables(self, values: Inputs) -> list[np.ndarray]:
        """By place, what the transform makes of each of its column's different values."""
        longest = max(map(len, values.values()))
        parts: list[Inputs] = []
        for start in range(0, longest, TRANSFORM_ROWS):
            count = min(TRANSFORM_ROWS, longest - start)
            columns = {name: _filled(found[start : start + count], count) for name, found in values.items()}
            parts.append(self._servable.run(TRANSFORM, columns))
        tables = []
        for place in self._places:
            table = np.concatenate([part[place.tensor][:, place.first : place.stop] for part in parts])
            tables.append(table[: len(values[place.column])])
        return tables


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a column's ids, or its dense feature, lie in a packed tensor: from place `first` to before `stop`."""

    column: str
    tensor: str
    first: int
    stop: int


def _places(spec: LogSpec) -> list[_Place]:
    """In the order in which transforms.features.preprocessing lays the columns out."""
    found: list[_Place] = []
    ends = {"ids": 0, "dense": 0}
    if spec.text:
        found += [_Place(spec.text.columns[0], name, 0, spec.text.length) for name in ("tokens", "segments")]
    for column, feature in spec.feature_by_column.items():
        if isinstance(feature, Text):
            continue
        tensor = "dense" if isinstance(feature, Numeric) and feature.is_dense else "ids"
        if isinstance(feature, Multivalent):
            width = feature.max_length
        else:
            width = _TIME_FIELDS if isinstance(feature, Time) else 1
        found.append(_Place(column, tensor, ends[tensor], ends[tensor] + width))
        ends[tensor] += width
    return found


def _widths(places: list[_Place]) -> dict[str, int]:
    """Of the packed tensors that there are."""
    return {place.tensor: place.stop for place in places}


def _different(values: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, float32 or bytes objects, missing ones as NaN and b"", and which of them each row has."""
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    dictionary = encoded.chunk(0).dictionary  # the same for all chunks
    missing = b"" if pa.types.is_binary(dictionary.type) else float("nan")
    places = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    return dictionary.fill_null(missing).to_numpy(zero_copy_only=False), places


def _together(columns: list[str], values: Inputs, places: Inputs) -> None:
    """Leaves the different rows of the columns, which are transformed together, in place of each column's values."""
    key = np.zeros(len(places[columns[0]]), np.int64)
    for name in columns:
        key = key * len(values[name]) + places[name]
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    for name in columns:
        values[name], places[name] = values[name][places[name][first]], place


def _filled(values: np.ndarray, count: int) -> np.ndarray:
    """With missing values at the end, `count` in all."""
    if len(values) == count:
        return values
    filled = np.full(count, b"" if values.dtype == object else np.nan, values.dtype)
    filled[: len(values)] = values
    return filled
