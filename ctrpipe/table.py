"""Small tables, as text and as HTML."""

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

SHOWN_ROWS = 10


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that a result shows.

    Attributes:
        header: The columns' names.
        rows: The rows' values, as `cell` shows them.
        below: A line below the table; "" for none.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    below: str = ""

    @property
    def text(self) -> str:
        """The table as lines of columns of equal width."""
        lines = [list(self.header), *([cell(value) for value in row] for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        padded = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join([*(line.rstrip() for line in padded), *filter(None, [self.below])])

    @property
    def html(self) -> str:
        """The table as HTML; every text is escaped."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        body = ("".join(f"<td>{html.escape(cell(value))}</td>" for value in row) for row in self.rows)
        below = f"<p>{html.escape(self.below)}</p>" if self.below else ""
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in body)}</table>{below}"


def first_rows(header: Sequence[str], rows: Sequence[Sequence[Any]], of: str = "rows") -> Table:
    """Returns a table of the first SHOWN_ROWS rows, which says how many there are where there are more.

    Args:
        header: The columns' names.
        rows: All rows.
        of: What the rows are.
    """
    more = f"... {len(rows):,} {of}" if len(rows) > SHOWN_ROWS else ""
    return Table(header, rows[:SHOWN_ROWS], more)


def cell(value: Any) -> str:
    """Returns a value as text: "-" for None, four decimals for a float, commas between an integer's thousands."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def interval(ends: Sequence[float] | None) -> str | None:
    """Returns the two ends of an interval with their signs; None for None."""
    return None if ends is None else f"{ends[0]:+.4f} .. {ends[1]:+.4f}"
