"""Estimates the daily cost of a log and an embedding table of any size, by stage, from measured marginal costs.

    python -m benchmarks.scale [--log-tb 1] [--table-rows 10000000000] [--hours 6] [--KEY VALUE ...] [--output FILE]

A stage takes `fixed seconds + rows / (rows per second and core x cores x efficiency)`. Cores are added until the stage
fits into its time; beyond one machine's cores, several machines share the work. Every assumption is an option;
docs/explanation/scale.md says where the defaults were measured. Nothing is run: the result is arithmetic,
only as accurate as the assumptions.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.result_table import result_table
from ctrpipe.common.errors import InputError

GB, TB, GIB = 1e9, 1e12, 2**30
DAY = 86_400
BEAM, HOSTS = "Beam on a cluster", "hosts of TF_CONFIG"
ROW_BYTES = {"adam": 256, "lazy_adam": 192, "rowwise_adagrad": 68}  # width 16, with optimizer state, by XLA


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """The assumptions; each field is an option of the command."""

    row_bytes: float = 243.0  # per raw row
    read_rows: float = 142_000.0  # rows per second and core, from the raw log to packed files
    train_rows: float = 9_200.0  # rows per second and core of DCN-v2's training step
    device_train_rows: float = 2_490_000.0  # rows per second of a GPU that trains DCN-v2 from packed files
    score_rows: float = 24_400.0  # rows per second and core, from the raw log to scores
    packed_bytes: float = 61.0  # per packed row on disk
    fixed_seconds: float = 9.0  # of a run: imports, graph, merge
    job_seconds: float = 40.0  # of a job on a cluster: sending the program, starting the workers
    jobs: float = 5.0  # per run: reading, statistics, counting, packing, predictions
    efficiency: float = 0.86  # of a core when four are busy
    machine_cores: float = 64.0
    machine_gib: float = 256.0
    device_gib: float = 80.0
    dim: float = 16.0
    core_price: float = 0.05  # per hour
    device_price: float = 3.0  # per hour
    disk_price: float = 0.03  # per GB and month
    epochs: float = 1.0


@dataclasses.dataclass(frozen=True)
class Stage:
    """The resources of a stage: rows, cores, seconds, the cores' price, and the engine."""

    name: str
    rows: float
    cores: int
    seconds: float
    engine: str
    price: float


def stage(name: str, rows: float, rate: float, seconds: float, several: tuple[str, float], given: Assumptions) -> Stage:
    """Returns the stage with the fewest cores that finish in `seconds`.

    Args:
        rows: The rows to process.
        rate: Rows per second and core.
        seconds: Time limit, including the start.
        several: The engine for several machines, and the stage's number of jobs on it.

    Raises:
        InputError: The fixed part alone takes longer.
    """
    alone = seconds - given.fixed_seconds
    if alone <= 0:
        raise too_short(name, given.fixed_seconds, seconds)
    cores = math.ceil(rows / (rate * alone))
    if cores > 1:
        cores = math.ceil(rows / (rate * given.efficiency * alone))
    fixed, engine = given.fixed_seconds, "one machine"
    if cores > given.machine_cores:
        engine, jobs = several
        fixed += jobs * given.job_seconds
        if seconds <= fixed:
            raise too_short(name, fixed, seconds)
        cores = math.ceil(rows / (rate * given.efficiency * (seconds - fixed)))
    efficiency = given.efficiency if cores > 1 else 1.0
    taken = fixed + rows / (rate * efficiency * cores)
    return Stage(name, rows, cores, taken, engine, cores * taken / 3600 * given.core_price)


def too_short(name: str, fixed: float, seconds: float) -> InputError:
    return InputError(f"--hours: {name} has {fixed:,.0f} s that do not shrink, and {seconds:,.0f} s in all; give more")


def device_training(rows: float, given: Assumptions) -> Stage:
    """Returns the training of all epochs on one device, whose price is the device's."""
    seconds = given.fixed_seconds + rows * given.epochs / given.device_train_rows
    price = seconds / 3600 * given.device_price
    return Stage("training, on a device instead", rows * given.epochs, 1, seconds, "JAX, one device", price)


def table_bytes(rows: float, dim: float, optimizer: str) -> float:
    """Returns the bytes of an embedding table and its optimizer state in training."""
    return rows * dim / 16 * ROW_BYTES[optimizer]


