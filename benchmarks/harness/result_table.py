"""Makes a table from the results in a report."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.table import Table

Result = Mapping[str, Any]
Cell = str | Callable[[Result], str]
_NUMBER = re.compile(r"([-+<>=≤≥(]|\s)*\d|-?$")


def result_table(title: str, columns: Mapping[str, Cell], results: Iterable[Result | None]) -> Table:
    """Returns a table with a row for each result. Columns of numbers are aligned to the right.

    Args:
        title: The title.
        columns: By heading, a cell as a format string of the result's keys, `"{ms[median]:.2f}"`, or as a function.
        results: The results; None draws a line.
    """
    table = Table(title=title)
    rows = [None if result is None else [_text(cell, result) for cell in columns.values()] for result in results]
    for number, name in enumerate(columns):
        is_number = all(_NUMBER.match(row[number]) for row in rows if row)
        table.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*row)
    return table


def met(result: Result) -> str:
    """Returns the cell of a result with a bar: `met`, `missed`, or nothing if it has no bar at this size."""
    return "" if result["met"] is None else "met" if result["met"] else "missed"


def if_any(key: str, cell: str) -> Callable[[Result], str]:
    """Returns a cell that is empty if the result lacks the key or the key's value is None."""
    return lambda result: "" if result.get(key) is None else cell.format_map(result)


def _text(cell: Cell, result: Result) -> str:
    return cell.format_map(result) if isinstance(cell, str) else cell(result)
