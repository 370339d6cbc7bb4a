"""Tables for the terminal. Text from a log is printed literally: control characters and markup have no effect."""

from collections.abc import Sequence

import rich.cells
import rich.console
import rich.table
import rich.text

from ctrpipe.common.printable import printable

TABLE_WIDTH = 160  # used if the output is not a terminal
_MOST_BLOCKS = 3  # rows of a table that may become a block each
_INTERVAL = "95%"  # how the header of a column ends that belongs to the one before it
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


def print_table(terminal: rich.console.Console, table: rich.table.Table, keys: int = 1) -> None:
    """Prints a table. A table that is too wide for the terminal is split into several tables, or into blocks.

    Each of the split tables repeats the first columns, which name a row, and omits empty columns and rows. A table with
    few rows becomes a block per row, with one line per column. Squeezing a table into the terminal would break numbers
    and names.

    Args:
        terminal: Where the table is printed.
        table: The table.
        keys: Number of the first columns that together name a row.
    """
    columns = [[_plain(terminal, cell) for cell in column.cells] for column in table.columns]
    headers = [_plain(terminal, column.header) for column in table.columns]
    widths = [
        min(_FOLDED, max(rich.cells.cell_len(line) for text in (header, *cells) for line in text.splitlines() or [""]))
        for header, cells in zip(headers, columns, strict=True)
    ]
    if _width(widths) <= terminal.width:
        terminal.print(table)
        return
    told = [place for place, cells in enumerate(columns) if place >= keys and set(cells) - {"", "-"}]
    parts = _parts(headers, widths, range(keys), told, terminal.width)
    if parts and table.row_count > _MOST_BLOCKS:
        if table.title:
            terminal.print(table.title, style="italic")
        for part in parts:
            terminal.print(_with_columns(terminal, table, part, keys))
    else:
        _print_blocks(terminal, table, headers, columns)
    if table.caption:
        terminal.print(table.caption)


def _width(widths: Sequence[int]) -> int:
    """Returns the width of a table with columns of these widths."""
    return sum(widths) + 3 * len(widths) + 1


def _parts(
    names: Sequence[str], widths: Sequence[int], keys: Sequence[int], told: Sequence[int], most: int
) -> list[list[int]]:
    """Returns the columns of tables that fit, each with the key columns; none if that is impossible.

    An interval stays next to its value.

    Args:
        names: The headers of all columns.
        widths: Their widths.
        keys: The columns that name a row.
        told: The other non-empty columns.
        most: The width of the terminal.
    """
    together: list[list[int]] = []
    for column in told:
        if together and names[column].endswith(_INTERVAL):
            together[-1].append(column)
        else:
            together.append([column])
    parts: list[list[int]] = []
    for some in together:
        if parts and _width([widths[column] for column in [*parts[-1], *some]]) <= most:
            parts[-1] += some
        else:
            parts.append([*keys, *some])
    return parts if all(_width([widths[column] for column in part]) <= most for part in parts) else []


def _with_columns(
    terminal: rich.console.Console, table: rich.table.Table, chosen: Sequence[int], keys: int
) -> rich.table.Table:
    """Returns a table with some of the columns of another one, without its title and rows without a value in them.

    The first cell of a row that is left out moves to the next row, whose own is blank if it is the same.
    """
    part = rich.table.Table()
    for column in (table.columns[place] for place in chosen):
        part.add_column(column.header, justify=column.justify, style=column.style, overflow=column.overflow)
    cells = [list(table.columns[place].cells) for place in chosen]
    above: rich.console.RenderableType = ""
    for row, (first, *others) in zip(table.rows, zip(*cells, strict=True), strict=True):
        named = first or above
        above = ""
        if any(_plain(terminal, cell) for cell in others[keys - 1 :]):
            part.add_row(named, *others, style=row.style, end_section=row.end_section)
        else:
            above = named
    return part


def _print_blocks(
    terminal: rich.console.Console, table: rich.table.Table, headers: Sequence[str], columns: Sequence[Sequence[str]]
) -> None:
    """Prints a block of lines for each row of a table."""
    names = [" ".join(header.split()) for header in headers]
    indent = max(map(rich.cells.cell_len, names)) + 4
    if table.title:
        terminal.print(table.title, style="italic")
    above = ""  # a first cell that is left blank is the one above it
    for row, cells in enumerate(zip(*columns, strict=True)):
        style = table.rows[row].style or ""
        values = [cells[0] or above, *cells[1:]]
        above = values[0]
        first = f"{names[0]} {values[0]}" if names[0] not in ("", "model", "point", "column") else values[0]
        terminal.print(rich.text.Text(first or "-", style=f"bold {style}".strip()))
        block = rich.table.Table.grid(padding=(0, 2))
        block.add_column(width=indent)
        block.add_column(overflow="fold")
        for name, value in zip(names[1:], values[1:], strict=True):
            if value.strip():
                block.add_row(rich.text.Text(f"  {name}"), rich.text.Text(value), style=style)
        terminal.print(block)


def _plain(terminal: rich.console.Console, cell: rich.console.RenderableType) -> str:
    """Returns the text of a cell or a header, without markup."""
    return cell.plain if isinstance(cell, rich.text.Text) else terminal.render_str(str(cell), highlight=False).plain
