"""Reads the first rows of a log and infers its format, delimiter and header."""

import collections
import csv
import dataclasses
import io
import itertools
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.transforms.log.files import first_bytes, no_rows, open_stored, partition_values
from ctrpipe.transforms.log.formats.json_lines import parse_objects
from ctrpipe.transforms.log.lines import is_utf8
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.spec import NUMBER, USUAL_MISSING, Label, LogSpec
from ctrpipe.transforms.log.values import as_binary, is_list, join_lists

ROWS = 10_000
_BYTES = 1 << 23
_DELIMITERS = "\t,;|"
_LIST_SEPARATOR = "|"
_CRITEO = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
_NO_LABEL = "(none)"  # placeholder for files without a label
_HEX = re.compile(r"[0-9a-f]{8}")


@dataclasses.dataclass(frozen=True)
class LogSample:
    """The first rows of a log.

    Attributes:
        data: Keys of `data` that describe how to read the file, such as `format` and `header`.
        columns: Values as text by column name; "" for a missing value.
        lists: Columns whose values are lists in the file.
        unsure: A sentence for each uncertain guess about the format.
    """

    data: dict[str, object]
    columns: dict[str, list[str]]
    lists: frozenset[str] = frozenset()
    unsure: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), []))


def read_sample(path: str) -> LogSample:
    """Returns the first rows of a file.

    Raises:
        InputError: the file cannot be read, has no rows, or is not a log.
    """
    name = pathlib.Path(path).name.removesuffix(".gz").removesuffix(".zst")
    sample = _of_parquet(path) if name.endswith((".parquet", ".pq")) else _of_text(path)
    if not sample.rows:
        raise no_rows(path)
    said = partition_values(path)
    if not said:
        return sample
    folders = {column: [(value or b"").decode("utf-8", "replace")] * sample.rows for column, value in said.items()}
    return dataclasses.replace(
        sample, data={**sample.data, "partitions": list(said)}, columns={**sample.columns, **folders}
    )


def spec_of_texts(sample: LogSample, label: Label | None = None, names: Sequence[str] = ()) -> LogSpec:
    """Returns a log description that reads all columns except the label as text.

    Args:
        sample: The first rows of one of the files.
        label: The label; None to read files without one.
        names: Column names, in order, instead of generated ones.

    Raises:
        InputError: `names` is given, but the files have a header or another number of columns.
    """
    columns = list(sample.columns)
    if names and "columns" not in sample.data:
        raise InputError(f"columns: the files name theirs: {', '.join(columns)}; leave columns out")
    if names and len(names) != len(columns):
        raise InputError(f"columns: {len(names)} names for {len(columns)} columns, as {', '.join(_first(sample))}")
    columns = list(names) or columns
    data = {**sample.data, "labels": {"event": label.model_dump() if label else _NO_LABEL}}
    if "columns" in data:
        data["columns"] = columns if label else [*columns, _NO_LABEL]
    read = [name for name in columns if label is None or name != label.column]
    single = [name for name in read if name not in sample.lists]
    features: list[dict[str, Any]] = [{"kind": "categorical", "columns": single}] if single else []
    if sample.lists:
        features.append({"kind": "multivalent", "columns": sorted(sample.lists), "max_length": 1})
    return LogSpec.model_validate({"data": data, "features": features})


def _first(sample: LogSample) -> list[str]:
    return [values[0] for values in sample.columns.values()]


def _of_parquet(path: str) -> LogSample:
    try:
        with open_stored(path) as source, pa.parquet.ParquetFile(source) as file:
            batch = next(file.iter_batches(ROWS), None)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({one_line(error, 200)})") from error
    columns: dict[str, list[str]] = {}
    lists, unsure = set(), []
    if batch is None:
        return LogSample({}, {})
    for name in batch.schema.names:
        values = plain(batch.column(name))
        try:
            if is_list(values.type):
                lists.add(name)
                texts = join_lists(values, _LIST_SEPARATOR, name, path, {})
            else:
                texts = as_binary(values, name, path)
        except (InputError, pa.ArrowException):
            unsure.append(f"{name} of type {values.type} is left out: it has no single value a row.")
            continue
        columns[name] = [(value or b"").decode("utf-8", "replace") for value in texts.to_pylist()]
    return LogSample({"format": "parquet"}, columns, frozenset(lists), tuple(unsure))


