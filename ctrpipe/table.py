"""Small tables, rendered as text and as HTML."""

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

SHOWN_ROWS = 10


@dataclasses.dataclass(frozen=True)
class Table:
    """The table that represents a result.

    Attributes:
        header: The column names.
        rows: The values of the rows, formatted by `cell`.
        below: A line of text below the table; "" for none.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    below: str = ""

    @property
    def text(self) -> str:
        """The table as plain text with aligned columns."""
        lines = [list(self.header), *([cell(value) for value in row] for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        padded = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join([*(line.rstrip() for line in padded), *filter(None, [self.below])])

    @property
    def html(self) -> str:
        """The table as HTML. All text is escaped."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        body = ("".join(f"<td>{html.escape(cell(value))}</td>" for value in row) for row in self.rows)
        below = f"<p>{html.escape(self.below)}</p>" if self.below else ""
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in body)}</table>{below}"


def first_rows(header: Sequence[str], rows: Sequence[Sequence[Any]], of: str = "rows") -> Table:
    """Returns a table of the first SHOWN_ROWS rows, with the total number below if there are more.

    Args:
        header: The column names.
        rows: All rows.
        of: What to call the rows, in plural.
    """
    more = f"... {len(rows):,} {of}" if len(rows) > SHOWN_ROWS else ""
    return Table(header, rows[:SHOWN_ROWS], more)


def cell(value: object) -> str:
    """Formats a value: "-" for None, four decimals for floats, thousands separators for integers."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def interval(ends: Sequence[float] | None) -> str | None:
    """Formats an interval as its two signed ends; None for None."""
    return None if ends is None else f"{ends[0]:+.4f} .. {ends[1]:+.4f}"
