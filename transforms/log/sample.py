"""Reads the first rows of a log and infers its format, delimiter and header."""

import collections
import csv
import dataclasses
import io
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.bracketed import begins_a_list, elements_in_brackets
from ctrpipe.transforms.log.derived.weighted import BEFORE
from ctrpipe.transforms.log.files import (
    first_bytes,
    input_errors,
    no_rows,
    partition_values,
    stored_head,
)
from ctrpipe.transforms.log.first_bytes import (
    HEAD_BYTES,
    ONE_BYTE_ENCODING,
    check_text,
    is_json_array,
    is_json_over_lines,
    is_no_row,
    json_document,
    wide_encoding,
)
from ctrpipe.transforms.log.footers import is_footer
from ctrpipe.transforms.log.formats.columnar import Columnar, first_columns
from ctrpipe.transforms.log.formats.json_array import first_objects
from ctrpipe.transforms.log.formats.json_lines import parse_objects
from ctrpipe.transforms.log.formats.notation import Notation
from ctrpipe.transforms.log.formats.registry import columnar_of
from ctrpipe.transforms.log.kinds.guess import ColumnSample
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.lines import is_utf8
from ctrpipe.transforms.log.nested import DOT, leaves
from ctrpipe.transforms.log.spec import Label, LogSpec
from ctrpipe.transforms.log.values import as_binary, is_list, join_lists
from ctrpipe.transforms.log.weighted import pairs_as_lists
from ctrpipe.transforms.log.words import NUMBER, USUAL_MISSING

ROWS = 10_000
_BYTES = 1 << 23
_DELIMITERS = ("\t", "::", "||", ",", ";", "|", "\x01")
_SHARE = 0.99  # of a column's values that are numbers
_NEARLY = 0.02  # a delimiter may fit this share of the lines less than another
_DECIMALS = {sign: re.compile(rf"[+-]?\d*(?:[{sign}]\d+)?(?:[eE][+-]?\d+)?", re.ASCII) for sign in ".,"}
_FEWEST_ROWS = 20  # in which values repeat
_LEARNERS = {
    "LIBSVM or LIBFFM": re.compile(rb"[+-]?\d+(\.\d+)?([ \t]+qid:\d+)?([ \t]+\d+:(\d+:)?[^\s:|]+)+\s*(#.*)?"),
    "Vowpal Wabbit": re.compile(rb"[+-]?\d+(\.\d+)?( [^\s|]+)*( \|[^\s|]+( [^\s|]+)+)+\s*"),
}
LIST_SEPARATOR = "|"
_FEWEST_KEYS = 8  # of objects, before those with ever other keys are maps and not records
_FEWEST_MAPS = 20  # objects of one name, likewise
_INNER_SIGNS = (",", ";", "/", "~")  # for lists in lists
_CRITEO = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
_NO_LABEL = "(none)"  # placeholder for files without a label
_HEX = re.compile(r"[0-9a-f]{8}")
_ESCAPED = re.compile(r"\\.")


@dataclasses.dataclass(frozen=True)
class LogSample:
    """The first rows of a log.

    Attributes:
        data: Keys of `data` that describe how to read the file, such as `format` and `header`.
        columns: Values as text by column name; "" for a missing value.
        lists: Columns whose values are lists in the file; their elements are joined by LIST_SEPARATOR.
        within: By column of nested lists, the separator of the inner lists.
        maps: Columns of maps from values to numbers, converted to lists of `value:number` (BEFORE is the colon).
        pointed: Columns whose decimal commas were replaced by points.
        bracketed: Columns whose lists are written in brackets in the file, `['a', 'b']`.
        unsure: A sentence for each uncertain guess about the format.
    """

    data: dict[str, object]
    columns: dict[str, list[str]]
    lists: frozenset[str] = frozenset()
    unsure: tuple[str, ...] = ()
    within: dict[str, str] = dataclasses.field(default_factory=dict)
    maps: frozenset[str] = frozenset()
    pointed: frozenset[str] = frozenset()
    bracketed: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), []))

    def with_values(self, column: str) -> "LogSample":
        """Returns the rows that have a value in a column."""
        keep = [value != "" and value not in USUAL_MISSING for value in self.columns[column]]
        columns = {name: list(itertools.compress(values, keep)) for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=columns)


