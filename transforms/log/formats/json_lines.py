"""JSON lines: one object per line. Values become the bytes that a text file would contain.

`ad.campaign` names the field `campaign` of the object `ad` (see `nested`).
"""

import dataclasses
import json
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.batches import RawBatch
from ctrpipe.transforms.log.files import Range, no_rows
from ctrpipe.transforms.log.first_bytes import (
    BYTE_ORDER_MARK,
    ENCODING_HINT,
    is_json_over_lines,
    json_document,
)
from ctrpipe.transforms.log.formats.text import TextFormat
from ctrpipe.transforms.log.lines import Lines
from ctrpipe.transforms.log.nested import ABSENT, DOT, field_of, no_object_on_path, values_named
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import OTHER_SEPARATOR, SEVERAL_VALUES
from ctrpipe.transforms.log.whole_numbers import exact_limit, inexact, text_of_float
from ctrpipe.transforms.log.written import Written


class JsonText(TextFormat):
    """Reads JSON objects. The columns of a file are unknown in advance: any object may lack a key."""

    has_escapes = True  # an escape may be half of a surrogate pair

    def __init__(self, spec: LogSpec, columns: Sequence[str], labels: bool):
        super().__init__(spec, columns, labels)
        self._separators = spec.separators
        self._ordered = frozenset(spec.columns_of("sequence", "vector"))
        self._numeric = frozenset([*spec.numeric_columns, *spec.target_columns])
        self._weights = spec.weight_separators
        self._whole = frozenset(spec.whole_number_columns)
        self._within = spec.inner_separators
        self._forms = spec.text_forms
        self._compared = [name for name in spec.compared_columns if name in columns]
        self._noted = Noted()  # of the rows of the last call of _parse

    def _faults(self, lines: Lines, not_utf8: list[int], width: int) -> dict[int, str]:
        return dict.fromkeys(not_utf8, f"invalid UTF-8{ENCODING_HINT}")

    def _parse(self, text: bytes, rows: int, names: Sequence[str]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        lines = text.split(b"\n")[:-1]
        signs = (self._weights, self._within, self._forms)
        settings = (self._separators, self._ordered, self._numeric, self._whole, *signs)
        self._noted = Noted()
        return parse_objects(lines, self._columns, *settings, noted=self._noted)

    def _batch(self, part: Range, lines: Lines, first_line: int) -> RawBatch:
        batch = super()._batch(part, lines, first_line)
        compared = {name: batch.columns[name] for name in self._compared}
        numbers = {name: row for name, row in self._noted.numbers.items() if name in compared}
        truths = {name: row for name, row in self._noted.truths.items() if name in compared}
        self.mixture.note(part.path, batch.lines, compared, numbers, truths, self._separators)
        self.mixture.note_fields(part.path, batch.lines, self._noted.fields, self._noted.no_objects)
        return dataclasses.replace(batch, numbers=frozenset(numbers), truths=frozenset(truths))


class JsonLines(JsonText):
    """Reads one object per line."""

    def _head(self, path: str, first: bytes) -> tuple[Sequence[str], bytes]:
        if not first:
            raise no_rows(path)
        if is_json_over_lines(first):
            raise json_document(path)
        lines = first.removeprefix(BYTE_ORDER_MARK).split(b"\n")
        if first.strip() and not any(line.lstrip().startswith(b"{") for line in lines):
            raise InputError(f"{path}: no line is a JSON object, but data.format is jsonl; is the log tsv or csv?")
        return [], BYTE_ORDER_MARK if first.startswith(BYTE_ORDER_MARK) else b""

    def _lines(self, chunks: Iterator[bytes], names: Sequence[str]) -> Iterator[Lines]:
        return (Lines(chunk, b"", quoted=False) for chunk in chunks)


@dataclasses.dataclass(frozen=True)
class Noted:
    """The first row of each column in which something is seen.

    Attributes:
        numbers: A number, or a list that contains one.
        truths: A boolean, or a list that contains one.
        fields: A field of an object.
        no_objects: A value where the field's object must be, with its path.
    """

    numbers: dict[str, int] = dataclasses.field(default_factory=dict)
    truths: dict[str, int] = dataclasses.field(default_factory=dict)
    fields: dict[str, int] = dataclasses.field(default_factory=dict)
    no_objects: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)

    def note_field(self, row: int, values: dict[str, Any], name: str, value: object) -> None:
        """Notes how a row has a column whose name contains dots.

        Raises:
            _Wrong: the row has several values of that name.
        """
        if name in values:
            if any(each not in (None, values[name]) for each in values_named(values, name)):
                raise _Wrong(f"{name}: is a key, and a field of an object with another value")
            return
        if value is not None:
            self.fields.setdefault(name, row)
        if (value is None or isinstance(value, list)) and (text := no_object_on_path(values, name)):
            path, other = text
            self.no_objects.setdefault(name, (row, f"{path} is '{excerpt(str(other))}'"))

    def forget(self, row: int) -> None:
        """Forgets what was seen in a row that turns out to be malformed."""
        for rows in (self.numbers, self.truths, self.fields):
            for name in [name for name, seen in rows.items() if seen == row]:
                del rows[name]
        for name in [name for name, (seen, _) in self.no_objects.items() if seen == row]:
            del self.no_objects[name]


