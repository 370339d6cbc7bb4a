"""Measures the FLOP/s of large matrix products, a device's peak: `python -m benchmarks.peak`."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import cores, device_option
from benchmarks.harness.ours import BACKENDS, Ours
from benchmarks.harness.result_table import result_table
from ctrpipe.common.progress import announce


def table(report: Mapping[str, Any]) -> Table:
    size = report["size"]
    rates = [
        {"backend": backend, "device": report["devices"][backend], "format": name, "rate": rate / 1e12}
        for backend, of_backend in report["flops_per_s"].items()
        for name, rate in of_backend.items()
    ]
    columns = {"backend": "{backend}", "device": "{device}", "format": "{format}", "TFLOP/s": "{rate:.3f}"}
    return result_table(f"TFLOP/s, {size} x {size} x {size}", columns, rates)


@Benchmark("benchmarks.peak", table)
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, default=BACKENDS, help="Repeatable.")
@click.option("--size", type=click.IntRange(16), default=8192, help="Rows and columns of each matrix.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, help="Seconds per number format.")
@device_option
def main(report: Report, backends: Sequence[str], size: int, seconds: float, device: str) -> None:
    """Measure the floating-point operations per second of products of square matrices, by backend and number format.

    float32 is computed in full precision. In tf32 the device may round the factors, as TensorFlow and JAX allow by
    default; on a CPU both formats are the same. Prints a table, and the report as JSON on the last line.
    """
    report.add_load()
    report |= {"size": size, "devices": {}, "flops_per_s": {}}
    for backend in backends:
        with Ours(backend, cores(), device=device) as ours:
            report["devices"][backend] = ours.about()["device"]
            report["flops_per_s"][backend] = rates = ours.peak(size, seconds)
        for name, rate in rates.items():
            announce(f"{backend}, {name}: {rate / 1e12:.3f} TFLOP/s")


if __name__ == "__main__":
    main()
