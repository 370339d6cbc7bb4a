"""Measures ways to lower the in-process latency of a served graph: `python -m benchmarks.floor`.

Each way (session options, oneDNN off, frozen variables, XLA, another malloc) is compared with Session.make_callable.
"""

import dataclasses
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    device_option,
    positive_numbers,
)
from benchmarks.harness.devices import load_tensorflow_on
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.turns import alternate, ratios
from benchmarks.peers.line_process import LineProcess, ProcessError, clean_environment
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.run.sample_export import make_export

ROOT = pathlib.Path(__file__).resolve().parents[1]
EQUAL, BFLOAT16 = 1e-6, 5e-3  # maximum difference of a probability from the baseline's
ONE_THREAD = "intra_op_parallelism_threads: 1 inter_op_parallelism_threads: -1"
TWO_THREADS = "intra_op_parallelism_threads: 2 inter_op_parallelism_threads: 2"
CALLERS_THREAD = "inter_op_parallelism_threads: -1"
SINGLE = 'experimental { executor_type: "SINGLE_THREADED_EXECUTOR" }'
OWN_POOL = "session_inter_op_thread_pool { num_threads: 1 }"
MIXED = "graph_options { rewrite_options { auto_mixed_precision_onednn_bfloat16: ON } }"
NO_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to run the graph.

    Args:
        name: Its name in the table.
        session: The session's ConfigProto, as text.
        call: One of floor_server.CALLS.
        environment: Additional environment variables of its process.
        tolerance: Maximum difference of a probability from the baseline's.
    """

    name: str
    session: str = ""
    call: str = "callable"
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerance: float = EQUAL


BASELINE = Way("Session.make_callable", call="make_callable")
WAYS = (
    Way("C++'s callable"),
    Way("+ operations in the caller's thread", CALLERS_THREAD),
    Way("+ single-threaded executor", SINGLE),
    Way("+ a pool of one inter-op thread", OWN_POOL),
    Way("+ a pool of the session's own", "use_per_session_threads: true"),
    Way("+ 2 threads", TWO_THREADS),
    Way("+ 1 thread, the caller's", ONE_THREAD),
    Way("+ variables frozen", call="frozen"),
    Way("+ bfloat16 (--mixed_precision)", MIXED, tolerance=BFLOAT16),
    Way("+ XLA", call="xla"),
    Way("no oneDNN", environment=NO_ONEDNN),
    Way("no oneDNN, caller's thread", CALLERS_THREAD, environment=NO_ONEDNN),
    Way("no oneDNN, single-threaded executor", SINGLE, environment=NO_ONEDNN),
    Way("no oneDNN, 1 thread, the caller's", ONE_THREAD, environment=NO_ONEDNN),
    Way("no oneDNN, caller's thread, frozen", CALLERS_THREAD, "frozen", NO_ONEDNN),
    Way("no oneDNN, XLA", call="xla", environment=NO_ONEDNN),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Rounds of a way and of the baseline for one number of rows: wall and CPU time of a call in milliseconds."""

    rows: int
    way: list[dict[str, float]]
    baseline: list[dict[str, float]]
    difference: float

    def as_json(self) -> dict[str, Any]:
        """Returns both sides' medians, and the median ratio of the way's times to the baseline's in the same round."""
        values: dict[str, float] = {}
        for key in ("p50_ms", "cpu_ms"):
            own, base = ([one[key] for one in side] for side in (self.way, self.baseline))
            values |= {key: statistics.median(own), f"{key}_ratio": ratios(own, base)["median"]}
        values["baseline_p50_ms"] = statistics.median(base["p50_ms"] for base in self.baseline)
        return {"rows": self.rows, **values, "difference": self.difference}


class Process(LineProcess):
    """A process that runs a signature in one way."""

    def __init__(self, way: Way, version: pathlib.Path, signature: str):
        environment = clean_environment(**({"PYTHONPATH": str(ROOT)} | way.environment))
        super().__init__(way.name, [sys.executable, "-m", "benchmarks.harness.floor_server"], environment)
        self._load = {"version": str(version.resolve()), "signature": signature, "session": way.session}
        self._load["call"] = way.call

    def __enter__(self):
        super().__enter__()
        try:
            self.ask({"cmd": "load", **self._load})
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self


def compare(way: Way, process: Process, baseline: Process, rows: int, rounds: int, seconds: float) -> Comparison:
    """Compares the predictions of a way and the baseline, then measures both in alternating rounds.

    Raises:
        ProcessError: The predictions differ by more than the way's tolerance.
    """
    answers = [side.ask({"cmd": "answers", "rows": rows})["probabilities"] for side in (process, baseline)]
    difference = max(abs(own - base) for own, base in zip(*answers, strict=True))
    if not difference <= way.tolerance:
        raise ProcessError(f"{way.name}: probabilities differ by {difference:.1e}, more than {way.tolerance:.0e}")
    asked = {"cmd": "measure", "rows": rows, "seconds": seconds}
    times = alternate({"baseline": lambda: baseline.ask(asked), "way": lambda: process.ask(asked)}, rounds)
    return Comparison(rows, times["way"], times["baseline"], difference)


