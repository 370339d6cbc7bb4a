"""Tables for the terminal. Text from a log is printed literally: control characters and markup have no effect."""

import rich.cells
import rich.console
import rich.table
import rich.text

from ctrpipe.common.printable import printable

TABLE_WIDTH = 160  # used if the output is not a terminal
_FOLDED = 32  # characters of a column from which its cells may be broken into lines, between words


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


def print_table(terminal: rich.console.Console, table: rich.table.Table) -> None:
    """Prints a table of texts. One that is too wide for the terminal becomes a block of lines for each row.

    A line of a block is a column's name and the row's value. In a table that is squeezed into the terminal, numbers and
    names would be broken in their middle.
    """
    columns = [[_plain(terminal, cell) for cell in column.cells] for column in table.columns]
    headers = [_plain(terminal, column.header) for column in table.columns]
    widths = [
        max(rich.cells.cell_len(line) for text in (header, *cells) for line in text.splitlines() or [""])
        for header, cells in zip(headers, columns, strict=True)
    ]
    if sum(min(width, _FOLDED) for width in widths) + 3 * len(widths) + 1 <= terminal.width:
        terminal.print(table)
        return
    names = [" ".join(header.split()) for header in headers]
    indent = max(map(rich.cells.cell_len, names)) + 4
    if table.title:
        terminal.print(table.title, style="italic")
    for row, values in enumerate(zip(*columns, strict=True)):
        style = table.rows[row].style or ""
        first = f"{names[0]} {values[0]}" if names[0] not in ("", "model", "point", "column") else values[0]
        terminal.print(rich.text.Text(first or "-", style=f"bold {style}".strip()))
        block = rich.table.Table.grid(padding=(0, 2))
        block.add_column(width=indent)
        block.add_column(overflow="fold")
        for name, value in zip(names[1:], values[1:], strict=True):
            if value.strip():
                block.add_row(rich.text.Text(f"  {name}"), rich.text.Text(value), style=style)
        terminal.print(block)
    if table.caption:
        terminal.print(table.caption)


def _plain(terminal: rich.console.Console, cell: rich.console.RenderableType) -> str:
    """Returns the text of a cell or a header, without markup."""
    return cell.plain if isinstance(cell, rich.text.Text) else terminal.render_str(str(cell), highlight=False).plain
