"""Finds last lines of text files that are not rows, such as a spreadsheet's totals or a database client's row count."""

import re
from collections.abc import Iterator, Sequence

from ctrpipe.common import stores
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.files import input_errors, open_stored, open_text, size_of, stored_head
from ctrpipe.transforms.log.first_bytes import compression_of, is_utf8_codec
from ctrpipe.transforms.log.formats.registry import columnar_of
from ctrpipe.transforms.log.spec import Data

_END_BYTES = 1 << 14  # of a file in which the last line is looked for
_READ_BYTES = 1 << 22  # a compressed file up to this size is read to its end
_STORED_FILES = 100  # of a store that are looked at
_SHOWN = 60  # characters of the line
_WORD = re.compile(
    r"(grand |sub)?totals?|sum|summe|gesamt|insgesamt|count|average|avg|mean|end|eof|end of file|trailer|footer|trl|"
    r"(row|record)s?( ?count)?|number of (row|record)s|exported( (on|at|by).*)?|generated( (on|at|by).*)?",
    re.IGNORECASE,
)
_NO_ROW = re.compile(
    r"\s*(--|#|//|\(?\d[\d,. ]* (row|record|line|zeile)\w*( \w+)?\.?\)?\s*$|([=_*-])\4{2,}\s*$)", re.IGNORECASE
)


def footers(data: Data, files: Sequence[str]) -> Iterator[str]:
    """Yields a warning about each text file whose last line does not look like a row.

    Args:
        data: The description of the files.
        files: Their paths.

    Raises:
        InputError: a file cannot be read.
    """
    if not data.is_table:
        return
    stored = 0
    for path in files:
        stored += stores.is_url(path)
        if stored > _STORED_FILES and stores.is_url(path):
            continue
        first, line = _ends(path, data.encoding)
        if is_footer(first, line, data.separator):
            yield (
                f"{path}: its last line, '{excerpt(line, _SHOWN)}', looks like a footer, and is read as a row: "
                "remove it from the file"
            )


def _ends(path: str, encoding: str) -> tuple[str, str]:
    """Returns the first and the last line of a text; two empty strings if it has only one line, or is not read to its
    end.
    """
    with input_errors(path):
        head, size = stored_head(path), size_of(path)
        if columnar_of(head):
            return "", ""
        if compression_of(head) or not is_utf8_codec(encoding):
            if size > _READ_BYTES:
                return "", ""
            with open_text(path, encoding=encoding) as text:
                whole = text.read()
            head, end = whole[:_END_BYTES], whole[-_END_BYTES:]
        else:
            with open_stored(path) as file:
                head = file.read(_END_BYTES)
                file.seek(max(size - _END_BYTES, 0))
                end = file.read()
    lines = end.decode("utf-8", "replace").rstrip().splitlines()
    return (head.decode("utf-8", "replace").splitlines()[0], lines[-1]) if len(lines) > 1 else ("", "")


def is_footer(first: str, line: str, separator: str) -> bool:
    """Returns whether the last line of a text looks like a footer, compared with the first line."""
    if _NO_ROW.match(line):
        return True
    values = [value.strip(' "').rstrip(":") for value in line.split(separator)]
    present = [value for value in values if value]
    has_gaps = len(present) < len(first.split(separator))
    return bool(has_gaps and present and _WORD.fullmatch(present[0]))
