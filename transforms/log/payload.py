"""The payload: the checked log as Parquet files of raw columns, one folder per split."""

import contextlib
import pathlib
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from ctrpipe.common.files import atomic_path
from ctrpipe.transforms.log.spec import LogSpec

# A row group is read at once; a worker processes one part at a time.
ROW_GROUP_ROWS = 1 << 16
PART_ROWS = 1 << 18
_GROUP_BYTES = 1 << 27  # of the vectors of a row group, which of long vectors holds fewer rows


def payload_schema(spec: LogSpec) -> pa.Schema:
    """Returns the schema: features, labels, weight.

    Numbers are float32, vectors fixed-size binary (see ctrpipe.transforms.log.vectors), others binary; null is missing.
    """
    kinds = {name: pa.float32() for name in spec.numeric_columns + spec.target_columns}
    kinds |= {name: pa.binary(4 * length) for name, length in spec.vector_lengths.items()}
    return pa.schema([(name, kinds.get(name, pa.binary())) for name in spec.feature_columns + spec.target_columns])


class PayloadWriter(contextlib.AbstractContextManager["PayloadWriter"]):
    """Writes rows in order to `<folder>/<stem>-00000.parquet` and so on, PART_ROWS rows per file.

    The last file may be smaller. Each file is created by an atomic rename. Without rows, no file is written.
    """

    def __init__(self, folder: pathlib.Path, stem: str, schema: pa.Schema):
        self._folder = folder
        self._stem = stem
        self._schema = schema
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self._writer: pa.parquet.ParquetWriter | None = None
        vectors = sum(field.type.byte_width for field in schema if pa.types.is_fixed_size_binary(field.type))
        self._group_rows = min(ROW_GROUP_ROWS, max(_GROUP_BYTES // max(vectors, 1), 1))
        self._part_rows = PART_ROWS // ROW_GROUP_ROWS * self._group_rows
        self._part = contextlib.ExitStack()  # closes the current file
        self._rows_in_part = 0
        self.parts: list[pathlib.Path] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Adds a batch with at least the schema's columns."""
        if not rows.num_rows:
            return
        self._buffered.append(rows.select(self._schema.names))
        self._buffered_rows += rows.num_rows
        while self._buffered_rows >= self._group_rows:
            table = pa.Table.from_batches(self._buffered, self._schema)
            self._write_group(table.slice(0, self._group_rows))
            self._buffered = table.slice(self._group_rows).to_batches()
            self._buffered_rows -= self._group_rows

    def _write_group(self, rows: pa.Table) -> None:
        if self._writer is None:
            path = self._folder / f"{self._stem}-{len(self.parts):05d}.parquet"
            self.parts.append(path)
            unfinished = self._part.enter_context(atomic_path(path))
            # Parquet's default dictionary pages store each value once: counting values is counting integers.
            self._writer = self._part.enter_context(
                pa.parquet.ParquetWriter(unfinished, self._schema, compression="lz4")
            )
        self._writer.write_table(rows, row_group_size=self._group_rows)
        self._rows_in_part += rows.num_rows
        if self._rows_in_part >= self._part_rows:
            self._end_part()

    def _end_part(self) -> None:
        self._part.close()
        self._writer, self._rows_in_part = None, 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._part.__exit__(kind, error, trace)
            return
        with self._part:
            if self._buffered_rows:
                self._write_group(pa.Table.from_batches(self._buffered, self._schema))


def read_rows(part: pathlib.Path, first: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows `first` to `stop - 1` of a part, without reading other row groups."""
    with pa.parquet.ParquetFile(part) as file:
        start = 0
        for index in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            low, high = max(first - start, 0), min(stop - start, rows)
            if low < high:
                yield from file.read_row_group(index).slice(low, high - low).to_batches()
            start += rows


def take_rows(part: pathlib.Path, rows: np.ndarray) -> Iterator[pa.Table]:
    """Yields copies of the given rows of a part, without references to other rows. Reads each row group once.

    Args:
        part: The file.
        rows: Row numbers from 0, ascending.
    """
    with pa.parquet.ParquetFile(part) as file:
        start = 0
        for index in range(file.metadata.num_row_groups):
            stop = start + file.metadata.row_group(index).num_rows
            low, high = np.searchsorted(rows, (start, stop))
            if low < high:
                yield file.read_row_group(index).take(rows[low:high] - start)
            start = stop


def payload_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the parts of a split, in the order of the log."""
    return sorted(folder.glob("*.parquet"))


def plain(values: pa.Array) -> pa.Array:
    """Converts an array to the plainest type with the same values.

    Decodes dictionaries. Extension types become their storage types (UUIDs become text), half floats become floats,
    durations become seconds, and views and fixed-size types become plain lists and binary values.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return plain(values.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return _uuid_texts(values.storage) if kind.extension_name == "arrow.uuid" else plain(values.storage)
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    if pa.types.is_duration(kind):
        return seconds_of(values)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return values.cast(pa.list_(kind.value_type))
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    return values


def seconds_of(values: pa.Array) -> pa.Array:
    """Returns durations of any unit as seconds, float64. The unit of a file thus does not affect a value."""
    units = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
    return pc.divide(values.cast(pa.int64()).cast(pa.float64(), safe=False), float(units[values.type.unit]))


def decoded(values: pa.Array) -> pa.Array:
    """Returns a column of checked rows without dictionary encoding."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _uuid_texts(values: pa.Array) -> pa.Array:
    texts = (None if value is None else str(uuid.UUID(bytes=value)) for value in values.to_pylist())
    return pa.array(texts, pa.string())


def payload_rows(files: Sequence[pathlib.Path]) -> int:
    """Returns the total number of rows of the parts."""
    return sum(pa.parquet.read_metadata(file).num_rows for file in files)


def read_payload(
    files: Sequence[pathlib.Path],
    columns: Sequence[str] | None = None,
    batch_rows: int = ROW_GROUP_ROWS,
    as_dictionaries: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of parts, in order.

    Args:
        files: The parts.
        columns: The columns to read, in this order; None for all.
        batch_rows: Maximum number of rows of a batch.
        as_dictionaries: Whether to return binary columns as dictionary arrays, which is faster, because files store
            them this way.
    """
    for path in files:
        schema = pa.parquet.read_schema(path)
        text = [field.name for field in schema if as_dictionaries and pa.types.is_binary(field.type)]
        with pa.parquet.ParquetFile(path, read_dictionary=text) as file:
            yield from file.iter_batches(batch_rows, columns=columns)