def read_sample(path: str, delimiter: str | None = None) -> LogSample:
    """Returns the first rows of a file.

    Args:
        path: The file.
        delimiter: The delimiter of a text file. None: the delimiter that fits best.

    Raises:
        InputError: the file cannot be read, has no rows or is not a log, or a delimiter is given for another format.
    """
    with input_errors(path):
        head = stored_head(path)
    columnar = columnar_of(head)
    sample = _of_columns(path, columnar) if columnar else _of_text(path, delimiter)
    if delimiter and sample.data["format"] not in ("tsv", "csv"):
        raise InputError(f"{path}: is {sample.data['format']}, which has no delimiter; leave it out")
    if not sample.rows:
        raise no_rows(path)
    sample = _without_brackets(sample)
    said = partition_values(path)
    if not said:
        return sample
    folders = {column: [(value or b"").decode("utf-8", "replace")] * sample.rows for column, value in said.items()}
    hidden = [
        _hidden_by_folder(name, sample.columns[name], values[0])
        for name, values in folders.items()
        if name in sample.columns
    ]
    return dataclasses.replace(
        sample,
        data={**sample.data, "partitions": list(said)},
        columns={**sample.columns, **folders},
        unsure=(*sample.unsure, *filter(None, hidden)),
    )


def _hidden_by_folder(column: str, values: Sequence[str], of_folder: str) -> str:
    """Returns a warning if a file's values of a column differ from its folder name; "" if not."""
    other = next((value for value in values if value != of_folder), None)
    if other is None:
        return ""
    return (
        f"{column}: '{excerpt(other)}' in the file, and '{excerpt(of_folder)}' by the name of its folder, which is "
        "what is read. For the file's own values take it out of data.partitions."
    )


def spec_of_texts(
    sample: LogSample, label: Label | None = None, names: Sequence[str] = (), ids: Sequence[str | None] = ()
) -> LogSpec:
    """Returns a log description that reads all columns except the label as text.

    Args:
        sample: The first rows of one of the files.
        label: The label; None to read files without one.
        names: Column names, in order, instead of generated ones.
        ids: The columns whose values are compared, such as keys, users and items. 123.0 equals 123 in these columns.

    Raises:
        InputError: `names` is given, but the files have a header or another number of columns.
    """
    columns = list(sample.columns)
    if names and "columns" not in sample.data:
        raise InputError(f"columns: the files name theirs: {excerpt(', '.join(columns))}; leave columns out")
    if names and len(names) != len(columns):
        raise InputError(
            f"columns: {len(names)} names for {len(columns)} columns, as {excerpt(', '.join(_first(sample)))}"
        )
    columns = list(names) or columns
    data = {**sample.data, "labels": {"event": label.model_dump() if label else _NO_LABEL}}
    if "columns" in data:
        data["columns"] = columns if label else [*columns, _NO_LABEL]
    read = [name for name in columns if label is None or name != label.column]
    single = [name for name in read if name not in sample.lists]
    several: dict[str, Any] = {"kind": "multivalent", "max_length": 1, "whole_numbers": False}
    features: list[dict[str, Any]] = [
        {"kind": "categorical", "columns": list(group), "whole_numbers": is_id}
        for is_id, group in itertools.groupby(single, ids.__contains__)
    ]
    if lists := sorted(sample.lists - sample.maps):
        features.append({**several, "columns": lists})
    if sample.maps:
        features.append({**several, "columns": sorted(sample.maps), "weights": BEFORE})
    return LogSpec.model_validate({"data": data, "features": features})


def _first(sample: LogSample) -> list[str]:
    return [values[0] for values in sample.columns.values()]


