"""Measures how the time of a training step grows with the embedding table: `python -m benchmarks.tables`."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    cores,
    device_option,
    on_cores,
    shape_options,
)
from benchmarks.harness.ours import BACKENDS, OPTIMIZERS, Ours
from benchmarks.harness.result_table import Cell, if_any, met, result_table
from benchmarks.harness.settings import HIDDEN, Shape
from benchmarks.harness.turns import alternate, ratios, spread
from benchmarks.train import steps_for
from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce

TARGET = 1.3  # maximum ratio of the step with the large table to the step with the small one, for Zipf ids
DENSE = "adam"
BATCHES = 64  # enough batches for the rows they read in a large table to exceed the CPU cache
WARM_UP = 5
MODELS = ("mlp", "deepfm", "wide_deep", "pnn", "din")
# As in a run's configuration: operations of a step on the whole table are part of its cost.
CLIP_NORM, L2 = 5.0, 1e-6


@dataclasses.dataclass(frozen=True)
class Growth:
    """Milliseconds of a step, by round, with the small and the large table.

    Args:
        optimizer: As in a run's configuration.
        zipf: Exponent of Zipf's law for the ids; None for uniform ids.
    """

    optimizer: str
    zipf: float | None
    small: list[float]
    large: list[float]

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, their medians, median and range of large over small, and whether the target is met."""
        ratio = ratios(self.large, self.small)
        target = TARGET if self.zipf and self.optimizer != DENSE else None
        values = dataclasses.asdict(self) | {"small_ms": spread(self.small), "large_ms": spread(self.large)}
        return values | {"ratio": ratio, "target": target, "met": None if target is None else ratio["median"] <= target}


@dataclasses.dataclass(frozen=True)
class TwoTables:
    """One optimizer on a small and a large table, each in its own process.

    Args:
        small, large: The processes.
        model: Registry name.
        shapes: The shapes of the data with the small and with the large table.
        rounds: Number of alternating rounds.
        steps: Timed steps of a round; None: as many as take about `seconds`.
        seconds: Seconds of a round if `steps` is None.
    """

    small: Ours
    large: Ours
    model: str
    shapes: tuple[Shape, Shape]
    rounds: int
    steps: int | None
    seconds: float

    def grow(self, optimizer: str, zipf: float | None) -> Growth:
        """Measures an optimizer's steps on the small and the large table, alternating."""
        sides = tuple(zip((self.small, self.large), self.shapes, strict=True))
        name = f"{optimizer}, {f'Zipf {zipf}' if zipf else 'uniform'}"
        steps = []
        for ours, shape in sides:
            trial = self.step_ms(ours, shape, optimizer, zipf, WARM_UP, WARM_UP)
            steps.append(self.steps or steps_for(1000 * shape.batch / trial, self.seconds, shape.batch))

        def tell(number: int, ms: Mapping[str, float]) -> None:
            announce(f"{name}: round {number} of {self.rounds}: {ms['small']:.1f} ms, {ms['large']:.1f} ms")

        turns = {
            side: lambda ours=ours, shape=shape, count=count: self.step_ms(ours, shape, optimizer, zipf, count, 1)
            for side, (ours, shape), count in zip(("small", "large"), sides, steps, strict=True)
        }
        return Growth(optimizer, zipf, **alternate(turns, self.rounds, tell))

    def step_ms(self, ours: Ours, shape: Shape, optimizer: str, zipf: float | None, steps: int, warmup: int) -> float:
        hyperparameters = {"hidden_units": HIDDEN, "embedding_dim": shape.dim, "embedding_l2": L2}
        training = {"optimizer": optimizer, "gradient_clip_norm": CLIP_NORM}
        options = {"training": training, "zipf": zipf, "batches": BATCHES, "warmup": warmup, "history": shape.history}
        return 1000 * ours.train(self.model, hyperparameters, shape, steps, **options)["seconds"] / steps


