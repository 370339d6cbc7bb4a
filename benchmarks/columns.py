"""Measures how the cost of `ctrpipe run` grows with the number of columns, on a log of few rows.

    python -m benchmarks.columns [--columns 500,1000,2000,5000] [--rows 400] [--model lr] [--output FILE]

Half of the columns are numeric, half are categorical with 20 values. Reports wall time, total and by stage, CPU time of
all cores, and peak memory. Each size runs in its own process, in a folder without a cache.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import yaml
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import positive_numbers
from benchmarks.harness.measured import SERVABLE, STAGE_LINE, START
from benchmarks.harness.result_table import result_table
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.progress import announce

ROOT = pathlib.Path(__file__).parents[1]
VALUES = 20  # of a categorical column


def write_log(columns: int, rows: int, model: str, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes a configuration and a generated log, and returns their paths."""
    random = np.random.default_rng(1)
    numbers, categories = columns // 2, columns - columns // 2
    clicks = np.arange(rows) % 3 == 0
    table = [np.char.mod("%d", clicks.astype(int))]
    table += [np.char.mod("%.3f", random.lognormal(1, 1, rows)) for _ in range(numbers)]
    table += [np.char.mod("v%d", random.integers(0, VALUES, rows)) for _ in range(categories)]
    names = ["click", *(f"n{index}" for index in range(numbers)), *(f"c{index}" for index in range(categories))]
    log = folder / "log.tsv"
    log.write_text("".join("\t".join(row) + "\n" for row in (names, *zip(*table, strict=True))))
    config = {
        "name": "columns",
        "data": {"header": True, "labels": {"ctr": "click"}, "split": {"validation": 0.1, "test": 0.2}},
        "features": [
            {"kind": "numeric", "columns": [f"n0..n{numbers - 1}"]},
            {"kind": "categorical", "columns": [f"c0..c{categories - 1}"]},
        ],
        "model": {"name": model},
        "training": {"batch_size": 128, "epochs": 2},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path, log


def stages(text: str, total: float) -> dict[str, float]:
    """Returns the seconds of each stage from a run's announcements; `start` is the time before the first stage."""
    starts = [(START, 0.0)]
    for match in STAGE_LINE.finditer(text):
        starts.append((match["stage"] or SERVABLE, float(match["seconds"])))
    ends = [seconds for _, seconds in starts[1:]] + [total]
    return {name: round(end - seconds, 1) for (name, seconds), end in zip(starts, ends, strict=True)}


def measure(columns: int, rows: int, model: str) -> dict[str, Any]:
    """Returns the wall time, the CPU time, the peak memory and the seconds of each stage of a run.

    Raises:
        InputError: The run fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config, log = write_log(columns, rows, model, folder)
        program = [sys.executable, "-c", "from ctrpipe.pipeline.cli import main; main()"]
        arguments = ["run", str(config), "--data", str(log), "--output", str(folder / "out")]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            [*program, *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, BLOCKED):
        raise InputError(f"{columns} columns: the run ended with {done.returncode}: {one_line(done.stderr[-300:])}")
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "columns": columns,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cores, 1),
        "peak_mib": after.ru_maxrss // 1024,
        "stages": stages(done.stderr, seconds),
    }


def table(report: Mapping[str, Any]) -> Table:
    runs = report["runs"]
    lines = {
        "all": [f"{run['seconds']:.1f}" for run in runs],
        "all, of all cores": [f"{run['cpu_seconds']:.1f}" for run in runs],
        **{name: [f"{run['stages'].get(name, 0):.1f}" for run in runs] for name in runs[0]["stages"]},
        "peak MiB": [f"{run['peak_mib']:,}" for run in runs],
    }
    rows = [{"line": name, "runs": cells} for name, cells in lines.items()]
    columns = {f"{run['columns']:,}": f"{{runs[{place}]}}" for place, run in enumerate(runs)}
    title = f"ctrpipe run, {report['rows']} rows, {report['model']}: seconds"
    return result_table(title, {"columns": "{line}", **columns}, rows)


@Benchmark("benchmarks.columns", table)
@click.option("--columns", default="500,1000,2000,5000", help="Numbers of columns, separated by commas.")
@click.option("--rows", type=click.IntRange(60), default=400, help="Rows of each log.")
@click.option("--model", default="lr", help="Model to train.")
def main(report: Report, columns: str, rows: int, model: str) -> None:
    """Measure whole runs on logs with few rows and an increasing number of columns.

    Prints a table, writes JSON, and prints the JSON on the last line.
    """
    report |= {"rows": rows, "model": model, "runs": []}
    for size in positive_numbers("--columns", columns):
        if size < 2:
            raise InputError("--columns: give 2 or more, for a number and a category")
        announce(f"{size:,} columns")
        report["runs"].append(measure(size, rows, model))
        report.write()


if __name__ == "__main__":
    main()