def _of_columns(path: str, kind: type[Columnar]) -> LogSample:
    columns: dict[str, list[str]] = {}
    lists, maps, unsure = set(), set(), []
    within: dict[str, str] = {}
    for name, column in first_columns(kind, path, ROWS).items():
        values = column()
        try:
            if _maps_to_numbers(values.type):
                maps.add(name)
                lists.add(name)
                texts = join_lists(pairs_as_lists(values, BEFORE, name, path), LIST_SEPARATOR, name, path, {})
            elif is_list(values.type):
                lists.add(name)
                if is_list(values.type.value_type):
                    inner = pc.list_flatten(pc.list_flatten(values))
                    within[name] = _inner_sign(map(str, inner.to_pylist()))
                texts = join_lists(values, LIST_SEPARATOR, name, path, {}, within=within.get(name))
            else:
                texts = as_binary(values, name, path)
        except (InputError, pa.ArrowException):
            lists.discard(name)
            maps.discard(name)
            within.pop(name, None)
            unsure.append(f"{name} of type {values.type} is left out: it does not have a single value per row.")
            continue
        columns[name] = [(value or b"").decode("utf-8", "replace") for value in texts.to_pylist()]
    told = (*unsure, *_flattened(columns))
    return LogSample({"format": kind.name.lower()}, columns, frozenset(lists), told, within, frozenset(maps))


