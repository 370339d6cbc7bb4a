"""The files of the vocabularies of a log's columns, in a transform graph and in a SavedModel that contains one.

A line of a file is a value. Small vocabularies may share a file, with lines that consist of the column's number and the
value. A column with a line break in a value has its own file, with escaped line breaks and backslashes. This module
does not import TensorFlow.
"""

import pathlib
import re
from collections.abc import Sequence

import pyarrow as pa

from ctrpipe.transforms.log.spec import LogSpec

# TFT's placeholder line for an empty vocabulary, because a lookup table cannot be empty.
EMPTY_VOCABULARY = b"49d0cd50-04bb-48c0-bc6f-5b575dce351a"
SHARED = "vocabularies"  # the file of the shared table
ESCAPED = "escaped_"  # begins the name of a file whose values are escaped
# TensorFlow ends a line at "\n" and leaves out every "\r". The first one is the escape itself.
ESCAPES = ((b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"))
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
END = ":"  # ends the column's number in a line of the shared file


def vocabulary_name(column: str) -> str:
    """Returns the asset name of a column's vocabulary: letters, digits and _ only, as TFT requires."""
    safe = "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in column)
    return f"vocabulary_{safe}"


def column_numbers(spec: LogSpec) -> dict[str, int]:
    """Numbers the columns whose vocabularies may share a table: all except the columns of a text."""
    of_text = spec.text.columns if spec.text else []
    columns = (name for name in spec.vocabulary_columns if name not in of_text)
    return {column: number for number, column in enumerate(columns)}


def escape(value: bytes) -> bytes:
    """Returns a value as an escaped line of its vocabulary file."""
    for text, written in ESCAPES:
        value = value.replace(text, written)
    return value


def _unescaped(line: bytes) -> bytes:
    breaks = {b"n": b"\n", b"r": b"\r"}
    return _ESCAPE.sub(lambda match: breaks.get(match[1], match[1]), line)


def write_lines(path: pathlib.Path, lines: Sequence[bytes]) -> str:
    """Writes the lines of a vocabulary, and returns the path."""
    path.write_bytes(b"".join(line + b"\n" for line in lines or [EMPTY_VOCABULARY]))
    return str(path)


def read_vocabularies(assets: pathlib.Path, spec: LogSpec) -> dict[str, pa.Array]:
    """Returns the vocabularies of a finished transform by column, binary; a text's under its first column.

    Args:
        assets: The assets folder of a transform graph, or of a SavedModel that contains one.
        spec: The description of the log.

    Raises:
        OSError: a file is absent.
    """
    columns = list(column_numbers(spec))
    lines: dict[str, list[bytes]] = {}
    for line in _read(assets / SHARED) if (assets / SHARED).exists() else ():
        number, _, value = line.partition(END.encode())
        lines.setdefault(columns[int(number)], []).append(value)
    second = set(spec.text.columns[1:]) if spec.text else set()
    for column in spec.vocabulary_columns:
        if column not in lines and column not in second:
            name = vocabulary_name(column)
            escaped = assets / f"{ESCAPED}{name}"
            lines[column] = [*map(_unescaped, _read(escaped))] if escaped.exists() else _read(assets / name)
    return {column: pa.array(values, pa.binary()) for column, values in lines.items()}


def _read(path: pathlib.Path) -> list[bytes]:
    lines = path.read_bytes().split(b"\n")[:-1]
    return [] if lines == [EMPTY_VOCABULARY] else lines
