"""Checks that equal values of a column become equal texts in all files of a log, even if the column's types differ.

A category, a user or a key is compared as text. Whole numbers, floating-point numbers, decimals and texts of the same
value have the same text, 123, and so have the timestamps of two units. A timestamp and a date do not; neither do the
text 02139 and the number 2139, or the text True and a boolean. The values of CSV and JSON are texts here.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.nested import column_of, root_of
from ctrpipe.transforms.log.values import is_list
from ctrpipe.transforms.log.whole_numbers import WHOLE_NUMBER, WHOLE_PART, text_of_float
from ctrpipe.transforms.log.words import NUMBER

Types = Mapping[str, pa.DataType]
_NUMBER, _TRUTH, _TEXT = "number", "truth", "text"
# A number that is not written as the text of a number: 02139, +5, .5, 0.50, 12e3, 1.2e+04.
_OTHERWISE = r"(?:[+-]?0\d[\d.]*|\+[\d.]+|-?\.\d+|-?\d+\.\d*[1-9]0+|-?\d+(?:\.\d+)?[eE]\+?\d+)"
WRITTEN_OTHERWISE = f"^{_OTHERWISE}$"
_SIGNED = re.compile(r"[+-]?\d+", re.ASCII)
_TRUTH_WORDS = ("true", "True", "TRUE", "false", "False", "FALSE")  # texts; a boolean is 1 or 0
_WRITTEN_AS_WORDS = f"^(?:{'|'.join(_TRUTH_WORDS)})$"
# Texts of a kind that the values of another kind never have, although they mean the same: (what they mean, which).
_OTHERWISE_BY_KIND = {_NUMBER: ("number", WRITTEN_OTHERWISE), _TRUTH: ("boolean", _WRITTEN_AS_WORDS)}
_OF_TEXT_FILES = pa.string_view()  # the type of each column in CSV and JSON, which no columnar file has


@dataclasses.dataclass(frozen=True)
class _Found:
    """A column's type in a file, and the way its values become texts. Types with equal `written` give equal texts."""

    path: str
    kind: pa.DataType
    written: str

    @property
    def form(self) -> str:
        return "text" if self.kind == _OF_TEXT_FILES else f"of type {self.kind}"

    def beside(self, other: "_Found") -> str:
        return f"{self.form}, and {other.form} in {other.path}"


def types_of(schema: pa.Schema, columns: Iterable[str]) -> dict[str, pa.DataType]:
    """Returns the type of each column, or field of a column, as it is read. Omits columns that the file lacks."""
    empty = schema.empty_table()
    types: dict[str, pa.DataType] = {}
    for name in columns:
        root = root_of(schema, name)
        if root is not None:
            values = empty.column(schema.names.index(root)).combine_chunks()
            types[name] = column_of(pa.record_batch([values], names=[root]), name).type
    return types


def check_types(
    files: Iterable[tuple[str, Types]],
    columns: Iterable[str],
    texts: Callable[[str, Sequence[str]], Iterable[Mapping[str, pa.Array]]],
) -> None:
    """Checks that the files of a log write equal values of each column as equal texts.

    Args:
        files: The path of each file and the types of its columns; no types for a text file.
        columns: The columns whose values are compared as texts.
        texts: Returns the values of columns of a file, given the path and the names. Called only for columns that are
            text in this file and numbers or booleans in another.

    Raises:
        InputError: equal values have different texts.
    """
    by_column: dict[str, dict[str, list[_Found]]] = {name: {} for name in columns}
    for path, types in files:
        for name, ways in by_column.items():
            kind = types.get(name) if types else _OF_TEXT_FILES
            if kind is not None and (written := _written(kind)):
                ways.setdefault(written, []).append(_Found(path, kind, written))
    beside: dict[str, list[tuple[str, _Found, _Found]]] = {}  # by text file: the column, its type, and the other one
    for name, ways in by_column.items():
        first = [places[0] for places in ways.values()]
        for before, one in itertools.combinations(first, 2):
            if not {before.written, one.written} <= {_NUMBER, _TRUTH, _TEXT}:
                raise InputError(
                    f"{one.path}: column {name} is {one.beside(before)}: equal values would be different categories; "
                    "write the column with one type in all files"
                )
        for kind in sorted(ways.keys() & _OTHERWISE_BY_KIND.keys()) if _TEXT in ways else ():
            for way in ways[_TEXT]:
                beside.setdefault(way.path, []).append((name, way, ways[kind][0]))
    for path, pairs in beside.items():
        for columns in texts(path, list(dict.fromkeys(name for name, _, _ in pairs))):
            for name, way, typed in pairs:
                _check_texts(name, columns[name], way, typed)


def _check_texts(name: str, values: pa.Array, of_text: _Found, typed: _Found) -> None:
    meaning, pattern = _OTHERWISE_BY_KIND[typed.written]
    otherwise = values.filter(pc.match_substring_regex(values, pattern))
    if len(otherwise):
        raise InputError(
            f"{of_text.path}: column {name} is {of_text.beside(typed)}: '{excerpt(otherwise[0].as_py())}' is "
            f"another category than the same {meaning} there; write the column with one type in all files"
        )


def number_text(text: str) -> str:
    """Returns the text that the number in a text has as a value of a column of numbers."""
    plain = re.sub(WHOLE_NUMBER, WHOLE_PART, text)
    if not _SIGNED.fullmatch(plain):
        return text_of_float(float(plain))
    digits = plain.lstrip("+-0") or "0"
    return f"-{digits}" if plain.startswith("-") and digits != "0" else digits


