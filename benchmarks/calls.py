"""Measures the latency of in-process predictions by backend and number of rows: `python -m benchmarks.calls`."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import (
    busy,
    busy_caption,
    chosen_names,
    command,
    cores,
    device_option,
    finish,
    machine,
    output_option,
    positive_numbers,
    shape_options,
    write,
)
from benchmarks.harness.ours import BACKENDS, Ours
from benchmarks.harness.settings import MODELS, Shape, our_options
from ctrpipe.common.progress import announce


@command("benchmarks.calls")
@click.option("--models", metavar="A,B", default="dcn_v2,xdeepfm", help="Registry names.")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, default=BACKENDS, help="Repeatable.")
@click.option("--rows", default="1,10,100,1000,10000", help="Numbers of rows per call, separated by commas.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, help="Seconds per number of rows.")
@shape_options
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field.")
@device_option
@output_option("calls")
def main(
    models: str,
    backends: Sequence[str],
    rows: str,
    seconds: float,
    fields: int,
    dim: int,
    threads: int | None,
    ids: int,
    device: str,
    output: pathlib.Path,
) -> None:
    """Measure the latency of a prediction with the trained model's learner, by backend and number of rows.

    A call starts with the rows' ids in host memory and ends with their probabilities there; a server would also have to
    parse a request. Prints a table, writes JSON after every model, and prints the JSON on the last line.
    """
    names, counts = chosen_names("--models", models, MODELS), positive_numbers("--rows", rows)
    shape, threads = Shape(fields, ids, dim), threads or cores()
    report: dict[str, Any] = {"benchmark": "calls", "machine": machine(), "busy": busy(), "threads": threads}
    report |= {"shape": dataclasses.asdict(shape), "rows": counts, "device": device, "results": []}
    table = Table(title="ms of a prediction, p50", caption=busy_caption(report["busy"]))
    for column in ("model", "backend", *(f"{count:,} rows" for count in counts)):
        table.add_column(column, justify="right" if column.endswith("rows") else "left")
    for backend in backends:
        with Ours(backend, threads, device=device) as ours:
            ours.about()  # fails if a GPU is requested but not available
            for name in names:
                times = ours.calls(name, our_options(name, None, shape), shape, counts, seconds)
                report["results"].append({"model": name, "backend": backend, "p50_ms": times})
                table.add_row(name, backend, *(f"{each:.3g}" for each in times))
                announce(f"{name}, {backend}: {', '.join(f'{each:.3g}' for each in times)} ms for {rows} rows")
                write(report, output)
    finish(report, output, table)


if __name__ == "__main__":
    main()