def table(rows: float, given: Assumptions, hours: float) -> list[dict[str, Any]]:
    """Returns each optimizer's bytes, number of devices, and the price of the devices for the hours."""
    tables = []
    for optimizer in ROW_BYTES:
        size = table_bytes(rows, given.dim, optimizer)
        devices = math.ceil(size / (given.device_gib * GIB))
        price = devices * hours * given.device_price
        tables.append({"optimizer": optimizer, "bytes": size, "devices": devices, "price": price})
    return tables


def breaks_first(rows: float, table_rows: float, given: Assumptions) -> list[str]:
    """Returns the limits that the sizes exceed, with the factor, the largest factor first."""
    values = table_rows * given.dim * 4
    limits = [
        (values / (given.machine_gib * GIB), "the table's values, which checkpoint and export hold in a host's memory"),
        (table_rows / 2**31, "the ids, which are int32"),
        (values / (given.device_gib * GIB), "the table's values in one device's memory"),
        (
            rows * given.epochs / given.train_rows / given.machine_cores / DAY,
            "training on one machine's cores, in a day",
        ),
        (rows / given.read_rows / given.machine_cores / DAY, "reading on one machine's cores, in a day"),
    ]
    over = sorted((share, text) for share, text in limits if share > 1)
    return [f"{text}: {share:,.1f} times what there is" for share, text in reversed(over)]


def shown(report: Mapping[str, Any]) -> Table:
    """Returns the table of the stages, the day's packed files and the embedding tables."""
    hours, table_rows = report["hours"], report["table_rows"]
    lines = [
        {"stage": one["name"], "engine": one["engine"], "cores": f"{one['cores']:,}", "price": one["price"]}
        | {"hours": f"{one['seconds'] / 3600:.3g}"}
        for one in [*report["stages"], report["device_training"]]
    ]
    storage = {"stage": "packed files of the day, on disk", "price": report["storage_price"]}
    lines.append({**storage, "engine": "", "cores": "", "hours": ""})
    for one in report["tables"]:
        name = f"table of {table_rows:.3g} rows, {one['optimizer']}: {one['bytes'] / TB:.2f} TB"
        devices = {"cores": f"{one['devices']:,} devices", "hours": f"{hours:g}", "price": one["price"]}
        lines.append({"stage": name, "engine": "JAX, shard_tables", **devices})
    columns = {name: f"{{{name}}}" for name in ("stage", "engine", "cores", "hours")}
    title = f"{report['rows']:,.0f} rows a day, {hours:g} h a stage"
    return result_table(title, {**columns, "price": "{price:,.2f}"}, lines)


def with_assumptions(main: Any) -> Any:
    for field in reversed(dataclasses.fields(Assumptions)):
        option = f"--{field.name.replace('_', '-')}"
        main = click.option(option, type=click.FloatRange(0, min_open=True), default=field.default)(main)
    return main


@Benchmark("benchmarks.scale", shown)
@click.option("--log-tb", type=click.FloatRange(0, min_open=True), default=1.0, help="A day's log, 10^12 bytes.")
@click.option("--table-rows", type=click.FloatRange(1), default=1e10, help="Rows of the embedding table.")
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=6.0, help="Time limit of a stage.")
@with_assumptions
def main(report: Report, log_tb: float, table_rows: float, hours: float, **assumptions: float) -> None:
    """Estimate the daily cost of a log and a table from measured marginal costs.

    Prints the exceeded limits and a table, and writes the report as JSON.
    """
    given = Assumptions(**assumptions)
    rows, seconds = log_tb * TB / given.row_bytes, hours * 3600
    stages = [
        stage("raw log to packed files", rows, given.read_rows, seconds, (BEAM, given.jobs), given),
        stage("training", rows * given.epochs, given.train_rows, seconds, (HOSTS, 0), given),
        stage("scoring the day", rows, given.score_rows, seconds, (BEAM, 1), given),
    ]
    storage = rows * given.packed_bytes / GB * given.disk_price / 30
    tables = table(table_rows, given, hours)
    limits = breaks_first(rows, table_rows, given)
    for text in limits:
        click.echo(f"Over the limit: {text}")
    report |= {
        "assumptions": dataclasses.asdict(given),
        "table_rows": table_rows,
        "hours": hours,
        "rows": rows,
        "stages": [dataclasses.asdict(each) for each in stages],
        "device_training": dataclasses.asdict(device_training(rows, given)),
        "storage_price": storage,
        "tables": tables,
        "limits": limits,
    }


if __name__ == "__main__":
    main()