def shape_of(rows: int, fields: int, dim: int, batch: int, history: int = 0) -> Shape:
    """Returns a shape of equally large fields with about `rows` ids in total; a history uses the first field's ids."""
    return Shape(fields, max(rows // fields, 2), dim, batch, history)


def table(report: Mapping[str, Any]) -> Table:
    small, large = report["rows"]
    columns: dict[str, Cell] = {
        "optimizer": "{optimizer}",
        "ids": lambda one: f"Zipf {one['zipf']}" if one["zipf"] else "uniform",
        f"ms, {small:,} rows": "{small_ms[median]:.1f}",
        f"ms, {large:,} rows": "{large_ms[median]:.1f}",
        "ratio": "{ratio[median]:.2f}",
        "range": "{ratio[min]:.2f}-{ratio[max]:.2f}",
        "target": if_any("target", "{target:.1f}"),
        "": met,
    }
    kind = f"{report['model']}, history of {report['history']}" if report["history"] else report["model"]
    sizes = f"batch {report['batch']}, {report['threads']} threads, {report['machine']['cpu']}"
    return result_table(f"A training step of {kind} ({report['backend']}), {sizes}", columns, report["results"])


def measure(
    optimizers: list[str], laws: tuple[float | None, ...], backend: str, threads: int, device: str, **settings: Any
) -> Iterator[tuple[dict[str, Any], list[Growth]]]:
    """Yields the backend's description and the results so far, after each optimizer."""
    growths: list[Growth] = []
    for optimizer in optimizers:
        processes = (Ours(backend, threads, device=device) for _ in range(2))
        with on_cores(threads), next(processes) as small, next(processes) as large:
            about = small.about()
            sides = TwoTables(small, large, **settings)
            growths += [sides.grow(optimizer, zipf) for zipf in laws]
        yield about, growths


@Benchmark("benchmarks.tables", table)
@click.option("--backend", type=click.Choice(BACKENDS), default="tensorflow", help="Backend to train on.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="lazy_adam", help="Optimizer to measure.")
@click.option("--dense/--no-dense", default=True, help="Also measure dense Adam.")
@click.option("--model", type=click.Choice(MODELS), default="deepfm", help="Model to train; din needs --history.")
@click.option("--small", type=click.IntRange(2), default=100_000, help="Rows of the small table.")
@click.option("--large", type=click.IntRange(2), default=10_000_000, help="Rows of the large table.")
@click.option("--zipf", type=click.FloatRange(0, min_open=True), default=1.2, help="Exponent of Zipf's law.")
@click.option("--rounds", type=click.IntRange(1), default=5, help="Number of alternating rounds.")
@click.option("--steps", type=click.IntRange(1), help="Timed steps in a round, instead of --seconds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=3.0, help="Seconds per table in a round.")
@click.option("--batch", type=click.IntRange(1), default=2048, help="Rows in a step.")
@shape_options
@click.option("--history", type=click.IntRange(0), default=0, help="Maximum length of a history that shares a table.")
@device_option
def main(
    report: Report,
    backend: str,
    optimizer: str,
    dense: bool,
    model: str,
    small: int,
    large: int,
    zipf: float,
    rounds: int,
    steps: int | None,
    seconds: float,
    batch: int,
    fields: int,
    dim: int,
    threads: int | None,
    history: int,
    device: str,
) -> None:
    """Measure the ratio of a training step's times with a large and a small embedding table.

    The tables alternate, each in its own process, with gradients clipped by norm and L2 on the embeddings. The ids of a
    field first follow Zipf's law, the most frequent first as in a vocabulary. Then they are uniform, the worst case:
    every row of a large table comes from memory. With --history a row also has up to that many ids of the first field,
    by the same law: candidate and history share a table; all models except din average the history. Needs about 6 GB of
    memory for 10 million rows with dense Adam. Prints a table, writes JSON after every optimizer, and prints the JSON
    on the last line.

    Raises:
        InputError: --model din is given without --history.
    """
    if model == "din" and not history:
        raise InputError("--model din reads a history; give --history 50")
    threads = threads or cores()
    shapes = (shape_of(small, fields, dim, batch, history), shape_of(large, fields, dim, batch, history))
    rows = (shapes[0].ids * fields, shapes[1].ids * fields)
    settings = {"model": model, "shapes": shapes, "rounds": rounds, "steps": steps, "seconds": seconds}
    optimizers = list(dict.fromkeys([optimizer, DENSE] if dense else [optimizer]))
    report.add_load()
    report |= {"model": model, "rows": rows, "batch": batch, "fields": fields, "dim": dim, "history": history}
    report |= {"threads": threads, "rounds": rounds}
    for about, growths in measure(optimizers, (zipf, None), backend, threads, device, **settings):
        report |= about | {"results": [growth.as_json() for growth in growths]}
        report.write()


if __name__ == "__main__":
    main()
