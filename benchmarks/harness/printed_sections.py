"""Markdown tables, and the sections of docs/measured.md that `--keep` of a benchmark replaces."""

import pathlib
from collections.abc import Sequence

from ctrpipe.common.files import write_text

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "measured.md"
_END = "<!-- end -->\n"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table; the first row is the header."""
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def read_section(name: str) -> str:
    """Returns the section last written by `python -m benchmarks.NAME --keep`, without its marks."""
    return _parts(name)[1]


def write_section(name: str, text: str) -> None:
    """Replaces the section between its marks, which the page must contain."""
    before, _, after = _parts(name)
    write_text(PAGE, before + text + after)


def _parts(name: str) -> tuple[str, str, str]:
    """Splits the page at a section's marks: returns the text before it, the section, and the text after it, with the
    marks.
    """
    text, begin = PAGE.read_text(), f"<!-- printed by python -m benchmarks.{name} --keep -->\n"
    start = text.index(begin) + len(begin)
    end = text.index(_END, start)
    return text[:start], text[start:end], text[end:]