_TWICE = " is twice in its object, with different values"


class _Number(str):
    """A number with the digits of the file."""


class _Float(_Number):
    """A number with decimals or an exponent."""


class _Wrong(Exception):
    """Raised for a malformed value or line; its text is the reason."""


def parse_objects(
    lines: Sequence[bytes],
    columns: Sequence[str],
    separators: Mapping[str, str],
    ordered: Collection[str] = (),
    numeric: Collection[str] = (),
    whole: Collection[str] = (),
    weights: Mapping[str, str] = types.MappingProxyType({}),
    within: Mapping[str, str] = types.MappingProxyType({}),
    forms: Mapping[str, Written] = types.MappingProxyType({}),
    noted: Noted | None = None,
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Returns the columns of well-formed lines, and the reasons why the other lines are malformed, by index.

    Columns are binary, null where a value is absent or "". Whole numbers, and numbers of numeric columns, keep the
    digits of the file, so a twenty-digit id is exact. true and false become 1 and 0.

    Args:
        lines: The lines, valid UTF-8.
        columns: The keys to read, and fields of nested objects, such as `ad.campaign`.
        separators: Maps each column that may hold a list to the separator of its elements in the result.
        ordered: The columns whose lists keep a missing element as an empty value.
        numeric: The columns of numbers.
        whole: The columns in which a whole number with an exponent or decimals must be exact.
        weights: Maps each column of weighted elements, which may be an object, to the separator of element and weight.
        within: Maps each column of lists of lists to the separator of the inner ones.
        forms: The written form of numeric columns. JSON numbers are converted to this form.
        noted: Gets what is seen in the rows that are returned.
    """
    rows: list[list[bytes | None]] = []
    noted = noted or Noted()
    wrong: dict[int, str] = {}
    keys = {key for name in columns for key in _keys_of(name)}
    repeated: list[str] = []
    decoder = _decoder(repeated)
    for number, line in enumerate(lines):
        try:
            repeated.clear()
            values = decoder.decode(line.decode())
            if not isinstance(values, dict):
                raise _Wrong("expected a JSON object")
            if key := next(filter(keys.__contains__, repeated), None):
                raise _Wrong(f"{key}{_TWICE}")
            row = []
            for name in columns:
                value = values.get(name)
                if value is None and DOT in name:
                    value = _nested(values, name)
                if DOT in name:
                    noted.note_field(len(rows), values, name, value)
                if isinstance(value, dict) and name in weights:
                    if element := next(filter(value.__contains__, repeated), None):
                        raise _Wrong(f"{name}: '{element}'{_TWICE}")
                    value = [_weighted(element, weight, name, weights[name]) for element, weight in value.items()]
                if name not in noted.numbers and _has(value, _Number):
                    noted.numbers[name] = len(rows)
                if name not in noted.truths and _has(value, bool):
                    noted.truths[name] = len(rows)
                if isinstance(value, _Float | list) and name not in numeric:
                    value = _plain(value, name, name in whole)
                if isinstance(value, _Number) and name in forms:
                    value = forms[name].text_of(value)
                if isinstance(value, list) and name in within:
                    value = [_inner(element, name, within[name]) for element in value]
                row.append(_as_bytes(value, name, separators.get(name), name in ordered))
            rows.append(row)
        except json.JSONDecodeError as error:
            wrong[number] = f"not valid JSON ({error.msg}, column {error.colno})"
        except RecursionError:
            wrong[number] = "not valid JSON (nested too deeply)"
        except _Wrong as error:
            wrong[number] = str(error)
            noted.forget(len(rows))
    by_column = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return {name: pa.array(values, pa.binary()) for name, values in zip(columns, by_column, strict=True)}, wrong


def _constant(name: str) -> _Float | None:
    return None if name == "NaN" else _Float(name)  # as in Parquet, NaN is a missing number


def _decoder(repeated: list[str]) -> json.JSONDecoder:
    """Returns a decoder that adds each key that an object has twice, with different values, to `repeated`."""

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            repeated.extend(key for key, value in pairs if value != values[key])
        return values

    return json.JSONDecoder(
        object_pairs_hook=as_object, parse_int=_Number, parse_float=_Float, parse_constant=_constant
    )


def _keys_of(name: str) -> Iterator[str]:
    """Yields the keys of objects that a column's name may contain: for `ad.id` also `ad` and `id`."""
    parts = name.split(DOT)
    for start in range(len(parts)):
        for stop in range(start + 1, len(parts) + 1):
            yield DOT.join(parts[start:stop])


def _has(value: object, kind: type) -> bool:
    return isinstance(value, kind) or (isinstance(value, list) and any(_has(each, kind) for each in value))


def _nested(values: dict[str, Any], name: str) -> Any:
    value = field_of(values, name)
    return None if value is ABSENT else value


def _plain(value: Any, name: str, exact: bool) -> Any:
    """Converts numbers, also within lists, to the text that the same number has in Parquet."""
    if isinstance(value, list):
        return [_plain(each, name, exact) if isinstance(each, _Float | list) else each for each in value]
    number = float(value)
    if exact and abs(number) > exact_limit(64):
        raise _Wrong(inexact(name, value, 64))
    return text_of_float(number)


def _inner(element: object, name: str, within: str) -> Any:
    """Joins a nested list to one text; returns other elements unchanged."""
    if not isinstance(element, list):
        return element
    joined = _as_bytes(element, name, within)
    return None if joined is None else joined.decode("utf-8", "surrogatepass")


def _weighted(element: str, weight: object, name: str, separator: str) -> str:
    if not isinstance(weight, str):  # numbers are read as texts
        raise _Wrong(f"{name}: '{element}' has no finite number as its weight")
    return f"{element}{separator}{weight}"


def _as_bytes(value: object, name: str, separator: str | None, keep_missing: bool = False) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") or None
    if value is None:
        return None
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, list) and separator is not None:
        elements = [_as_bytes(element, name, None) for element in value]
        between = separator.encode()
        if any(between in element for element in elements if element):
            several = SEVERAL_VALUES if keep_missing else OTHER_SEPARATOR
            raise _Wrong(f"{name}: an element of the list has the separator '{separator}' in it{several}")
        return between.join(element or b"" for element in elements if element or keep_missing) or None
    raise _Wrong(f"{name}: expected one value, found {'a list' if isinstance(value, list) else 'an object'}")
