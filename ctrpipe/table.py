"""Formats small tables as text and as HTML."""

import html
from collections.abc import Sequence
from typing import Any


def cell(value: Any) -> str:
    """Returns a value as text: "-" for None, four decimals for a float, commas between an integer's thousands."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def as_text(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns the table as lines of columns of equal width."""
    lines = [list(header), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def as_html(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns the table as HTML; every text is escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = ("".join(f"<td>{html.escape(cell(value))}</td>" for value in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in body)}</table>"
