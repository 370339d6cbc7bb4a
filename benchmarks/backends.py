"""Compares the training speed of our models across backends and CPU settings: `python -m benchmarks.backends`.

Each way to train (TensorFlow, JAX, XLA, bfloat16, oneDNN settings) runs in its own process on the same cores. The
processes alternate; each ratio compares two ways within one round. Writes a JSON report.
"""

import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import (
    busy,
    busy_caption,
    chosen_names,
    command,
    cores,
    finish,
    machine,
    on_cores,
    output_option,
    positive_numbers,
    shape_options,
    spread,
    write,
)
from benchmarks.harness.ours import OPTIMIZERS, Ours
from benchmarks.harness.settings import HISTORY, MODELS, Shape, our_options
from benchmarks.train import chosen_models, steps_for
from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce

REFERENCE = "tensorflow"  # denominator of the ratios


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to train: a Keras backend, fields of `ctrpipe.pipeline.config.Training`, and environment variables."""

    backend: str
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    variables: dict[str, str] = dataclasses.field(default_factory=dict)


WAYS = {
    REFERENCE: Way("tensorflow"),
    "jax": Way("jax"),
    "tensorflow_xla": Way("tensorflow", {"xla": True}),
    "tensorflow_bfloat16": Way("tensorflow", {"precision": "mixed_bfloat16"}),
    # oneDNN's code path on a CPU without AVX-512; there it equals `tensorflow`.
    "tensorflow_avx2": Way("tensorflow", variables={"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "tensorflow_no_onednn": Way("tensorflow", variables={"TF_ENABLE_ONEDNN_OPTS": "0"}),
}


@dataclasses.dataclass
class Beside:
    """The results of one model at one batch size, by way.

    Args:
        model: Registry name.
        batch: Rows in a step.
        busy: Share of the machine's cores that other programs used before the measurement.
        samples_per_s: Samples/s of each round.
        samples_per_cpu_s: Samples per second of CPU time of each round; less sensitive to other programs.
        first_step_cpu_s: CPU seconds until the first step is done: building the model, tracing and compiling the step.
    """

    model: str
    batch: int
    busy: float = 0.0
    samples_per_s: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    samples_per_cpu_s: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    first_step_cpu_s: dict[str, float] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, the median of each way, and the median and range of each way over the first one."""
        medians = {way: spread(rounds)["median"] for way, rounds in self.samples_per_s.items()}
        over = {"over": ratios(self.samples_per_s), "cpu_over": ratios(self.samples_per_cpu_s)}
        return dataclasses.asdict(self) | {"median": medians} | over


