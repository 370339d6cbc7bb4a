"""Measures the FLOP/s of large matrix products, a device's peak: `python -m benchmarks.peak`."""

import pathlib
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import busy, busy_caption, command, cores, device_option, finish, machine, output_option
from benchmarks.harness.ours import BACKENDS, Ours
from ctrpipe.common.progress import announce


@command("benchmarks.peak")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, default=BACKENDS, help="Repeatable.")
@click.option("--size", type=click.IntRange(16), default=8192, help="Rows and columns of each matrix.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, help="Seconds per number format.")
@device_option
@output_option("peak")
def main(backends: Sequence[str], size: int, seconds: float, device: str, output: pathlib.Path) -> None:
    """Measure the floating-point operations per second of products of square matrices, by backend and number format.

    float32 is computed in full precision. In tf32 the device may round the factors, as TensorFlow and JAX allow by
    default; on a CPU both formats are the same. Prints a table, and the report as JSON on the last line.
    """
    report: dict[str, Any] = {"benchmark": "peak", "machine": machine(), "busy": busy(), "size": size}
    report["flops_per_s"] = {}
    table = Table(title=f"TFLOP/s, {size} x {size} x {size}", caption=busy_caption(report["busy"]))
    for name in ("backend", "device", "format", "TFLOP/s"):
        table.add_column(name, justify="right" if name == "TFLOP/s" else "left")
    for backend in backends:
        with Ours(backend, cores(), device=device) as ours:
            about = ours.about()
            report["flops_per_s"][backend] = found = ours.peak(size, seconds)
        for name, rate in found.items():
            table.add_row(backend, about["device"], name, f"{rate / 1e12:.3f}")
            announce(f"{backend}, {name}: {rate / 1e12:.3f} TFLOP/s")
    finish(report, output, table)


if __name__ == "__main__":
    main()