def _of_text(path: str) -> LogSample:
    text = first_bytes(path, _BYTES)
    if b"\n" in text:
        text = text[: text.rindex(b"\n") + 1]  # the last line may be cut
    lines = [line.removesuffix(b"\r") for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    lines = [line for line in lines if line][: ROWS + 1]
    if not lines:
        raise no_rows(path)
    if b"\0" in lines[0]:
        raise InputError(f"{path}: no text file; TSV, CSV, JSON lines and Parquet (.parquet) are read")
    if lines[0].lstrip().startswith(b"{"):
        return _of_json(lines[:ROWS])
    return _of_table(path, b"\n".join(lines) + b"\n", lines)


def _of_json(lines: list[bytes]) -> LogSample:
    found: dict[str, None] = {}
    lists = set()
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            found |= dict.fromkeys(row)
            lists |= {name for name, value in row.items() if isinstance(value, list)}
    parsed, _ = parse_objects(
        [line for line in lines if is_utf8(line)], list(found), dict.fromkeys(lists, _LIST_SEPARATOR)
    )
    columns = {
        name: [(value or b"").decode("utf-8", "replace") for value in values.to_pylist()]
        for name, values in parsed.items()
    }
    return LogSample({"format": "jsonl"}, columns, frozenset(lists))


def _of_table(path: str, text: bytes, lines: list[bytes]) -> LogSample:
    decoded = [line.decode("utf-8", "replace") for line in lines]
    delimiter = max(_DELIMITERS, key=lambda sign: (_agreement(decoded, sign), -_DELIMITERS.index(sign)))
    unsure = []
    data: dict[str, object] = {"format": "tsv" if delimiter == "\t" else "csv"}
    if delimiter not in "\t,":
        data["delimiter"] = delimiter
    rows = [line.split("\t") for line in decoded]
    if delimiter != "\t":
        rows = _unquoted(decoded, delimiter)
        whole = list(
            itertools.islice(csv.reader(io.StringIO(text.decode("utf-8", "replace")), delimiter=delimiter), ROWS)
        )
        if any("\n" in value for row in whole for value in row) and _share(whole) > _share(rows):
            rows = whole
            data["quoted_line_breaks"] = True
    width = collections.Counter(map(len, rows)).most_common(1)[0][0]
    if all(not is_utf8(line) for line in lines[:1]) or not is_utf8(text):
        unsure.append("Some lines are no UTF-8 and will be malformed rows: convert the log first.")
    good = [row for row in rows if len(row) == width]
    header = _is_header(rows[0], good) if len(rows[0]) == width else False
    names = rows[0] if header else _names(good)
    if header:
        data["header"] = True
        good = good[1:]
    else:
        data["columns"] = names
        unsure.append("The file has no header: the names of the columns are made up; give them their own.")
    values = list(zip(*good[:ROWS], strict=True)) or [()] * width
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two columns of the header have one name; rename one of them")
    return LogSample(
        data, {name: list(column) for name, column in zip(names, values, strict=True)}, unsure=tuple(unsure)
    )


def _agreement(lines: list[str], delimiter: str) -> float:
    """Returns the share of lines with the most frequent number of values; 0 if that number is one."""
    counts = collections.Counter(len(row) for row in _unquoted(lines[:500], delimiter))
    width, most = counts.most_common(1)[0]
    return round(most / min(len(lines), 500), 2) if width > 1 else 0.0


def _unquoted(lines: list[str], delimiter: str) -> list[list[str]]:
    """Returns the values of each line without their quotes. With a tab as delimiter, quotes are kept."""
    if delimiter == "\t":
        return [line.split(delimiter) for line in lines]
    return [
        next(csv.reader([line], delimiter=delimiter), []) if '"' in line else line.split(delimiter) for line in lines
    ]


def _share(rows: list[list[str]]) -> float:
    return collections.Counter(map(len, rows)).most_common(1)[0][1] / len(rows)


def _is_header(first: list[str], rows: list[list[str]]) -> bool:
    """Returns whether the first line is a header.

    The values of a header are distinct, present, not numbers, and do not occur in the column below.
    """
    if len(set(first)) < len(first) or not all(first) or any(map(_is_number_or_missing, first)):
        return False
    others = rows[1:]
    if not others:
        return True
    known = [{row[place] for row in others} for place in range(len(first))]
    return not any(name in values for name, values in zip(first, known, strict=True))


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