def ratios(rounds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Returns the median and range of each way's rounds over those of the first way."""
    reference, *others = rounds
    return {
        way: spread([mine / other for mine, other in zip(rounds[way], rounds[reference], strict=True)])
        for way in others
    }


def compare(
    model: str, shape: Shape, running: dict[str, Ours], training: dict[str, Any], rounds: int, seconds: float
) -> Beside:
    """Returns a model's samples/s by way, measured in alternating rounds.

    Args:
        model: Registry name.
        shape: The shape of the data.
        running: The processes by way.
        training: Fields of `ctrpipe.pipeline.config.Training` for all of them.
        rounds: Number of rounds.
        seconds: Seconds per way in a round.
    """
    found, options, steps = Beside(model, shape.batch, busy()), our_options(model, None, shape), {}

    def train(way: str, steps: int, warmup: int) -> dict[str, float]:
        own = {**training, **WAYS[way].training}
        return running[way].train(model, options, shape, steps, training=own, warmup=warmup)

    for way in running:
        found.first_step_cpu_s[way] = train(way, 1, 0)["request_cpu_seconds"]
        steps[way] = steps_for(train(way, 2, 1)["samples_per_s"], seconds, shape.batch)
        found.samples_per_s[way], found.samples_per_cpu_s[way] = [], []
    for _ in range(rounds):
        for way in running:
            reply = train(way, steps[way], 1)
            found.samples_per_s[way].append(reply["samples_per_s"])
            found.samples_per_cpu_s[way].append(steps[way] * shape.batch / reply["cpu_seconds"])
    described = ", ".join(f"{way} {spread(speeds)['median']:,.0f}" for way, speeds in found.samples_per_s.items())
    announce(f"{model}, batches of {shape.batch}: {described} samples/s")
    return found


def measure(
    names: list[str],
    ways: tuple[str, ...],
    shapes: list[Shape],
    threads: int,
    training: dict[str, Any],
    rounds: int,
    seconds: float,
) -> Iterator[tuple[dict[str, Any], list[Beside]]]:
    """Yields the versions, the CPU seconds until each process is ready, and the results so far, after each model."""
    found: list[Beside] = []
    with on_cores(threads), contextlib.ExitStack() as stack:
        running = {
            way: stack.enter_context(Ours(WAYS[way].backend, threads, device="cpu", variables=WAYS[way].variables))
            for way in ways
        }
        about: dict[str, Any] = {"versions": {}, "start_cpu_s": {}}
        for way, one in running.items():
            ready = one.about()
            about["versions"] |= ready["versions"]
            about["start_cpu_s"][way] = ready["cpu_seconds"]
        for name, shape in itertools.product(names, shapes):
            found.append(compare(name, shape, running, training, rounds, seconds))
            yield about, found


def table(results: list[Beside], title: str) -> Table:
    reference, *others = results[0].samples_per_s
    result_table = Table(title=title, caption=busy_caption(max(result.busy for result in results)))
    result_table.add_column("model")
    for name in ("batch", f"{reference}, samples/s"):
        result_table.add_column(name, justify="right")
    for way in others:
        result_table.add_column(f"{way} over it", justify="right")
        result_table.add_column("by CPU s", justify="right")
    result_table.add_column("first step, CPU s", justify="right")
    for result in results:
        numbers = result.as_json()
        cells = [f"{numbers['median'][reference]:,.0f}"]
        for way in others:
            over = numbers["over"][way]
            cells.append(f"{over['median']:.2f} ({over['min']:.2f}-{over['max']:.2f})")
            cells.append(f"{numbers['cpu_over'][way]['median']:.2f}")
        first = ", ".join(f"{seconds:.1f}" for seconds in result.first_step_cpu_s.values())
        result_table.add_row(result.model, str(result.batch), *cells, first)
    return result_table


def chosen_ways(text: str) -> tuple[str, ...]:
    """Returns the ways of `--ways`; the first is the denominator of the ratios.

    Raises:
        InputError: A name is not in WAYS, or there are fewer than two.
    """
    names = chosen_names("--ways", text, WAYS)
    if len(names) < 2:
        raise InputError(f"--ways: expected two or more of {', '.join(WAYS)}. Received: {text!r}")
    return names


@command("benchmarks.backends")
@click.option("--models", metavar="A,B", default=",".join(MODELS), help="Registry names.", show_default=False)
@click.option("--ways", default="tensorflow,jax", help=f"Ways to train, the first is the reference: {', '.join(WAYS)}.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adam", help="Optimizer of all ways.")
@click.option("--rounds", type=click.IntRange(1), default=5, help="Number of alternating rounds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, help="Seconds per way in a round.")
@click.option("--batches", default="1024", help="Batch sizes to measure, separated by commas.")
@shape_options
@click.option("--history", type=click.IntRange(1), default=HISTORY, help="Maximum length of a history, one more field.")
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field.")
@output_option("backends")
def main(
    models: str,
    ways: str,
    optimizer: str,
    rounds: int,
    seconds: float,
    batches: str,
    fields: int,
    dim: int,
    threads: int | None,
    history: int,
    ids: int,
    output: pathlib.Path,
) -> None:
    """Measure the training speed of our models on the CPU: TensorFlow against JAX, XLA, and oneDNN without AVX-512.

    The sizes are those of benchmarks.train. The result is the median of the rounds' ratios; `training.backend: auto`
    relies on it (pipeline/training/faster_backend.py). Prints a table, writes JSON after every model, and prints the
    JSON on the last line.
    """
    names, chosen = chosen_models(models), chosen_ways(ways)
    shapes = [Shape(fields, ids, dim, batch, history) for batch in positive_numbers("--batches", batches)]
    threads = threads or cores()
    report: dict[str, Any] = {"benchmark": "backends", "machine": machine(), "threads": threads, "ways": chosen}
    report |= {"shapes": [dataclasses.asdict(shape) for shape in shapes], "optimizer": optimizer, "rounds": rounds}
    results: list[Beside] = []
    for about, results in measure(names, chosen, shapes, threads, {"optimizer": optimizer}, rounds, seconds):
        report |= about | {"results": [result.as_json() for result in results]}
        write(report, output)
    title = f"Training on the CPU ({optimizer}), {threads} threads, {report['machine']['cpu']}"
    finish(report, output, table(results, title))


if __name__ == "__main__":
    main()
