"""Measures how the time of a training step grows with the embedding table: `python -m benchmarks.tables`."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import (
    busy,
    busy_caption,
    command,
    cores,
    device_option,
    finish,
    machine,
    on_cores,
    output_option,
    shape_options,
    spread,
    write,
)
from benchmarks.harness.ours import BACKENDS, OPTIMIZERS, Ours
from benchmarks.harness.settings import HIDDEN, Shape
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


@dataclasses.dataclass
class Growth:
    """Milliseconds of a step, by round, with the small and the large table.

    Args:
        optimizer: As in a run's configuration.
        zipf: Exponent of Zipf's law for the ids; None for uniform ids.
    """

    optimizer: str
    zipf: float | None
    small: list[float] = dataclasses.field(default_factory=list)
    large: list[float] = dataclasses.field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [large / small for small, large in zip(self.small, self.large, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, their medians, median and range of large over small, and whether the target is met."""
        ratio = spread(self.ratios)
        target = TARGET if self.zipf and self.optimizer != DENSE else None
        values = dataclasses.asdict(self) | {"small_ms": spread(self.small), "large_ms": spread(self.large)}
        return values | {"ratio": ratio, "target": target, "met": None if target is None else ratio["median"] <= target}


@dataclasses.dataclass(frozen=True)
class Benchmark:
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
        growth = Growth(optimizer, zipf)
        for index in range(self.rounds):
            small, large = (
                self.step_ms(ours, shape, optimizer, zipf, count, 1)
                for (ours, shape), count in zip(sides, steps, strict=True)
            )
            growth.small.append(small)
            growth.large.append(large)
            announce(f"{name}: round {index + 1} of {self.rounds}: {small:.1f} ms, {large:.1f} ms")
        return growth

    def step_ms(self, ours: Ours, shape: Shape, optimizer: str, zipf: float | None, steps: int, warmup: int) -> float:
        hyperparameters = {"hidden_units": HIDDEN, "embedding_dim": shape.dim, "embedding_l2": L2}
        training = {"optimizer": optimizer, "gradient_clip_norm": CLIP_NORM}
        options = {"training": training, "zipf": zipf, "batches": BATCHES, "warmup": warmup, "history": shape.history}
        return 1000 * ours.train(self.model, hyperparameters, shape, steps, **options)["seconds"] / steps


def shape_of(rows: int, fields: int, dim: int, batch: int, history: int = 0) -> Shape:
    """Returns a shape of equally large fields with about `rows` ids in total; a history uses the first field's ids."""
    return Shape(fields, max(rows // fields, 2), dim, batch, history)


def table(growths: list[Growth], rows: tuple[int, int], title: str, share: float) -> Table:
    result_table = Table(title=title, caption=busy_caption(share))
    for name in ("optimizer", "ids", f"ms, {rows[0]:,} rows", f"ms, {rows[1]:,} rows", "ratio", "range", "target", ""):
        result_table.add_column(name, justify="left" if name in ("optimizer", "ids", "") else "right")
    for growth in growths:
        numbers = growth.as_json()
        ratio, target = numbers["ratio"], numbers["target"]
        row = [growth.optimizer, f"Zipf {growth.zipf}" if growth.zipf else "uniform"]
        row += [f"{numbers['small_ms']['median']:.1f}", f"{numbers['large_ms']['median']:.1f}"]
        row += [f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"]
        result_table.add_row(*row, *([f"{target:.1f}", "met" if numbers["met"] else "missed"] if target else ["", ""]))
    return result_table


def measure(
    optimizers: list[str], laws: tuple[float | None, ...], backend: str, threads: int, device: str, **settings: Any
) -> Iterator[tuple[dict[str, Any], list[Growth]]]:
    """Yields the backend's description and the results so far, after each optimizer."""
    growths: list[Growth] = []
    for optimizer in optimizers:
        sides = (Ours(backend, threads, device=device) for _ in range(2))
        with on_cores(threads), next(sides) as small, next(sides) as large:
            about = small.about()
            benchmark = Benchmark(small, large, **settings)
            growths += [benchmark.grow(optimizer, zipf) for zipf in laws]
        yield about, growths


@command("benchmarks.tables")
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
@output_option("tables")
def main(
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
    output: pathlib.Path,
) -> None:
    """Measure the time of a training step with a large embedding table over that with a small one.

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
    report: dict[str, Any] = {"benchmark": "tables", "machine": machine(), "model": model, "rows": rows}
    report |= {"batch": batch, "fields": fields, "dim": dim, "history": history, "threads": threads}
    report |= {"rounds": rounds, "busy": busy()}
    growths: list[Growth] = []
    for about, growths in measure(optimizers, (zipf, None), backend, threads, device, **settings):
        report |= about | {"results": [growth.as_json() for growth in growths]}
        write(report, output)
    kind = f"{model}, history of {history}" if history else model
    title = f"A training step of {kind} ({backend}), batch {batch}, {threads} threads, {report['machine']['cpu']}"
    finish(report, output, table(growths, rows, title, report["busy"]))


if __name__ == "__main__":
    main()
