"""Measures what mixed precision costs in AUC: `python -m benchmarks.precision`.

Each model is trained with the same seeds in float32 and in each low precision, on a generated log with a known best
possible AUC. The test AUCs are compared over rows and seeds, as in `ctrpipe compare`.
"""

import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    chosen_names,
    device_option,
)
from benchmarks.harness.devices import load_backend_on
from benchmarks.harness.packed_log import PARTS, PackedLog, predicted, trained, write_packed_log
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.settings import Shape, our_options
from benchmarks.train import FULL, PRECISIONS, chosen_models
from ctrpipe.common import metrics
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.shards import shards
from ctrpipe.pipeline.compare.sides import compare_sides, side
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.transforms.generate import FORMATS, ClickModel
from ctrpipe.transforms.generate.sample import sample

LOW = PRECISIONS[1:]


def make_log(rows: int, folder: pathlib.Path) -> PackedLog:
    """Writes and returns a log of Criteo's columns with effects of single columns, pairs and triples."""
    spec = FORMATS["criteo"]
    parts = {part: sample(spec, ClickModel(), int(rows * of), seed) for part, (seed, of) in PARTS.items()}
    return write_packed_log("criteo", [column.name for column in spec.columns], parts, folder)


def measure(
    model: str,
    log: PackedLog,
    training: Training,
    precisions: Sequence[str],
    seeds: int,
    shape: Shape,
    work: pathlib.Path,
) -> dict[str, dict[str, Any]]:
    """Returns, by precision, each training run's test AUC and seconds, and the AUC difference to float32."""
    options = our_options(model, None, shape)
    scores: dict[str, list[np.ndarray]] = {}
    results: dict[str, dict[str, Any]] = {}
    shard = shards(len(log.labels))
    for precision in (FULL, *precisions):
        own, seconds = training.model_copy(update={"precision": precision}), []
        scores[precision] = []
        for seed in range(seeds):
            started = time.perf_counter()
            learner = trained(Model(name=model, **options), own, log, seed, work / model / precision / str(seed))
            seconds.append(time.perf_counter() - started)
            scores[precision].append(predicted(learner, log))
        aucs = [metrics.auc(log.labels, each) for each in scores[precision]]
        results[precision] = {"auc": aucs, "seconds": seconds}
        announce(f"{model}, {precision}: test AUC {statistics.mean(aucs):.5f}")
        if precision != FULL:
            sides = (side(log.labels, scores[name], shard) for name in (FULL, precision))
            tested = compare_sides(*sides, "auc").tested
            assert tested  # the log has both classes
            results[precision]["difference"] = dataclasses.asdict(tested)
    return results


def table(report: Mapping[str, Any]) -> Table:
    rows = [
        {"model": model, "precision": precision, "difference": None, **numbers}
        for model, by_precision in report["models"].items()
        for precision, numbers in by_precision.items()
    ]
    columns: dict[str, Cell] = {
        "model": "{model}",
        "precision": "{precision}",
        "test AUC": lambda one: f"{statistics.mean(one['auc']):.5f}",
        "over float32": if_any("difference", "{difference[difference]:+.5f}"),
        "95%": if_any("difference", "{difference[interval][0]:+.5f} .. {difference[interval][1]:+.5f}"),
        "s a training": lambda one: f"{statistics.median(one['seconds']):.1f}",
    }
    title = f"{report['rows']:,} rows, {report['seeds']} seeds; the best possible AUC is {report['best_auc']:.5f}"
    return result_table(title, columns, rows)


@Benchmark("benchmarks.precision", table)
@click.option("--models", default="deepfm,dcn_v2", help="Models of benchmarks.train, separated by commas.")
@click.option("--precisions", default=",".join(LOW), help="Low precisions. float16 may be slow on a CPU.")
@click.option("--seeds", type=click.IntRange(2), default=3, help="Training runs per precision.")
@click.option("--rows", type=click.IntRange(1000), default=100_000, help="Training rows.")
@click.option("--epochs", type=click.IntRange(1), default=3, help="Maximum epochs of a training run.")
@click.option("--batch", type=click.IntRange(1), default=1024, help="Rows in a step.")
@click.option("--dim", type=click.IntRange(1), default=16, help="Width of an embedding.")
@device_option
def main(
    report: Report,
    models: str,
    precisions: str,
    seeds: int,
    rows: int,
    epochs: int,
    batch: int,
    dim: int,
    device: str,
) -> None:
    """Measure what training in mixed precision costs in test AUC, compared with float32 and the same seeds.

    The variable KERAS_BACKEND selects tensorflow or jax; JAX needs no TensorFlow. Prints a table, writes JSON after
    every model, and prints the JSON on the last line.
    """
    names: Sequence[str] = chosen_models(models)
    low = chosen_names("--precisions", precisions, LOW)
    training = Training(
        backend=load_backend_on(device),
        batch_size=batch,
        epochs=epochs,
        learning_rate=0.001,
        monitor="auc",
        patience=4,
        distribution="one_device",
    )
    report.add_load()
    report |= {"device": device, "backend": training.backend, "rows": rows, "seeds": seeds}
    report |= {"training": training.model_dump(mode="json"), "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        log = make_log(rows, work)
        report["best_auc"] = log.best_auc
        for name in names:
            report["models"][name] = measure(name, log, training, low, seeds, Shape(dim=dim), work)
            report.write()


if __name__ == "__main__":
    main()