def _maps_to_numbers(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return pa.types.is_map(kind) and any(is_number(kind.item_type) for is_number in tests)


def _inner_sign(values: Iterable[str]) -> str:
    """Returns the first possible separator that occurs in no element of the inner lists."""
    used = {sign for value in values for sign in _INNER_SIGNS if sign in value}
    return next((sign for sign in _INNER_SIGNS if sign not in used), _INNER_SIGNS[0])


def _flattened(names: Iterable[str]) -> list[str]:
    """Returns a sentence about the fields of nested objects; an empty list without such fields."""
    inner = [name for name in names if DOT in name]
    if not inner:
        return []
    parent, _, field = inner[0].rpartition(DOT)
    return [f"Nested objects are flattened: {inner[0]} is the field {field} of {parent}, in requests too."]


def _without_brackets(sample: LogSample) -> LogSample:
    """Converts bracketed lists to lists. Bracketed vectors are left unchanged, because they are read directly."""
    unwrapped = {}
    for name, values in sample.columns.items():
        present = [value for value in values if value and value not in USUAL_MISSING]
        if name in sample.lists or not present or not all(map(begins_a_list, present[:_FEWEST_ROWS])):
            continue
        lists = [elements_in_brackets(value) for value in present]
        if sum(one is None for one in lists) > (1 - _SHARE) * len(lists) or max(len(one or ()) for one in lists) < 2:
            continue
        has_sign = any(LIST_SEPARATOR in element for one in lists for element in one or ())
        if has_sign or Vector.guess(ColumnSample(name, values)):
            continue
        unwrapped[name] = [
            LIST_SEPARATOR.join(elements_in_brackets(value) or [""]) if begins_a_list(value) else value
            for value in values
        ]
    return dataclasses.replace(
        sample,
        columns={**sample.columns, **unwrapped},
        lists=sample.lists | frozenset(unwrapped),
        bracketed=frozenset(unwrapped),
    )


def _of_text(path: str, delimiter: str | None) -> LogSample:
    text = first_bytes(path, _BYTES)
    head = text[:HEAD_BYTES]
    encoding = wide_encoding(head) or "utf-8"
    check_text(path, head, encoding)
    if is_json_over_lines(head):
        raise json_document(path)
    unsure = []
    if encoding == "utf-8" and _is_of_one_byte(text):
        encoding = ONE_BYTE_ENCODING
        unsure.append(f"The text is not UTF-8, and is read as {encoding}: if signs are wrong, write data.encoding.")
    if encoding != "utf-8":
        text = first_bytes(path, _BYTES, encoding)
    sample = _of_utf8(path, text, delimiter)
    said = {"encoding": encoding} if encoding != "utf-8" else {}
    return dataclasses.replace(sample, data={**sample.data, **said}, unsure=(*unsure, *sample.unsure))


def _is_of_one_byte(text: bytes) -> bool:
    """Returns whether most lines with non-ASCII bytes are invalid UTF-8."""
    lines = [line for line in text.split(b"\n", ROWS)[:-1] if not line.isascii()]  # the last one may be cut
    return 2 * sum(not is_utf8(line) for line in lines) > len(lines)


def _of_utf8(path: str, text: bytes, delimiter: str | None) -> LogSample:
    if is_json_array(text[:HEAD_BYTES]):
        objects = first_objects(path, text)[:ROWS]
        return dataclasses.replace(_of_json(objects), data={"format": "json"})
    if len(text) >= _BYTES and b"\n" in text:
        text = text[: text.rindex(b"\n") + 1]  # the last line may be cut
    lines = [line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    lines = [line for line in lines if line][: ROWS + 1]
    if not lines:
        raise no_rows(path)
    if lines[0].lstrip().startswith(b"{"):
        sample = _of_json(lines[:ROWS])
        if not sample.columns:
            _check_are_objects(path, lines)
        return sample
    if delimiter is None:
        _check_is_table(path, lines)
    return _of_table(path, b"\n".join(lines) + b"\n", lines, delimiter)


def _check_are_objects(path: str, lines: Sequence[bytes]) -> None:
    """Raises InputError if the first line begins as an object and is none, as if a comma ends it."""
    _, wrong = parse_objects([line for line in lines[:1] if is_utf8(line)], [], {})
    if wrong:
        raise InputError(
            f"{path}: line 1: {wrong[0]}; write one object per line (data.format: jsonl) or an array of objects "
            "(data.format: json)"
        )


def _check_is_table(path: str, lines: Sequence[bytes]) -> None:
    """Raises InputError for a learner's own format (such as LIBSVM), whose values have no columns."""
    for program, form in _LEARNERS.items():
        if all(map(form.fullmatch, lines[:_FEWEST_ROWS])):
            raise InputError(
                f"{path}: lines as '{excerpt(lines[0].decode('utf-8', 'replace'), 40)}' are input of {program}, whose "
                "values have no columns; write a column for each field, as CSV, TSV, JSON or Parquet"
            )


def _of_json(objects: list[bytes]) -> LogSample:
    names: dict[str, None] = {}
    lists, mixed = set(), set()
    nested: dict[str, set[str]] = {}
    read = list(_objects(objects))
    maps = _maps(read)
    for row in read:
        fields = {}
        for name, value in leaves(row):
            owner = _map_of(name, maps)
            names[owner or name] = None
            if owner is None:
                fields[name] = value
        lists |= {name for name, value in fields.items() if isinstance(value, list)}
        for name, value in fields.items():
            elements = value if isinstance(value, list) else []
            inner = [one for each in elements if isinstance(each, list) for one in each]
            if inner:
                nested.setdefault(name, set()).update(map(str, inner))
            if any(isinstance(one, dict) for one in elements) or any(isinstance(one, list | dict) for one in inner):
                mixed.add(name)
    lists |= maps
    known = [name for name in _without_empty_parents(names) if name not in mixed]
    within = {name: _inner_sign(values) for name, values in nested.items() if name in known}
    lines, separators = [text for text in objects if is_utf8(text)], dict.fromkeys(lists, LIST_SEPARATOR)
    parsed, wrong = parse_objects(lines, known, separators, weights=dict.fromkeys(maps, BEFORE), within=within)
    columns = {
        name: [(value or b"").decode("utf-8", "replace") for value in values.to_pylist()]
        for name, values in parsed.items()
    }
    told = [f"{name} is left out: it does not have a single value per row." for name in sorted(mixed)]
    told += _lost_parents(read, names, {*known, *mixed})
    if wrong:
        told.append(f"{len(wrong):,} of {len(lines):,} rows are left out, as the first of them: {wrong[min(wrong)]}.")
    told += _flattened(columns)
    return LogSample({"format": "jsonl"}, columns, frozenset(lists & set(known)), tuple(told), within, frozenset(maps))


def _objects(texts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yields the objects of the lines that have one."""
    for text in texts:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _maps(rows: Sequence[dict[str, Any]]) -> set[str]:
    """Returns the names of objects that are maps from values to numbers: each object has few of all their keys."""
    keys: dict[str, collections.Counter[str]] = {}
    total: collections.Counter[str] = collections.Counter()
    others: set[str] = set()
    for row in rows:
        for name, inner in _inner_objects(row):
            keys.setdefault(name, collections.Counter()).update(list(inner))
            total[name] += bool(inner)
            if any(isinstance(value, bool) or not isinstance(value, int | float) for value in inner.values()):
                others.add(name)
    return {
        name
        for name, of_column in keys.items()
        if name not in others
        and len(of_column) >= _FEWEST_KEYS
        and total[name] >= _FEWEST_MAPS
        and 2 * of_column.total() < len(of_column) * total[name]
    }


def _inner_objects(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"{before}{key}", value
            yield from _inner_objects(value, f"{before}{key}{DOT}")


def _map_of(name: str, maps: Iterable[str]) -> str | None:
    """Returns the map that has this name or contains it as a field."""
    return next((one for one in maps if name == one or name.startswith(f"{one}{DOT}")), None)


def _without_empty_parents(names: Iterable[str]) -> list[str]:
    """Returns the names without objects that are null or empty in some rows. Their fields have names of their own."""
    parents = {DOT.join(name.split(DOT)[:size]) for name in names for size in range(1, name.count(DOT) + 1)}
    return [name for name in names if name not in parents]


def _lost_parents(rows: Iterable[dict[str, Any]], names: Iterable[str], kept: Collection[str]) -> Iterator[str]:
    """Yields a sentence about each omitted name that has both values and objects with fields."""
    for name in (name for name in names if name not in kept):
        values = (dict(leaves(row)).get(name) for row in rows)
        if (value := next((each for each in values if each not in (None, "", {}, [])), None)) is not None:
            field = next(each for each in names if each.startswith(f"{name}{DOT}"))
            yield (
                f"{name} is left out: it is '{excerpt(str(value))}' in some rows, and has the field {field} in others."
            )


def _of_table(path: str, text: bytes, lines: list[bytes], delimiter: str | None, trims: bool = False) -> LogSample:
    original = text, lines
    decoded = [line.decode("utf-8", "replace") for line in lines]
    delimiter = delimiter or _delimiter(decoded)
    unsure = []
    data: dict[str, object] = {"format": "tsv" if delimiter == "\t" else "csv"}
    if delimiter not in ("\t", ","):
        data["delimiter"] = delimiter
    escapes = _has_escapes(decoded, delimiter)
    trims = trims or _has_blanks(decoded, delimiter) or _has_padded_numbers(decoded, delimiter)
    if escapes:
        data["escape"] = "\\"
        unsure.append("Backslashes are read as escapes: if they are part of the values, remove data.escape.")
    if trims:
        data["trim_spaces"] = True
    notation = Notation(delimiter.encode(), delimiter != "\t", escapes, trims)
    if escapes or trims:
        text = notation.prepared(text)
        lines = text.split(b"\n")[:-1]
        decoded = [line.decode("utf-8", "replace") for line in lines]
    rows = [line.split("\t") for line in decoded]
    if delimiter != "\t":
        rows = _unquoted(decoded, delimiter)
        whole = list(itertools.islice(_records(io.StringIO(text.decode("utf-8", "replace")), delimiter), ROWS))
        if any("\n" in value for row in whole for value in row) and _share(whole) > _share(rows):
            rows = whole
            data["quoted_line_breaks"] = True
    width = collections.Counter(map(len, rows)).most_common(1)[0][0]
    if not is_utf8(text):
        unsure.append("Some lines are not UTF-8 and will be malformed rows: convert the log first.")
    if len(rows) > 1 and len(lines) <= ROWS and is_footer(decoded[0], decoded[-1], delimiter):
        unsure.append(f"The last line, '{excerpt(lines[-1], 60)}', looks like a footer: remove it from the file.")
        rows = rows[:-1]
    if repeats := _repeated_headers(rows):
        further = f", and in {len(repeats) - 1:,} more" if len(repeats) > 1 else ""
        unsure.append(
            f"The header stands in line {repeats[0] + 1:,} again{further}: a run counts these lines as "
            "malformed rows; remove them from the file."
        )
        rows = [rows[0], *(row for row in rows[1:] if row != rows[0])]
    good = [row for row in rows if len(row) == width]
    if len(rows[0]) != width and is_no_row(lines[0]):
        raise InputError(f"{path}: line 1 is '{excerpt(lines[0])}'; remove the lines above the header or the first row")
    if len(rows[0]) == width - 1 and _is_header(["", *rows[0]], [rows[0], *good]):
        raise InputError(
            f"{path}: the header names {width - 1} columns, and the rows have {width}: the first, which numbers the "
            "rows, has no name; give it one (in R, write.csv with row.names = FALSE leaves it out)"
        )
    if len(rows[0]) == width - 1 and not any(row[-1] for row in good) and _is_header(rows[0], [rows[0], *good]):
        raise InputError(
            f"{path}: the header names {width - 1} columns, and each row ends with a further delimiter; end the header "
            "with one too, or remove those of the rows"
        )
    header = _is_header(rows[0], good) if len(rows[0]) == width else False
    if not header and len(rows[0]) == width and (place := _unnamed_column(rows[0], good)):
        raise InputError(f"{path}: line 1 has no name for column {place}; give it one")
    if len(rows[0]) != width and len(good) > 1 and all(good[0]) and _is_header(good[0], good):
        place = rows.index(good[0]) + 1
        raise InputError(f"{path}: line {place} seems to be the header; remove the lines above it")
    if header and not trims and delimiter != "\t" and any(name != name.strip(" ") for name in rows[0]):
        return _of_table(path, *original, delimiter, trims=True)
    names = rows[0] if header else _names(good)
    if header:
        data["header"] = True
        good = good[1:]
    else:
        data["columns"] = names
        of_criteo = names is _CRITEO
        named = (
            "its 40 columns are taken for Criteo's"
            if of_criteo
            else "the names of the columns are made up; give them their own"
        )
        unsure.append(f"The file has no header: {named}.")
    values = list(zip(*good[:ROWS], strict=True)) or [()] * width
    repeated = [name for name, count in collections.Counter(names).items() if count > 1 and name]
    if repeated:
        raise InputError(f"{path}: the header names {excerpt(', '.join(repeated))} twice; rename one of them")
    columns = {name: list(column) for name, column in zip(names, values, strict=True) if name}
    if escapes:
        columns = {name: _values(column, notation) for name, column in columns.items()}
    if len(columns) < width:
        unsure.append("A column without a name is left out: it is empty, or numbers the rows, as the index of pandas.")
    return _with_points(LogSample(data, columns, unsure=tuple(unsure)))


def _has_escapes(lines: list[str], delimiter: str) -> bool:
    r"""Returns whether a text has escaped delimiters, \" in quoted values, or \N for a missing value between tabs."""
    if _has_escaped_delimiters(lines, delimiter):
        return True
    if delimiter == "\t":
        return any("\\N" in line.split("\t") for line in lines if "\\N" in line)
    inside = re.compile(rf'(?<!\\)\\"(?!\s*({re.escape(delimiter)}|$))')
    return any('"' in line and inside.search(line) for line in lines)


def _has_escaped_delimiters(lines: list[str], delimiter: str) -> bool:
    """Returns whether more lines have the usual number of values if a backslash escapes the delimiter."""
    if not any(f"\\{delimiter}" in line for line in lines):
        return False
    without = [_ESCAPED.sub("_", line) for line in lines]
    return _share(_unquoted(without, delimiter)) > _share(_unquoted(lines, delimiter))


def _has_blanks(lines: list[str], delimiter: str) -> bool:
    """Returns whether almost every value except a row's first begins with a blank."""
    if delimiter == "\t":
        return False
    rests = [line.split(delimiter)[1:] for line in lines]
    return sum(bool(rest) and all(value.startswith(" ") for value in rest) for rest in rests) >= _SHARE * len(rests)


def _has_padded_numbers(lines: list[str], delimiter: str) -> bool:
    """Returns whether a column's values are numbers only after removing the blanks around them."""
    if delimiter == "\t":
        return False
    rows = [line.split(delimiter) for line in lines[1:]]
    width = collections.Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    for column in zip(*(row for row in rows if len(row) == width), strict=True):
        present = [value for value in column if value.strip(" ")]
        padded = [value for value in present if value[0] == " " or value[-1] == " "]
        if len(padded) > (1 - _SHARE) * len(present) and _are_all_numbers(padded):
            if _are_all_numbers(present):
                return True
    return False


def _are_all_numbers(values: Sequence[str]) -> bool:
    """Returns whether almost all values are numbers with or without blanks around them."""
    numbers = sum(_is_number_or_missing(value.strip(" ")) for value in values)
    return numbers >= _SHARE * len(values)


def _values(parsed: Sequence[str], notation: Notation) -> list[str]:
    """Returns the values of parsed fields; "" for a missing value."""
    values = (notation.value(value.encode()).decode("utf-8", "replace") for value in parsed)
    return ["" if value in notation.null_values else value for value in values]


def _with_points(sample: LogSample) -> LogSample:
    """Replaces decimal commas by points, and sets `data.decimal` if there are any.

    A log has one decimal separator. If other columns have decimal points, the columns with commas get their own
    `written` form.
    """
    columns = sample.columns
    with_commas = [name for name, values in columns.items() if _are_numbers(values, ",")]
    sure = [name for name in with_commas if not may_be_thousands(columns[name], ",")]
    with_points = [name for name, values in columns.items() if _are_numbers(values, ".")]
    if not sure or any(not may_be_thousands(columns[name], ".") for name in with_points):
        return sample
    example = next(value for value in columns[sure[0]] if "," in value)
    pointed = {name: [value.replace(",", ".") for value in columns[name]] for name in with_commas}
    return LogSample(
        data={**sample.data, "decimal": ","},
        columns=columns | pointed,
        pointed=frozenset(pointed),
        unsure=(*sample.unsure, f"Numbers have decimal commas, as {sure[0]}: {example}."),
    )


def _are_numbers(values: Sequence[str], sign: str) -> bool:
    """Returns whether all present values are numbers, and some have the decimal separator `sign` between digits."""
    present = [value for value in values if value and value not in USUAL_MISSING]
    numbers = [value for value in present if _DECIMALS[sign].fullmatch(value)]
    return any(sign in value for value in numbers) and len(numbers) >= _SHARE * len(present)


def may_be_thousands(values: Sequence[str], sign: str) -> bool:
    """Returns whether `sign` may be a thousands separator in numbers, as in 1,234."""
    thousands = re.compile(rf"[+-]?[1-9]\d{{0,2}}([{sign}]\d{{3}})+")
    return all(thousands.fullmatch(value) for value in values if sign in value)


def _delimiter(lines: list[str]) -> str:
    """Returns the delimiter that gives most lines the same number of values.

    Among nearly equal candidates, prefers a delimiter that gives the first line the usual number of values, then a
    delimiter that is not a decimal comma, then the best.
    """
    widths = {sign: collections.Counter(map(len, _unquoted(lines, sign))) for sign in _DELIMITERS}
    usual = {sign: counts.most_common(1)[0] for sign, counts in widths.items()}
    shares = {sign: rows / len(lines) if width > 1 else 0.0 for sign, (width, rows) in usual.items()}
    best = max(shares.values())
    likely = [sign for sign, share in shares.items() if share and share >= best - _NEARLY]
    if any("|" in line.replace("||", "") for line in lines):  # then two are an empty value between two delimiters
        likely = [sign for sign in likely if sign != "||"]
    alike = [sign for sign in likely if len(_unquoted(lines[:1], sign)[0]) == usual[sign][0]]
    likely = alike or likely or ["\t"]
    if "," in likely and (others := [sign for sign in likely if sign != "," and _has_decimal_commas(lines, sign)]):
        likely = others
    return max(likely, key=lambda sign: shares[sign])


def _has_decimal_commas(lines: list[str], delimiter: str) -> bool:
    values = [value for row in _unquoted(lines[1:], delimiter) for value in row if "," in value]
    numbers = sum(_DECIMALS[","].fullmatch(value) is not None for value in values)
    return bool(values) and numbers >= _SHARE * len(values)


def _unquoted(lines: list[str], delimiter: str) -> list[list[str]]:
    """Returns the values of each line without their quotes. With a tab as delimiter, quotes are kept."""
    if delimiter == "\t":
        return [line.split(delimiter) for line in lines]
    return [next(_records([line], delimiter), []) if '"' in line else line.split(delimiter) for line in lines]


def _records(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Yields the values of each record. An ASCII separator character replaces a delimiter of several characters."""
    one = delimiter if len(delimiter) == 1 else "\x1f"
    csv.field_size_limit(max(csv.field_size_limit(), _BYTES))  # a reader takes 131,072 characters a value otherwise
    for values in csv.reader((line.replace(delimiter, one) for line in lines), delimiter=one):
        yield [value.replace(one, delimiter) for value in values]


def _share(rows: list[list[str]]) -> float:
    return collections.Counter(map(len, rows)).most_common(1)[0][1] / len(rows)


def _is_header(first: list[str], rows: list[list[str]]) -> bool:
    """Returns whether the first line is a header.

    A header's values are not numbers and do not occur in the column below. One column may contain its own name if it
    has two distinct words, as a column `click` with `click` and `noclick`, or if another column has numbers alone. One
    name may be absent, above an empty column or row numbers.
    """
    return _names_columns(first, rows) and all(
        not any(values) or are_row_numbers(values) for values in _without_name(first, rows).values()
    )


def _repeated_headers(rows: list[list[str]]) -> list[int]:
    """Returns the indices of the rows that repeat the header, as after joining files with `cat`."""
    first, *others = rows
    places = [place for place, row in enumerate(others, 1) if row == first]
    if not places or not _is_header(
        first, [first, *(row for row in others if row != first and len(row) == len(first))]
    ):
        return []
    return places


def _unnamed_column(first: list[str], rows: list[list[str]]) -> int | None:
    """Returns the index of the first column that has values but no name in the header; None if there is none."""
    if len(rows) < 2 or not _names_columns(first, rows):
        return None
    unnamed = _without_name(first, rows)
    return next((place + 1 for place, values in unnamed.items() if any(values) and not are_row_numbers(values)), None)


def _without_name(first: list[str], rows: list[list[str]]) -> dict[int, list[str]]:
    """Returns the values of each column without a name in the first line, by column index."""
    return {place: [row[place] for row in rows[1:]] for place, name in enumerate(first) if not name}


def _names_columns(first: list[str], rows: list[list[str]]) -> bool:
    """Returns whether the first line has names and no values. An absent name fits both."""
    if any(map(_is_number_or_missing, first)) or not any(first):
        return False
    others = rows[1:]
    if not others:
        return len(set(first)) == len(first) and all(first)
    known = [{row[place] for row in others} for place in range(len(first))]
    named = [(name in values, values) for name, values in zip(first, known, strict=True) if name]
    alike = [values for is_alike, values in named if is_alike]
    if not alike:
        return True
    # In a few rows a first line of values may be unlike the others by chance.
    if len(others) < _FEWEST_ROWS or len(alike) > 1 or len(named) < 2 or len(set(first)) < len(first):
        return False
    return len(alike[0]) <= 2 or any(_are_numbers_or_missing(values) for is_alike, values in named if not is_alike)


def _are_numbers_or_missing(values: Collection[str]) -> bool:
    return any(map(NUMBER.fullmatch, values)) and all(not value or _is_number_or_missing(value) for value in values)


def are_row_numbers(values: Sequence[str]) -> bool:
    """Returns whether values are distinct whole numbers, one per row, like a pandas index."""
    return len(set(values)) == len(values) > 0 and all(value.isascii() and value.isdigit() for value in values)


def _is_number_or_missing(text: str) -> bool:
    return bool(NUMBER.fullmatch(text)) or text in USUAL_MISSING


def _names(rows: list[list[str]]) -> list[str]:
    """Returns column names for a file without a header: Criteo's names if the layout matches, else c1, c2, ..."""
    width = len(rows[0])
    if width == len(_CRITEO) and all(row[0] in "01" for row in rows[:100]):
        hashes = [value for row in rows[:100] for value in row[14:] if value]
        if all(map(_HEX.fullmatch, hashes)):
            return _CRITEO
    return [f"c{number}" for number in range(1, width + 1)]