def differs(text: str) -> bool:
    """Returns whether a text means a number that has another text as a value of a column of numbers: 02139, 12e3."""
    return bool(NUMBER.fullmatch(text)) and number_text(text) != re.sub(WHOLE_NUMBER, WHOLE_PART, text)


def is_of_numbers(kind: pa.DataType) -> bool:
    """Returns whether a type holds numbers, or lists of them."""
    return _written(kind) == _NUMBER


def is_of_truths(kind: pa.DataType) -> bool:
    """Returns whether a type holds booleans, or lists of them."""
    return _written(kind) == _TRUTH


@dataclasses.dataclass(frozen=True)
class Mixture:
    """By column in JSON, what one part of a log may have and another must not.

    Equal values of a column of categories could be different categories: the number 2139 and the text 02139, or true
    and the text true. A field of an object would be missing without a word where the object's place has a text.

    Attributes:
        numbers: The file and the line of the first number of each column.
        texts: The first number-like text of each column that differs from a number's own text, with its file and line.
        truths: The file and the line of the first true or false of each column.
        words: The first text true or false of each column, with its file and line.
        fields: The file and the line of the first field of an object of each column, such as `ad.id`.
        no_objects: The first value where that object must be, with its file and line.
    """

    numbers: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    texts: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    truths: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    words: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    fields: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    no_objects: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)

    def add(self, other: "Mixture") -> None:
        """Adds the mixture of a later part of the log."""
        for own, further in zip(vars(self).values(), vars(other).values(), strict=True):
            own.update({name: value for name, value in further.items() if name not in own})

    def note(
        self,
        path: str,
        lines: np.ndarray,
        columns: Mapping[str, pa.Array],
        numbers: Mapping[str, int],
        truths: Mapping[str, int],
        separators: Mapping[str, str],
    ) -> None:
        """Notes each column's first number and boolean, and its first text such as 02139 or true, which none becomes.

        Args:
            path: The file.
            lines: The line of each row.
            columns: The values of columns whose values are compared, binary.
            numbers, truths: The first row of each column that has a number, and a boolean.
            separators: The separators of lists.
        """
        for name, row in numbers.items():
            self.numbers.setdefault(name, (path, int(lines[row])))
        for name, row in truths.items():
            self.truths.setdefault(name, (path, int(lines[row])))
        for noted, pattern in ((self.words, "|".join(_TRUTH_WORDS)), (self.texts, _OTHERWISE)):
            for name in columns.keys() - noted.keys():
                if found := _first_match(columns[name], pattern, separators.get(name)):
                    row, text = found
                    noted[name] = (path, int(lines[row]), text)

    def note_fields(
        self,
        path: str,
        lines: np.ndarray,
        fields: Mapping[str, int],
        no_objects: Mapping[str, tuple[int, str]],
    ) -> None:
        """Notes the first fields of objects, and what else lies in an object's place.

        Args:
            path: The file.
            lines: The line of each row.
            fields: The first row of each column that has one.
            no_objects: The same, with the value and its path in words.
        """
        for name, row in fields.items():
            self.fields.setdefault(name, (path, int(lines[row])))
        for name, (row, text) in no_objects.items():
            self.no_objects.setdefault(name, (path, int(lines[row]), text))

    def check(self) -> None:
        """Raises InputError if a column has both: equal values would be two categories, or values be missing."""
        for error in self.found():
            raise error

    def found(self) -> Iterator[InputError]:
        """Yields an error for each column that has both."""
        for name in sorted(self.fields.keys() & self.no_objects.keys()):
            (path, line), (other, other_line, text) = self.fields[name], self.no_objects[name]
            where = f"line {line}" if path == other else f"{path}, line {line}"
            yield InputError(
                f"{other}: line {other_line}: {text}, and an object in {where}: {name} would be missing here; write an "
                "object or null in every row"
            )
        for kind, values, texts in (("a number", self.numbers, self.texts), ("true or false", self.truths, self.words)):
            for name in sorted(values.keys() & texts.keys()):
                (path, line), (of_text, text_line, text) = values[name], texts[name]
                where = f"line {text_line}" if of_text == path else f"{of_text}, line {text_line}"
                yield InputError(
                    f"{path}: line {line}: column {name} is {kind}, and the text '{text}' in {where}: equal values "
                    "would be different categories; write all as texts, or none"
                )


def _first_match(values: pa.Array, pattern: str, separator: str | None) -> tuple[int, str] | None:
    """Returns the first value that matches a pattern, or has an element that does, with its row; None without one.

    Args:
        values: The values, binary.
        pattern: A regular expression for a whole value.
        separator: Separates the elements of a list; None for single values.
    """
    between = "" if separator is None else f"|{re.escape(separator)}"
    places = pc.match_substring_regex(values, f"(?:^{between})(?:{pattern})(?:${between})")
    row = pc.index(places, True).as_py()
    return (row, excerpt(values[row].as_py())) if row >= 0 else None


def _written(kind: pa.DataType) -> str:
    """Returns a word for how the values of a type become texts; "" for a type without values."""
    while is_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return ""
    if pa.types.is_boolean(kind):
        return _TRUTH
    if any(is_number(kind) for is_number in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
        return _NUMBER
    if pa.types.is_time(kind):
        return "time of day"
    if pa.types.is_timestamp(kind):
        return f"moment {kind.tz}"
    are_texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return _TEXT if any(is_text(kind) for is_text in are_texts) else str(kind)
