"""Parquet: a range is a few row groups, and a line is a row."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.transforms.log.batches import RawBatch
from ctrpipe.transforms.log.files import Range, group, no_rows, open_stored, state_of
from ctrpipe.transforms.log.first_bytes import HEAD_BYTES, PARQUET_MARK, check_parquet
from ctrpipe.transforms.log.formats.base import Format, check_names
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import as_binary, is_list, join_lists
from ctrpipe.transforms.log.weighted import is_pairs, pairs_as_lists

BATCH_ROWS = 1 << 16


class Parquet(Format):
    """Reads Parquet. Lists become one value with separators, and numbers of columns that are not numeric their text."""

    mark = PARQUET_MARK

    def __init__(self, spec: LogSpec, columns: Sequence[str], labels: bool):
        super().__init__(spec, columns, labels)
        self._numeric = frozenset(spec.numeric_columns)
        self._vectors = frozenset(spec.vector_lengths)
        self._separators = spec.separators
        self._weights = spec.weight_separators
        self._sequences = frozenset(spec.columns_of("sequence"))
        self._whole = frozenset(spec.whole_number_columns)

    def whole(self, path: str) -> list[Range]:
        with _read_errors(path), open_stored(path) as source:
            state = state_of(path)
            check_parquet(path, source.read(HEAD_BYTES))
            file = _opened(path, source)
            names = file.schema_arrow.names
            check_names(path, names, self._columns)
            groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        rows = [each.num_rows for each in groups]
        if not sum(rows):
            raise no_rows(path)
        sizes = [each.total_byte_size for each in groups]
        return [
            Range(path, tuple(names), first, stop - first, 1 + sum(rows[:first]), sum(sizes[first:stop]), state)
            for first, stop in group(sizes)
        ]

    def read(self, part: Range) -> Iterator[RawBatch]:
        line = part.line
        with _read_errors(part.path), open_stored(part.path) as source:
            file = _opened(part.path, source)
            groups = list(range(part.start, part.start + (part.length or 0)))
            for batch in self._batches(part.path, file, groups):
                yield self._raw(part.path, batch, line)
                line += batch.num_rows

    def _batches(self, path: str, file: pa.parquet.ParquetFile, groups: list[int]) -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(BATCH_ROWS, row_groups=groups, columns=self._columns)
        except pa.ArrowException as error:
            # Arrow cannot read some nested columns, such as missing lists of a fixed size: the file is not damaged.
            for name in self._columns:
                kind = file.schema_arrow.field(name).type
                if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
                    raise InputError(
                        f"{path}: column {name} of type {kind} cannot be read ({one_line(error, 200)}); "
                        "write values, or lists of no fixed size"
                    ) from error
            raise

    def _raw(self, path: str, batch: pa.RecordBatch, first_row: int) -> RawBatch:
        columns: dict[str, pa.Array] = {}
        faults: dict[int, str] = {}
        for name in self._columns:
            values = plain(batch.column(name))
            is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
            if is_number and name in self._numeric:
                columns[name] = values
            elif is_list(values.type) and name in self._vectors:
                columns[name] = values
            elif name in self._weights and is_pairs(values.type):
                lists = pairs_as_lists(values, self._weights[name], name, path)
                columns[name] = join_lists(lists, self._separators[name], name, path, faults)
            elif is_list(values.type) and name in self._separators:
                separator, is_sequence = self._separators[name], name in self._sequences
                columns[name] = join_lists(values, separator, name, path, faults, is_sequence, name in self._whole)
            else:
                columns[name] = as_binary(values, name, path, faults if name in self._whole else None)
        lines = first_row + np.arange(batch.num_rows)
        return RawBatch(path, columns, lines, rejects=[], faults=faults, not_utf8=None, text=None)

    @staticmethod
    def row_count(path: str) -> int:
        with open_stored(path) as source:
            rows: int = pa.parquet.read_metadata(source).num_rows
        return rows


@contextlib.contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Converts errors of reading a Parquet file to InputError."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        text = one_line(error, 200)
        raise InputError(f"{path}: a Parquet file with unsupported features ({text}); write it anew") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: the Parquet file is damaged ({one_line(error, 200)})") from error


def _opened(path: str, source: IO[bytes]) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(source)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({one_line(error, 200)})") from error
