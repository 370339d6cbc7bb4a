"""Measures the latency of in-process predictions by backend and number of rows: `python -m benchmarks.calls`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    chosen_names,
    cores,
    device_option,
    positive_numbers,
    shape_options,
)
from benchmarks.harness.ours import BACKENDS, Ours
from benchmarks.harness.result_table import result_table
from benchmarks.harness.settings import MODELS, Shape, our_options
from ctrpipe.common.progress import announce


def table(report: Mapping[str, Any]) -> Table:
    times = {
        f"{count:,} rows": lambda one, place=place: f"{one['p50_ms'][place]:.3g}"
        for place, count in enumerate(report["rows"])
    }
    return result_table(
        "ms of a prediction, p50", {"model": "{model}", "backend": "{backend}", **times}, report["results"]
    )


@Benchmark("benchmarks.calls", table)
@click.option("--models", metavar="A,B", default="dcn_v2,xdeepfm", help="Registry names.")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, default=BACKENDS, help="Repeatable.")
@click.option("--rows", default="1,10,100,1000,10000", help="Numbers of rows per call, separated by commas.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, help="Seconds per number of rows.")
@shape_options
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field.")
@device_option
def main(
    report: Report,
    models: str,
    backends: Sequence[str],
    rows: str,
    seconds: float,
    fields: int,
    dim: int,
    threads: int | None,
    ids: int,
    device: str,
) -> None:
    """Measure the latency of a prediction with the trained model's learner, by backend and number of rows.

    A call starts with the rows' ids in host memory and ends with their probabilities there; a server would also have to
    parse a request. Prints a table, writes JSON after every model, and prints the JSON on the last line.
    """
    names, counts = chosen_names("--models", models, MODELS), positive_numbers("--rows", rows)
    shape, threads = Shape(fields, ids, dim), threads or cores()
    report.add_load()
    report |= {"threads": threads, "shape": dataclasses.asdict(shape), "rows": counts, "device": device, "results": []}
    for backend in backends:
        with Ours(backend, threads, device=device) as ours:
            ours.about()  # fails if a GPU is requested but not available
            for name in names:
                times = ours.calls(name, our_options(name, None, shape), shape, counts, seconds)
                report["results"].append({"model": name, "backend": backend, "p50_ms": times})
                announce(f"{name}, {backend}: {', '.join(f'{each:.3g}' for each in times)} ms for {rows} rows")
                report.write()


if __name__ == "__main__":
    main()
