"""The files of the vocabularies of a log's columns, in a transform graph and in a SavedModel that contains one.

A line of a file is a value. Small vocabularies may share a file, with lines that consist of the column's number and the
value. A column with a line break in a value has its own file, with escaped line breaks and backslashes. This module
does not import TensorFlow.
"""

import functools
import pathlib
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

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


class VocabularyFiles:
    """Reads the vocabularies of a finished transform by column. The shared file is read once.

    Args:
        assets: The assets folder of a transform graph, or of a SavedModel that contains one.
        spec: The description of the log.
    """

    def __init__(self, assets: pathlib.Path, spec: LogSpec) -> None:
        self._assets = assets
        self._spec = spec

    def read(self, column: str) -> pa.Array:
        """Returns the values of a column, binary; a text's under its first column.

        Raises:
            OSError: a file is absent.
        """
        if column in self._shared:
            return self._shared[column]
        name = vocabulary_name(column)
        escaped = self._assets / f"{ESCAPED}{name}"
        if escaped.exists():
            return pa.array([_unescaped(line) for line in _read(escaped).to_pylist()], pa.binary())
        return _read(self._assets / name)

    @functools.cached_property
    def _shared(self) -> dict[str, pa.Array]:
        columns = list(column_numbers(self._spec))
        lines: dict[str, list[bytes]] = {}
        for line in _read(self._assets / SHARED).to_pylist() if (self._assets / SHARED).exists() else ():
            number, _, value = line.partition(END.encode())
            lines.setdefault(columns[int(number)], []).append(value)
        return {column: pa.array(values, pa.binary()) for column, values in lines.items()}


def read_vocabularies(assets: pathlib.Path, spec: LogSpec) -> dict[str, pa.Array]:
    """Returns the vocabularies of a finished transform by column. See `VocabularyFiles`."""
    files = VocabularyFiles(assets, spec)
    second = set(spec.text.columns[1:]) if spec.text else set()
    return {column: files.read(column) for column in spec.vocabulary_columns if column not in second}


def _read(path: pathlib.Path) -> pa.Array:
    """Returns the lines of a file, binary. Arrow splits them: Python's objects would take ten times the memory."""
    text = pa.array([path.read_bytes().removesuffix(b"\n")], pa.large_binary())
    lines = pc.list_flatten(pc.split_pattern(text, "\n")).cast(pa.binary())
    return lines[:0] if lines[:2].to_pylist() == [EMPTY_VOCABULARY] else lines
