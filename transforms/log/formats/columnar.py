"""Columnar formats with types. A file consists of pieces; each piece is read as Arrow record batches."""

import abc
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.batches import RawBatch
from ctrpipe.transforms.log.column_types import is_of_numbers, is_of_truths, types_of
from ctrpipe.transforms.log.files import Range, group, input_errors, no_rows, state_of, stored_head
from ctrpipe.transforms.log.first_bytes import binary_format, check_binary
from ctrpipe.transforms.log.formats.base import Format, check_names
from ctrpipe.transforms.log.nested import column_of, leaf_names, root_of
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import as_binary, is_list, join_lists
from ctrpipe.transforms.log.weighted import is_pairs, pairs_as_lists

BATCH_ROWS = 1 << 16
_NOT_JOINED = "not the joined log that data.join makes; make the same join by `ctrpipe prepare join`"


class Pieces(abc.ABC):
    """An open columnar file, in pieces that can be read independently.

    Attributes:
        schema: The columns of the file.
        rows: The number of rows of each piece.
        sizes: The approximate number of bytes of each piece.
    """

    schema: pa.Schema
    rows: list[int]
    sizes: list[int]

    @abc.abstractmethod
    def batches(self, first: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the pieces `first` to `stop - 1` in order, at most BATCH_ROWS a batch.

        Args:
            first, stop: The pieces.
            columns: The columns, or fields of columns (see `nested`), to read. A batch may contain others.
        """


class Columnar(Format):
    """Reads columnar files. Lists become one text with separators; numbers of non-numeric columns become text."""

    name: ClassVar[str]
    """The name of the format, for messages."""

    def __init__(self, spec: LogSpec, columns: Sequence[str], labels: bool):
        super().__init__(spec, columns, labels)
        self._numeric = frozenset(spec.numeric_columns)
        self._vectors = frozenset(spec.vector_lengths)
        self._separators = spec.separators
        self._weights = spec.weight_separators
        self._within = spec.inner_separators
        self._sequences = frozenset(spec.columns_of("sequence"))
        self._whole = frozenset(spec.whole_number_columns)
        self._types: dict[str, dict[str, pa.DataType]] = {}  # by file

    @classmethod
    @abc.abstractmethod
    def opened(cls, path: str) -> contextlib.AbstractContextManager[Pieces]:
        """Opens a file.

        Raises:
            InputError: the file cannot be read. May also be raised in the block.
        """

    def whole(self, path: str) -> list[Range]:
        with input_errors(path):
            state, head = state_of(path), stored_head(path)
            if self._spec.data.join and binary_format(head) != self.name:
                raise InputError(f"{path}: {_NOT_JOINED}")
            check_binary(path, head, self.name)
        with self.opened(path) as file:
            rows, sizes, schema = file.rows, file.sizes, file.schema
        known = [name for name in self._columns if name not in schema.names and root_of(schema, name)]
        names = [*schema.names, *known]
        try:
            check_names(path, names, self._columns)
        except InputError as error:
            raise InputError(f"{error}; {_NOT_JOINED}") if self._spec.data.join else error from None
        self._types[path] = types_of(schema, self._columns)
        if not sum(rows):
            raise no_rows(path)
        return [
            Range(path, tuple(names), first, stop - first, 1 + sum(rows[:first]), sum(sizes[first:stop]), state)
            for first, stop in group(sizes)
        ]

    def read(self, part: Range) -> Iterator[RawBatch]:
        line = part.line
        with self.opened(part.path) as file:
            for batch in file.batches(part.start, part.start + (part.length or 0), self._columns):
                yield self._raw(part.path, batch, line)
                line += batch.num_rows

    def _raw(self, path: str, batch: pa.RecordBatch, first_row: int) -> RawBatch:
        columns: dict[str, pa.Array] = {}
        faults: dict[int, str] = {}
        kinds: dict[str, pa.DataType] = {}
        for name in self._columns:
            values = column_of(batch, name)
            kinds[name] = values.type
            is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
            if is_number and name in self._numeric:
                columns[name] = values
            elif pa.types.is_decimal(values.type) and name in self._numeric:
                columns[name] = values.cast(pa.float64())
            elif is_list(values.type) and name in self._vectors:
                columns[name] = values
            elif name in self._weights and is_pairs(values.type):
                lists = pairs_as_lists(values, self._weights[name], name, path)
                columns[name] = join_lists(lists, self._separators[name], name, path, faults)
            elif is_list(values.type) and name in self._separators:
                separator, is_sequence = self._separators[name], name in self._sequences
                settings = (is_sequence, name in self._whole, self._within.get(name))
                columns[name] = join_lists(values, separator, name, path, faults, *settings)
            else:
                columns[name] = as_binary(values, name, path, faults if name in self._whole else None)
        lines = first_row + np.arange(batch.num_rows)
        numbers, truths = (
            frozenset(name for name, kind in kinds.items() if is_one(kind)) for is_one in (is_of_numbers, is_of_truths)
        )
        return RawBatch(path, columns, lines, [], faults, not_utf8=None, text=None, numbers=numbers, truths=truths)

    def types(self, path: str) -> dict[str, pa.DataType]:
        return self._types[path]

    def texts(self, path: str, names: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        with self.opened(path) as file:
            for batch in file.batches(0, len(file.rows), names):
                yield {name: _elements(column_of(batch, name)) for name in names}

    @classmethod
    def row_count(cls, path: str) -> int:
        with cls.opened(path) as file:
            return sum(file.rows)


def _elements(values: pa.Array) -> pa.Array:
    while is_list(values.type):
        values = plain(pc.list_flatten(values))
    return values


def first_columns(kind: type[Columnar], path: str, rows: int) -> dict[str, Callable[[], pa.Array]]:
    """Returns the columns of a file's first rows by name, with the fields of structs in place of the structs.

    Each column is returned by a function, which fails alone if the column's type is not supported.

    Raises:
        InputError: the file cannot be read.
    """
    with kind.opened(path) as file:
        names = list(leaf_names(file.schema))
        batches = file.batches(0, len(file.rows), file.schema.names)
        taken = list(itertools.islice(batches, 1 + rows // BATCH_ROWS))
        if not taken:
            return {}
        first = pa.Table.from_batches(taken).slice(0, rows).combine_chunks().to_batches()
    return {name: functools.partial(column_of, first[0], name) for name in names} if first else {}
