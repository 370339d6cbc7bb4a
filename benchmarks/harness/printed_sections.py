"""What benchmarks print for docs/measured.md: tables, and the sections that a benchmark's --keep prints."""

import pathlib
from collections.abc import Sequence

from ctrpipe.common.files import write_text

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "measured.md"
_END = "<!-- end -->\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table of Markdown; the first row is its head."""
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def read_section(name: str) -> str:
    """Returns the section that `python -m benchmarks.NAME --keep` has printed last, without its marks."""
    return _parts(name)[1]


def write_section(name: str, text: str) -> None:
    """Prints a section anew between its marks, which the page must have."""
    before, _, after = _parts(name)
    write_text(PAGE, before + text + after)


def _parts(name: str) -> tuple[str, str, str]:
    """Returns what is before a section with its first mark, the section, and what is after it with its last mark."""
    text, begin = PAGE.read_text(), f"<!-- printed by python -m benchmarks.{name} --keep -->\n"
    start = text.index(begin) + len(begin)
    end = text.index(_END, start)
    return text[:start], text[start:end], text[end:]
