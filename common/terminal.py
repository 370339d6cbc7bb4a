"""Tables for the terminal. Text from a log is printed literally: control characters and markup have no effect."""

import rich.console
import rich.table
import rich.text

from ctrpipe.common.printable import printable

TABLE_WIDTH = 160  # used if the output is not a terminal


def console(width: int = TABLE_WIDTH) -> rich.console.Console:
    """Returns a console as wide as the terminal, or `width` characters wide if the output is not a terminal."""
    plain = rich.console.Console(highlight=False)
    return plain if plain.is_terminal else rich.console.Console(width=width, highlight=False)


def titled(title: str = "") -> rich.table.Table:
    """Returns a table without columns, with a plain-text title."""
    return rich.table.Table(title=rich.text.Text(printable(title)) if title else None)


def add_row(table: rich.table.Table, *cells: str) -> None:
    """Adds a row of plain text."""
    table.add_row(*(rich.text.Text(printable(cell), overflow="fold") for cell in cells))
