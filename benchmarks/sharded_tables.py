"""Measures memory and step time of an embedding table sharded over devices: `python -m benchmarks.sharded_tables`."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    cores,
    device_option,
    on_cores,
    positive_numbers,
    shape_options,
)
from benchmarks.harness.ours import OPTIMIZERS, Ours
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.settings import HIDDEN, Shape
from benchmarks.harness.turns import spread
from benchmarks.tables import shape_of
from benchmarks.train import steps_for
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import MAX_IDS

MODEL = "mlp"  # one table; nothing else grows with its rows
TARGET_ROWS = 1_000_000_000
WARM_UP = 3
MIB = 2**20


def bytes_per_row(optimizer: str, dim: int) -> int:
    """Returns the bytes of a row of a float32 table in training, including the optimizer state.

    For dense Adam the gradient is included too.
    """
    numbers = {"adam": 4 * dim, "lazy_adam": 3 * dim, "rowwise_adagrad": dim + 1}
    return 4 * numbers[optimizer]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The memory and time of one optimizer on a number of devices.

    Args:
        optimizer, devices: The optimizer, and the number of devices.
        rows: Rows of the table.
        device_bytes: Bytes of a step's arguments and temporary arrays on one device, as XLA counts them.
        live_bytes: Bytes of the arrays on the fullest device.
        row_bytes: Bytes of a row on all devices together, from the difference to a table with half the rows.
        step_ms: Milliseconds of a step, by round; virtual CPU devices share the cores.
    """

    optimizer: str
    devices: int
    rows: int
    device_bytes: int
    live_bytes: int
    row_bytes: float
    step_ms: tuple[float, ...]

    @property
    def rest_bytes(self) -> float:
        """Bytes on one device excluding the table: other weights, activations, the batch."""
        return self.device_bytes - self.row_bytes * self.rows / self.devices

    def rows_in(self, capacity: float) -> int:
        """Returns the maximum rows of a table on devices of `capacity` bytes each, limited by int32 ids."""
        return min(int(self.devices * (capacity - self.rest_bytes) / self.row_bytes), MAX_IDS)

    def devices_for(self, rows: int, capacity: float) -> int:
        return math.ceil(rows * self.row_bytes / (capacity - self.rest_bytes))

    def as_json(self, dim: int, capacity: float) -> dict[str, Any]:
        values = dataclasses.asdict(self) | {"step_ms": spread(self.step_ms), "rest_bytes": self.rest_bytes}
        values |= {"formula_row_bytes": bytes_per_row(self.optimizer, dim), "largest_rows": self.rows_in(capacity)}
        return values | {"devices_for_target": self.devices_for(TARGET_ROWS, capacity)}


def measure(
    optimizer: str, devices: int, shapes: tuple[Shape, Shape], threads: int, rounds: int, steps: int | None, device: str
) -> Measured:
    """Measures one optimizer. `shapes` are the data's shapes with the whole table and with half of its rows."""
    training = {"backend": "jax", "distribution": "mirrored", "shard_tables": True}
    training |= {"optimizer": optimizer, "gradient_clip_norm": 5.0}
    with Ours("jax", threads, devices, device) as ours:
        ours.about()  # fails if a GPU is requested but not available
        replies = []
        for shape in reversed(shapes):
            options = {"embedding_dim": shape.dim, "hidden_units": HIDDEN}
            replies.append(ours.device_memory(MODEL, options, shape, training=training))

        def seconds(count: int, warmup: int) -> float:
            return ours.train(MODEL, options, shape, count, training=training, warmup=warmup)["seconds"] / count

        count = steps or steps_for(shape.batch / seconds(WARM_UP, WARM_UP), 3.0, shape.batch)
        times = tuple(1000 * seconds(count, 1) for _ in range(rounds))
    half, whole = (reply["argument_bytes"] + reply["temporary_bytes"] for reply in replies)
    rows = [shape.ids * shape.fields for shape in shapes]
    row = (whole - half) * devices / (rows[0] - rows[1])
    announce(f"{optimizer}, {devices} devices: {whole / MIB:,.0f} MiB each, {times[0]:.1f} ms")
    return Measured(optimizer, devices, rows[0], whole, replies[1]["live_bytes"], row, times)


def table(report: Mapping[str, Any]) -> Table:
    shape = report["shape"]
    columns: dict[str, Cell] = {
        "optimizer": "{optimizer}",
        "devices": "{devices}",
        "MiB a device": lambda one: f"{one['device_bytes'] / MIB:,.1f}",
        "live MiB": lambda one: f"{one['live_bytes'] / MIB:,.1f}",
        "bytes a row": "{row_bytes:.1f}",
        "by formula": "{formula_row_bytes}",
        "rest MiB": lambda one: f"{one['rest_bytes'] / MIB:,.1f}",
        "ms a step": "{step_ms[median]:.1f}",
        f"million rows in {report['gigabytes']:g} GB each": lambda one: f"{one['largest_rows'] / 1e6:,.0f}",
        "devices for 10^9": "{devices_for_target}",
    }
    rows, rest = shape["ids"] * shape["fields"], f"batch {shape['batch']}, {report['threads']} threads"
    return result_table(f"A table of {rows:,} rows of width {shape['dim']}, {rest}", columns, report["results"])


@Benchmark("benchmarks.sharded_tables", table)
@click.option("--rows", type=click.IntRange(100), default=4_000_000, help="Rows of the table.")
@click.option("--optimizer", "optimizers", type=click.Choice(OPTIMIZERS), multiple=True, help="Default: all.")
@click.option("--devices", default="1,2,4,8", help="Numbers of devices, separated by commas.")
@click.option("--gigabytes", type=click.FloatRange(1), default=80.0, help="Assumed memory of a device.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Number of timed rounds.")
@click.option("--steps", type=click.IntRange(1), help="Steps in a round. Default: about three seconds of steps.")
@click.option("--batch", type=click.IntRange(1), default=4096, help="Rows in a step.")
@shape_options
@device_option
def main(
    report: Report,
    rows: int,
    optimizers: tuple[str, ...],
    devices: str,
    gigabytes: float,
    rounds: int,
    steps: int | None,
    batch: int,
    fields: int,
    dim: int,
    threads: int | None,
    device: str,
) -> None:
    """Measure the memory of each device and the time of a step when JAX shards a table's rows over devices.

    The devices are virtual parts of the CPU, or GPUs. The maximum table size for devices of --gigabytes is computed
    from the measured bytes.

    The ids are uniform. On the CPU the time shows the overhead of sharding on the same cores, not the gain of more
    devices. Prints a table, writes JSON after every measurement, and prints the JSON on the last line.
    """
    threads, counts = threads or cores(), positive_numbers("--devices", devices)
    shapes = (shape_of(rows, fields, dim, batch), shape_of(rows // 2, fields, dim, batch))
    report.add_load()
    report |= {"model": MODEL, "shape": dataclasses.asdict(shapes[0]), "threads": threads, "gigabytes": gigabytes}
    report |= {"rounds": rounds, "results": []}
    with on_cores(threads):
        for optimizer in optimizers or OPTIMIZERS:
            for count in counts:
                measured = measure(optimizer, count, shapes, threads, rounds, steps, device)
                report["results"].append(measured.as_json(dim, gigabytes * 1e9))
                report.write()


if __name__ == "__main__":
    main()