def measure(
    ways: list[Way], version: pathlib.Path, signature: str, rows: Sequence[int], rounds: int, seconds: float
) -> Iterator[tuple[Way, list[Comparison] | str]]:
    """Yields each way with its comparisons for each number of rows, or the reason why it does not run."""
    with Process(BASELINE, version, signature) as baseline:
        for way in ways:
            try:
                with Process(way, version, signature) as process:
                    yield way, [compare(way, process, baseline, count, rounds, seconds) for count in rows]
            except ProcessError as error:
                yield way, str(error).strip().splitlines()[-1]


def table(report: Mapping[str, Any]) -> Table:
    """Returns the table with a row for each way, or the reason why it does not run."""
    sizes = next((([one["rows"] for one in way["rows"]]) for way in report["results"] if "rows" in way), [])
    rows = []
    for way in report["results"]:
        cells = [
            "{p50_ms:.3f} ({p50_ms_ratio:.2f} / {cpu_ms_ratio:.2f})".format_map(one) for one in way.get("rows", [])
        ]
        difference = max((one["difference"] for one in way.get("rows", [])), default=None)
        rows.append(
            {"way": way["way"], "cells": cells or [way["error"][:60], *[""] * len(sizes)], "difference": difference}
        )
    columns: dict[str, Cell] = {"ms (ratio / ratio of CPU time)": "{way}"}
    columns |= {f"{size} rows": f"{{cells[{place}]}}" for place, size in enumerate(sizes or [0])}
    name = f"{report['signature']}: ms of a call, over {BASELINE.name} in the same rounds, {report['machine']['cpu']}"
    return result_table(name, {**columns, "difference": if_any("difference", "{difference:.0e}")}, rows)


def allocators(libraries: tuple[pathlib.Path, ...]) -> list[Way]:
    """Returns the default way of serving (no oneDNN, caller's thread) with each library instead of glibc's malloc."""
    return [
        Way(f"the same with {library.name}", CALLERS_THREAD, environment=NO_ONEDNN | {"LD_PRELOAD": str(library)})
        for library in libraries
    ]


@Benchmark("benchmarks.floor", table)
@click.argument("version", required=False, type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False))
@click.option("--signature", type=click.Choice(["serving_packed", "serving_raw"]), default="serving_packed")
@click.option("--rows", default="1,10,100,1024", help="Numbers of rows per call, separated by commas.")
@click.option("--rounds", type=click.IntRange(1), default=7, help="Rounds in which a way and the baseline alternate.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=0.3, help="Seconds per way in a round.")
@click.option("--only", default="", help="Measure the ways whose name contains this text.")
@click.option(
    "--malloc",
    multiple=True,
    type=click.Path(path_type=pathlib.Path, exists=True, dir_okay=False, resolve_path=True),
    help="Library to preload, such as libjemalloc.so.2. Repeatable.",
)
@device_option
def main(
    report: Report,
    version: pathlib.Path | None,
    signature: str,
    rows: str,
    rounds: int,
    seconds: float,
    only: str,
    malloc: tuple[pathlib.Path, ...],
    device: str,
) -> None:
    """Measure the median latency of a call in each way, compared with the baseline in the same rounds.

    VERSION is the folder of a version written by `ctrpipe run` or benchmarks.exports; by default a DCN-v2 is exported.
    Each way runs in its own process and must give the baseline's predictions. CPU is the ratio of CPU time per call to
    the baseline's. Prints a table, writes JSON after every way, and prints the JSON on the last line.
    """
    sizes = positive_numbers("--rows", rows)
    ways = [way for way in (*WAYS, *allocators(malloc)) if only in way.name]
    if signature == "serving_raw":  # its vocabularies are tables, which can be neither frozen nor compiled
        ways = [way for way in ways if way.call not in ("frozen", "xla")]
    report.add_load()
    load_tensorflow_on(device)
    if device == "gpu":  # with TF32, sums in another order differ by more
        ways = [dataclasses.replace(way, tolerance=BFLOAT16) for way in ways]
    with tempfile.TemporaryDirectory() as folder:
        if version is None:
            version = make_export("dcn_v2", pathlib.Path(folder))
        report |= {"signature": signature, "device": device, "rounds": rounds, "seconds": seconds}
        report |= {"baseline": BASELINE.name, "results": []}
        for way, comparisons in measure(ways, version, signature, sizes, rounds, seconds):
            result: dict[str, Any] = {"way": way.name, "session": way.session, "environment": way.environment}
            result |= (
                {"error": comparisons}
                if isinstance(comparisons, str)
                else {"rows": [one.as_json() for one in comparisons]}
            )
            report["results"].append(result)
            report.write()
            announce(way.name)


if __name__ == "__main__":
    main()
