"""Avro's object container files. A piece is a block; the file's sync marker ends it.

References:
    Apache Avro specification, "Object Container Files".
"""

import contextlib
import functools
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.files import group, open_stored
from ctrpipe.transforms.log.formats.columnar import BATCH_ROWS, Columnar, Pieces
from ctrpipe.transforms.log.nested import root_of

_MARK_BYTES = 16
_BLOCK_HEAD = 20  # bytes of its two numbers, at most
_READ_AT_ONCE = 8  # times the stored size of a block is about the size of its records in memory
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_NUMBERS = ("int", "long", "float", "double")  # of two in a union the later one holds both
_Value = Callable[[Any], Any]


class Avro(Columnar):
    """Reads Avro."""

    name = "Avro"

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str) -> Iterator[Pieces]:
        require("avro", f"{path}: an Avro file", "write it as Parquet")
        try:
            with open_stored(path) as source:
                yield _Blocks(path, source)
        except InputError:
            raise
        # fastavro lets errors of codecs, schemas and Python's own types through.
        except Exception as error:
            text = one_line(error, 200)
            raise InputError(f"{path}: not a readable Avro file ({text}); copy or write it again") from error


class _Blocks(Pieces):
    def __init__(self, path: str, source: IO[bytes]):
        import fastavro  # lazy: of the extra avro

        schema = fastavro.reader(source).writer_schema
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise InputError(f"{path}: an Avro file of {excerpt(json.dumps(schema))}; its rows must be records")
        self._path, self._source = path, source
        start = source.tell()
        source.seek(0)
        self._header = source.read(start)  # ends with the mark that also ends each block
        types = Types()
        columns = {field["name"]: types.of(field["type"]) for field in schema["fields"]}
        self.schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
        self._convert = {name: convert for name, (_, convert) in columns.items() if convert}
        self._starts, self.rows = self._skimmed(start)
        self.sizes = np.diff(self._starts).tolist()

    def _skimmed(self, start: int) -> tuple[list[int], list[int]]:
        """Returns the positions of the blocks and of the end, and the number of records of each block.

        Raises:
            InputError: a block is incomplete.
        """
        source, mark = self._source, self._header[-_MARK_BYTES:]
        end = source.seek(0, io.SEEK_END)
        starts = [start]
        rows: list[int] = []
        while starts[-1] < end:
            source.seek(starts[-1])
            beginning = io.BytesIO(source.read(_BLOCK_HEAD))
            records, size = _long(beginning), _long(beginning)
            stop = starts[-1] + beginning.tell() + size
            source.seek(max(stop, 0))
            if source.read(_MARK_BYTES) != mark:
                raise InputError(
                    f"{self._path}: the Avro file is damaged or cut short after {sum(rows):,} rows; copy or write it "
                    "again"
                )
            starts.append(stop + _MARK_BYTES)
            rows.append(records)
        return starts, rows

    def batches(self, first: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import fastavro  # lazy: of the extra avro

        read = list(dict.fromkeys(root_of(self.schema, name) or name for name in columns))
        schema = pa.schema([self.schema.field(name) for name in read])
        convert = {name: self._convert[name] for name in read if name in self._convert}
        for low, high in group([size * _READ_AT_ONCE for size in self.sizes[first:stop]]):
            self._source.seek(self._starts[first + low])
            blocks = self._source.read(self._starts[first + high] - self._starts[first + low])
            records: Iterator[Any] = iter(fastavro.reader(io.BytesIO(self._header + blocks)))
            while some := list(itertools.islice(records, BATCH_ROWS)):
                for name, value in convert.items():
                    for record in some:
                        record[name] = value(record[name])
                yield pa.RecordBatch.from_pylist(some, schema)


def _long(source: IO[bytes]) -> int:
    """Reads a zigzag variable-length integer: seven bits per byte, lowest first.

    Raises:
        EOFError: the bytes end inside the number.
    """
    number = shift = 0
    while True:
        byte = source.read(1)
        if not byte:
            raise EOFError("a block has no length")
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7


class Types:
    """Maps the types of an Avro schema to Arrow types, and fastavro's values to Arrow's."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[pa.DataType, _Value | None]] = {}

    def of(self, schema: Any) -> tuple[pa.DataType, _Value | None]:
        """Returns the Arrow type, and the conversion of its values; None if they need none."""
        if isinstance(schema, str):
            return (_PLAIN[schema], None) if schema in _PLAIN else self._named.get(schema, _AS_JSON)
        if isinstance(schema, list):
            return self._of_union(schema)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        name = schema.get("name", "")
        self._named[name] = _AS_JSON  # until its own type is known: it may be within itself
        own = self._of_mapping(kind, schema)
        self._named[name] = own
        return own

    def _of_mapping(self, kind: str, schema: Mapping[str, Any]) -> tuple[pa.DataType, _Value | None]:
        logical = schema.get("logicalType")
        if logical == "uuid":
            return pa.string(), _text_or_none
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0)), None
        if logical in _LOGICAL:
            return _LOGICAL[logical], None
        if kind == "array":
            inner, convert = self.of(schema["items"])
            return pa.list_(inner), None if convert is None else functools.partial(_each, convert)
        if kind == "map":
            inner, convert = self.of(schema["values"])
            return pa.map_(
                pa.string(), inner
            ), lambda values: values and [(key, convert(value) if convert else value) for key, value in values.items()]
        if kind == "record":
            fields = {field["name"]: self.of(field["type"]) for field in schema["fields"]}
            converts = {name: convert for name, (_, convert) in fields.items() if convert}
            struct = pa.struct([(name, inner) for name, (inner, _) in fields.items()])
            return struct, (lambda values: values and values | _converted(values, converts)) if converts else None
        return self.of(kind)

    def _of_union(self, schema: Sequence[Any]) -> tuple[pa.DataType, _Value | None]:
        others = [each for each in schema if each != "null"]
        if len(others) == 1:
            return self.of(others[0])
        if others and all(isinstance(each, str) and each in _NUMBERS for each in others):
            return _PLAIN[max(others, key=_NUMBERS.index)], None
        return _AS_JSON if others else (pa.null(), None)


def _converted(values: Mapping[str, object], converts: Mapping[str, _Value]) -> dict[str, Any]:
    return {name: convert(values[name]) for name, convert in converts.items()}


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _json(value: object) -> str | None:
    """Returns the text of a value whose type differs between rows."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(int(value) if isinstance(value, bool) else value, default=str)


_AS_JSON: tuple[pa.DataType, _Value | None] = (pa.string(), _json)


def _each(convert: _Value, values: list[Any] | None) -> list[Any] | None:
    return None if values is None else [convert(value) for value in values]
