"""Tables on terminals of every width."""

import io

import pytest
import rich.console
import rich.table

from ctrpipe.common.terminal import print_table

VALUES = {"AUC": "0.7712 ± 0.0012", "log\nloss": "0.4511", "95%": "+0.0011 .. +0.0123", "verdict": "better"}


def printed(width: int, columns: int = 1, style: str = "") -> list[str]:
    table = rich.table.Table(title="by [bold]width[/bold]", caption="below")
    table.add_column("point")
    for number in range(columns):
        for name in VALUES:
            table.add_column(f"{name}{number or ''}", justify="right")
    table.add_row("deepfm", *VALUES.values(), *(text for _ in range(columns - 1) for text in VALUES.values()))
    table.add_row(
        "[dim]dcn\\[2][/dim]", *("" if name == "95%" else "-" for _ in range(columns) for name in VALUES), style=style
    )
    terminal = rich.console.Console(file=io.StringIO(), width=width, highlight=False)
    print_table(terminal, table)
    return terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_table_that_fits_stays_a_table():
    lines = printed(80)
    assert any("│ deepfm" in line and "+0.0011 .. +0.0123 │" in line for line in lines)


@pytest.mark.parametrize(("width", "columns"), [(40, 1), (80, 2), (80, 9)])
def test_a_wide_table_becomes_a_line_for_each_value(width, columns):
    lines = [line.rstrip() for line in printed(width, columns)]
    assert max(map(len, lines)) <= width and lines[0] == "by width" and lines[-1] == "below"
    assert "deepfm" in lines and "dcn[2]" in lines
    block = lines[lines.index("deepfm") + 1 : lines.index("dcn[2]")]
    expected = [f"  {' '.join(f'{name}{number or str()}'.split())}" for number in range(columns) for name in VALUES]
    assert [line[: len(name)] for line, name in zip(block, expected, strict=True)] == expected
    assert [line.split("  ")[-1].strip() for line in block] == list(VALUES.values()) * columns
    assert len(lines[lines.index("dcn[2]") :]) == 2 + 3 * columns  # an empty value has no line


def test_a_block_whose_first_cell_is_left_blank_has_the_one_above():
    table = rich.table.Table("slice", "model", *(f"metric {number}" for number in range(9)))
    table.add_row("ALL", "lr", *["0.1234"] * 9)
    table.add_row("", "fm", *["0.2345"] * 9)
    terminal = rich.console.Console(file=io.StringIO(), width=60, highlight=False)
    print_table(terminal, table)
    lines = [line.rstrip() for line in terminal.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert [line for line in lines if line.startswith("slice")] == ["slice ALL", "slice ALL"]


def test_long_sentences_are_folded_in_a_table():
    table = rich.table.Table("column", "verdict")
    table.add_row("price", "a sentence that is much longer than a line of the terminal, " * 3)
    terminal = rich.console.Console(file=io.StringIO(), width=60)
    print_table(terminal, table)
    assert "│ price  │ a sentence that" in terminal.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80])
def test_a_wide_table_of_many_rows_becomes_several_tables_that_fit(width):
    table = rich.table.Table(title="pairs")
    for name in ("pair", "together", "by chance, 95%", "picked", "loss", "95%", "what moved most"):
        table.add_column(name)
    rows = [[f"a x b{n}", "+0.04781", "-0.08072 .. +0.06756", "-", "+0.1", "+0.0 .. +0.2", f"up {n}"] for n in range(9)]
    for row in rows:
        table.add_row(*row)
    terminal = rich.console.Console(file=io.StringIO(), width=width)
    print_table(terminal, table)
    lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width and lines[0].strip() == "pairs"
    shown = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    for row in rows:
        cells = [each[1:] for each in shown if each[0] == row[0]]
        assert sum(cells, []) == [cell for cell in row[1:] if cell != "-"]  # whole, and the empty column is left out
    together = [line for line in lines if "┃" in line and "95%" in line]
    assert all(("by chance" in line) == ("together" in line) for line in together)


def test_a_first_column_that_leaves_no_room_makes_blocks():
    table = rich.table.Table("where", "a", "b")
    for number in range(6):
        table.add_row(f"a long name of a row, {number}", "+0.04781 .. +0.06756", "x")
    terminal = rich.console.Console(file=io.StringIO(), width=40)
    print_table(terminal, table)
    assert "  a  " in terminal.file.getvalue() and "│" not in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_each_of_several_tables_repeats_all_columns_that_name_a_row():
    table = rich.table.Table("slice", "model", *(f"metric {number}" for number in range(9)))
    for part in ("ALL", "C9 = 1"):
        table.add_row(part, "lr", *["0.1234"] * 9)
        table.add_row("", "fm", *["0.2345"] * 9)
    terminal = rich.console.Console(file=io.StringIO(), width=60, highlight=False)
    print_table(terminal, table, keys=2)
    lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
    headers = [line.strip("┃").split("┃") for line in lines if line.startswith("┃")]
    assert len(headers) > 1 and all([cell.strip() for cell in header[:2]] == ["slice", "model"] for header in headers)
    assert sum(line.startswith("│        │ fm") for line in lines) == 2 * len(headers)


def test_a_row_without_a_value_in_one_of_several_tables_is_left_out_of_it_and_the_next_has_its_name():
    table = rich.table.Table("slice", "model", *(f"metric {number}" for number in range(3)), "difference")
    for part in ("ALL", "C9 = 1"):
        table.add_row(part, "lr", *["0.1234"] * 3, "")
        table.add_row("", "fm", *["0.2345"] * 3, "+0.1111")
    terminal = rich.console.Console(file=io.StringIO(), width=60, highlight=False)
    print_table(terminal, table, keys=2)
    lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
    start = next(number for number, line in enumerate(lines) if "difference" in line)
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines[start:] if line.startswith("│")]
    assert [row[:2] + row[-1:] for row in rows] == [["ALL", "fm", "+0.1111"], ["C9 = 1", "fm", "+0.1111"]]
