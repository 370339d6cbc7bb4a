"""Compares the training speed of our models across backends and CPU settings: `python -m benchmarks.backends`.

Each way to train (TensorFlow, JAX, XLA, bfloat16, oneDNN settings) runs in its own process on the same cores. The
processes alternate; each ratio compares two ways within one round. Writes a JSON report.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    busy,
    chosen_names,
    cores,
    on_cores,
    positive_numbers,
    shape_options,
)
from benchmarks.harness.ours import OPTIMIZERS, Ours
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.settings import HISTORY, MODELS, Shape, our_options
from benchmarks.harness.turns import alternate, ratios, spread
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


@dataclasses.dataclass(frozen=True)
class Measured:
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
    busy: float
    samples_per_s: dict[str, list[float]]
    samples_per_cpu_s: dict[str, list[float]]
    first_step_cpu_s: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, the median of each way, and the median and range of each way over the first one."""
        medians = {way: spread(rounds)["median"] for way, rounds in self.samples_per_s.items()}
        over = {"over": over_the_first(self.samples_per_s), "cpu_over": over_the_first(self.samples_per_cpu_s)}
        return dataclasses.asdict(self) | {"median": medians} | over


def over_the_first(rounds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Returns the median and range of each way's rounds, relative to the first way's."""
    reference, *others = rounds
    return {way: ratios(rounds[way], rounds[reference]) for way in others}


def compare(
    model: str, shape: Shape, running: dict[str, Ours], training: dict[str, Any], rounds: int, seconds: float
) -> Measured:
    """Returns a model's samples/s by way, measured in alternating rounds.

    Args:
        model: Registry name.
        shape: The shape of the data.
        running: The processes by way.
        training: Fields of `ctrpipe.pipeline.config.Training` for all of them.
        rounds: Number of rounds.
        seconds: Seconds per way in a round.
    """
    share, options = busy(), our_options(model, None, shape)

    def train(way: str, steps: int, warmup: int) -> dict[str, float]:
        own = {**training, **WAYS[way].training}
        return running[way].train(model, options, shape, steps, training=own, warmup=warmup)

    first, steps = {}, {}
    for way in running:
        first[way] = train(way, 1, 0)["request_cpu_seconds"]
        steps[way] = steps_for(train(way, 2, 1)["samples_per_s"], seconds, shape.batch)
    replies = alternate({way: lambda way=way: train(way, steps[way], 1) for way in running}, rounds)
    speeds = {way: [reply["samples_per_s"] for reply in of_way] for way, of_way in replies.items()}
    by_cpu = {
        way: [steps[way] * shape.batch / reply["cpu_seconds"] for reply in of_way] for way, of_way in replies.items()
    }
    described = ", ".join(f"{way} {spread(of_way)['median']:,.0f}" for way, of_way in speeds.items())
    announce(f"{model}, batches of {shape.batch}: {described} samples/s")
    return Measured(model, shape.batch, share, speeds, by_cpu, first)


def measure(
    names: list[str],
    ways: tuple[str, ...],
    shapes: list[Shape],
    threads: int,
    training: dict[str, Any],
    rounds: int,
    seconds: float,
) -> Iterator[tuple[dict[str, Any], list[Measured]]]:
    """Yields the versions, the CPU seconds until each process is ready, and the results so far, after each model."""
    results: list[Measured] = []
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
            results.append(compare(name, shape, running, training, rounds, seconds))
            yield about, results


def table(report: Mapping[str, Any]) -> Table:
    reference, *others = report["ways"]
    columns: dict[str, Cell] = {"model": "{model}", "batch": "{batch}"}
    columns[f"{reference}, samples/s"] = f"{{median[{reference}]:,.0f}}"
    for way in others:
        over = f"{{over[{way}][median]:.2f}} ({{over[{way}][min]:.2f}}-{{over[{way}][max]:.2f}})"
        columns |= {f"{way} over it": over, f"{way} over it, by CPU s": f"{{cpu_over[{way}][median]:.2f}}"}
    columns["first step, CPU s"] = lambda one: ", ".join(f"{each:.1f}" for each in one["first_step_cpu_s"].values())
    where = f"{report['threads']} threads, {report['machine']['cpu']}"
    return result_table(f"Training on the CPU ({report['optimizer']}), {where}", columns, report["results"])


def chosen_ways(text: str) -> tuple[str, ...]:
    """Returns the ways of `--ways`; the first is the denominator of the ratios.

    Raises:
        InputError: A name is not in WAYS, or there are fewer than two.
    """
    names = chosen_names("--ways", text, WAYS)
    if len(names) < 2:
        raise InputError(f"--ways: expected two or more of {', '.join(WAYS)}. Received: {text!r}")
    return names


@Benchmark("benchmarks.backends", table)
@click.option("--models", metavar="A,B", default=",".join(MODELS), help="Registry names.", show_default=False)
@click.option("--ways", default="tensorflow,jax", help=f"Ways to train, the first is the reference: {', '.join(WAYS)}.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adam", help="Optimizer of all ways.")
@click.option("--rounds", type=click.IntRange(1), default=5, help="Number of alternating rounds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=1.0, help="Seconds per way in a round.")
@click.option("--batches", default="1024", help="Batch sizes to measure, separated by commas.")
@shape_options
@click.option("--history", type=click.IntRange(1), default=HISTORY, help="Maximum length of a history, one more field.")
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field.")
def main(
    report: Report,
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
) -> None:
    """Measure the training speed of our models on the CPU: TensorFlow against JAX, XLA, and oneDNN without AVX-512.

    The sizes are the same as in benchmarks.train. The result is the median of the rounds' ratios; `backend: auto`
    relies on it (pipeline/training/auto_settings.py). Prints a table, writes JSON after every model, and prints the
    JSON on the last line.
    """
    names, chosen = chosen_models(models), chosen_ways(ways)
    shapes = [Shape(fields, ids, dim, batch, history) for batch in positive_numbers("--batches", batches)]
    threads = threads or cores()
    report |= {"threads": threads, "ways": chosen, "optimizer": optimizer, "rounds": rounds}
    report["shapes"] = [dataclasses.asdict(shape) for shape in shapes]
    for about, results in measure(names, chosen, shapes, threads, {"optimizer": optimizer}, rounds, seconds):
        report |= about | {"results": [result.as_json() for result in results]}
        report["busy"] = max(result.busy for result in results)
        report.write()


if __name__ == "__main__":
    main()
