"""Measures the disk size of ctrpipe's base against TensorFlow alone, and the time of `ctrpipe --help`.

    python -m benchmarks.sizes [--calls 5] [--output FILE]

Installs two environments from the package index: one with TensorFlow alone, one with ctrpipe's base.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.result_table import result_table
from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce

ROOT = pathlib.Path(__file__).parents[1]
LIMIT = 1.6  # maximum ratio of the base's disk size to TensorFlow's
HELP_SECONDS = 0.4
SHOWN = 8  # number of largest packages to list
MB = 1e6


@dataclasses.dataclass(frozen=True)
class HelpTime:
    """Duration of `ctrpipe --help`: the minimum of several calls, in wall time and CPU time."""

    wall: float
    cpu: float


def table(report: Mapping[str, Any]) -> Table:
    sizes, added = report["bytes"], report["added"]
    most = f"{LIMIT * sizes['tensorflow'] / MB:,.0f}"
    lines = [
        ("TensorFlow alone, MB", f"{sizes['tensorflow'] / MB:,.0f}", ""),
        ("the base, MB", f"{sizes['base'] / MB:,.0f}", most),
        ("the base in TensorFlow alone", f"{report['ratio']:.2f}", f"{LIMIT:.2f}"),
        *((f"  of it {name}, MB", f"{size / MB:,.0f}", "") for name, size in added.items()),
        ("`ctrpipe --help`, s", f"{report['help']['wall']:.2f}", f"{HELP_SECONDS:.2f}"),
        ("  of a core, s", f"{report['help']['cpu']:.2f}", ""),
    ]
    columns = ("what", "measured", "at most")
    rows = [dict(zip(columns, line, strict=True)) for line in lines]
    title = f"ctrpipe's base, Python {report['python']}"
    return result_table(title, {name: f"{{{name}}}" for name in columns}, rows)


def tensorflow() -> str:
    """Returns the base's requirement of TensorFlow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(each for each in project["dependencies"] if re.match(r"tensorflow\b(?!-)", each))


def environment(folder: pathlib.Path, package: str) -> pathlib.Path:
    """Creates an environment with a package and its dependencies; returns its folder.

    Raises:
        InputError: The package cannot be installed.
    """
    announce(f"installing {package}")
    uv = str(pathlib.Path(sys.executable).with_name("uv"))
    for arguments in (["venv", "-q", "-p", sys.executable, folder], ["pip", "install", "-q", "-p", folder, package]):
        done = subprocess.run([uv, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise InputError(f"{package} cannot be installed ({done.stderr.strip()[-300:]}); is an index reached?")
    return folder


def bytes_of(folder: pathlib.Path) -> int:
    """Returns the bytes of all files in a folder, without following links."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def largest(environment: pathlib.Path, without: pathlib.Path) -> dict[str, int]:
    """Returns the largest package entries of an environment that another one lacks, with their bytes."""
    [packages], [others] = (list(each.glob("lib/*/site-packages")) for each in (environment, without))
    sizes = {each.name: bytes_of(each) if each.is_dir() else each.stat().st_size for each in packages.iterdir()}
    added = {name: size for name, size in sizes.items() if not (others / name).exists()}
    return dict(sorted(added.items(), key=lambda each: -each[1])[:SHOWN])


def help_time(program: pathlib.Path, calls: int) -> HelpTime:
    """Returns the minimum time of `program --help` after one uncounted call, which compiles the bytecode."""
    times = []
    for _ in range(calls + 1):
        before, started = os.times(), time.perf_counter()
        subprocess.run([program, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        times.append((time.perf_counter() - started, cpu))
    return HelpTime(min(wall for wall, _ in times[1:]), min(cpu for _, cpu in times[1:]))


@Benchmark("benchmarks.sizes", table)
@click.option("--calls", type=click.IntRange(1), default=5, show_default=True, help="Calls of `ctrpipe --help`.")
def main(report: Report, calls: int) -> None:
    """Install TensorFlow alone and ctrpipe's base, and print their sizes on disk and the time of `ctrpipe --help`."""
    with tempfile.TemporaryDirectory() as folder:
        alone = environment(pathlib.Path(folder) / "tensorflow", tensorflow())
        base = environment(pathlib.Path(folder) / "base", str(ROOT))
        sizes = {"tensorflow": bytes_of(alone), "base": bytes_of(base)}
        added = largest(base, alone)
        announce("calling `ctrpipe --help`")
        helped = help_time(base / "bin" / "ctrpipe", calls)
    report |= {"python": sys.version.split()[0], "bytes": sizes, "ratio": sizes["base"] / sizes["tensorflow"]}
    report |= {"added": added, "help": dataclasses.asdict(helped)}


if __name__ == "__main__":
    main()
