"""The class Benchmark, its tables, and the alternating rounds of two sides."""

import json
import pathlib

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console, Group

from benchmarks.harness import benchmark
from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import print_tables
from benchmarks.harness.result_table import if_any, met, result_table
from benchmarks.harness.turns import alternate, in_turn, ratios
from ctrpipe.common.errors import InputError


def table(report):
    return result_table("Sizes", {"size": "{size}"}, report["results"])


def too_large(report):
    return [f"{one['size']} is above 5" for one in report["results"] if one["size"] > 5]


@Benchmark("benchmarks.sizes_of_things", table, too_large)
@click.option("--size", "sizes", type=int, multiple=True, help="A size.")
@click.option("--busy", "asks_for_load", is_flag=True, help="Measure the load.")
def main(report: Report, sizes: tuple[int, ...], asks_for_load: bool) -> None:
    """Measure sizes."""
    if 0 in sizes:
        raise InputError("--size 0: give a larger one")
    if asks_for_load:
        report.add_load()
    report["results"] = []
    for size in sizes:
        report["results"].append({"size": size})
        report.write()


def run_main(folder: pathlib.Path, *arguments: str) -> tuple[Result, dict]:
    """Runs the benchmark, and returns the command's result and the report; {} if it wrote none."""
    output = folder / "new" / "report.json"
    done = CliRunner().invoke(main, [*arguments, "--output", str(output)])
    return done, json.loads(output.read_text()) if output.exists() else {}


def test_the_report_is_written_and_printed_with_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "busy", lambda: 0.5)
    done, report = run_main(tmp_path, "--size", "3", "--busy")
    assert (report["benchmark"], report["busy"], report["results"]) == ("sizes_of_things", 0.5, [{"size": 3}])
    assert set(report["machine"]) == {"cpu", "cores", "python"}
    lines = done.output.splitlines()
    assert json.loads(lines[-1]) == report and lines[-2] == f"Written to {tmp_path / 'new' / 'report.json'}"
    assert "Sizes" in done.output and "50%" in done.output and done.exit_code == 0
    quiet, without = run_main(tmp_path, "--size", "3")
    assert "busy" not in without and "%" not in quiet.output


def test_a_table_wider_than_the_terminal_is_printed_in_parts_without_a_broken_number(capsys):
    columns = {"side": "{side}", **{f"figure {place}": f"{place}.{{number:.6f}}" for place in range(9)}}
    results = [{"side": f"side {row}", "number": row / 7} for row in range(5)]
    print_tables(Console(width=80), Group(Group(result_table("Sides", columns, results)), "a line below"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and lines[-1] == "a line below"
    numbers = [f"{place}.{row / 7:.6f}" for place in range(9) for row in range(5)]
    assert all(sum(number in line for line in lines) == 1 for number in numbers)


def test_a_missed_bar_is_printed_after_the_report_and_the_exit_code_is_1(tmp_path):
    done, report = run_main(tmp_path, "--size", "7", "--size", "2")
    assert done.exit_code == 1 and done.stderr == "7 is above 5\n" and len(report["results"]) == 2


def test_a_mistake_is_one_line_and_the_exit_code_is_2(tmp_path):
    done, report = run_main(tmp_path, "--size", "0")
    assert (done.exit_code, report) == (2, {}) and done.stderr.endswith("--size 0: give a larger one\n")


def test_output_is_the_last_option_and_named_after_the_benchmark():
    names = [option.name for option in main.params]
    assert names == ["sizes", "asks_for_load", "output"]
    assert main.params[-1].default == "runs/benchmarks/sizes_of_things.json" and "Measure sizes." in main.help


def test_columns_of_numbers_are_aligned_to_the_right():
    columns = {"model": "{name}", "ms": if_any("ms", "{ms[median]:.2f}"), "bar": met, "all": "{cells}"}
    results = [
        {"name": "fm", "ms": {"median": 1.234}, "met": True, "cells": "+1.0 .. +2.0"},
        {"name": "2 towers", "ms": None, "met": False, "cells": "<= 5%"},
        None,
        {"name": "lr", "met": None, "cells": "all"},
    ]
    shown = result_table("t", columns, results)
    assert [list(column.cells) for column in shown.columns] == [
        ["fm", "2 towers", "lr"],
        ["1.23", "", ""],
        ["met", "missed", ""],
        ["+1.0 .. +2.0", "<= 5%", "all"],
    ]
    assert [column.justify for column in shown.columns] == ["left", "right", "left", "left"]
    assert [row.end_section for row in shown.rows] == [False, True, False]


@pytest.mark.parametrize("cell", ["-0.5", "+1 .. +2", "(3.0)", ">= 4", "1,000", "", "-", "< 30%"])
def test_a_cell_that_holds_a_number_is_aligned_to_the_right(cell):
    assert result_table("t", {"x": "{x}"}, [{"x": cell}]).columns[0].justify == "right"


def test_sides_have_one_turn_in_each_round():
    log, rounds = [], []
    sides = {name: lambda name=name: log.append(name) or len(log) for name in "ab"}
    found = alternate(sides, 2, lambda number, results: rounds.append((number, results)))
    assert (log, found) == (list("abab"), {"a": [1, 3], "b": [2, 4]})
    assert rounds == [(1, {"a": 1, "b": 2}), (2, {"a": 3, "b": 4})]


def test_a_ratio_compares_the_same_round():
    assert ratios([2.0, 12.0, 40.0], [1.0, 2.0, 10.0]) == {"median": 4.0, "min": 2.0, "max": 6.0}


def test_the_first_two_calls_of_each_side_are_not_timed():
    log: list[str] = []
    times = in_turn({name: lambda name=name: log.append(name) for name in "ab"}, 3)
    assert log == list("ab" * 5) and {len(each) for of in times.values() for each in of.values()} == {3}
