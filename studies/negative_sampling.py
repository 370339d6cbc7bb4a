"""Measures what training on a sample of the negatives costs in log loss and calibration, and what time it saves.

    python -m studies.negative_sampling [--rows 2000000] [--share 0.1] [--click-rate 0.03] [--config criteo/lr.yaml]
        [--set training.end_at_base_rate=true]

Both sides train on one generated log with the same settings except `data.negative_sampling`, and are evaluated on the
same test rows, which are not sampled. The bar: calibration between .99 and 1.01, and log loss within .0005 of the side
with all rows, in at most a quarter of its time.
"""

import pathlib
import shutil
import time
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.result_table import result_table
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.metrics import summarise
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.run.run import transform
from ctrpipe.transforms.generate import ClickModel, generate

LOSS_BAR, CALIBRATION_BAR, TIME_BAR = 0.0005, 0.01, 0.25


def train_side(config: RunConfig, data: str, folder: pathlib.Path) -> dict[str, Any]:
    """Returns a training run's test metrics, rows, and seconds without the transform."""
    from ctrpipe.pipeline.training.data import count_rows, packed_batches, prediction_rows  # Keras: after TensorFlow
    from ctrpipe.pipeline.training.job import TrainingJob
    from ctrpipe.pipeline.training.train import train

    check_output(folder)
    with one_run_at_a_time(folder):
        log = transform(config, [data], folder)
        shutil.rmtree(folder / "work", ignore_errors=True)  # a checkpoint would make the training run end at once
        started = time.monotonic()
        fields = log.feature_map
        job = TrainingJob(config.model, config.training, fields, log.train, log.validation, config.seed)
        result = train(job, folder / "work")
        seconds = time.monotonic() - started
    labels, predicted = result.learner.predict(packed_batches(log.test, fields, prediction_rows(fields)))
    rows = count_rows(log.train)
    return {"rows": rows, "test_rows": len(labels), "seconds": seconds, **summarise(labels[:, 0], predicted[:, 0])}


def verdict(everything: dict[str, Any], sampled: dict[str, Any]) -> dict[str, Any]:
    """Returns the differences of the sampled side to the side with all rows, and whether it meets the bar."""
    loss = sampled["log_loss"] - everything["log_loss"]
    share = sampled["seconds"] / everything["seconds"]
    calibrated = abs(sampled["calibration"] - 1) <= CALIBRATION_BAR
    passed = abs(loss) <= LOSS_BAR and calibrated and share <= TIME_BAR
    return {"log_loss_difference": loss, "share_of_seconds": share, "passed": passed}


def table(report: Mapping[str, Any]) -> Table:
    columns = {
        "": "{name}",
        "training rows": "{rows:,}",
        "log loss": "{log_loss:.5f}",
        "AUC": "{auc:.5f}",
        "calibration": "{calibration:.5f}",
        "seconds": "{seconds:.1f}",
    }
    sides = [{"name": name, **side} for name, side in report["sides"].items()]
    return result_table(f"{report['rows']:,} rows", columns, sides)


@Benchmark("studies.negative_sampling", table)
@click.option("--rows", type=click.IntRange(1000), default=2_000_000, help="Rows of the log.")
@click.option("--share", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.1, help="Kept negatives.")
@click.option("--click-rate", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.03)
@click.option("--config", default="criteo/lr.yaml", help="Configuration in configs/ for Criteo's format.")
@click.option("--epochs", type=click.IntRange(1), default=20, help="Maximum epochs.")
@click.option("--set", "own", multiple=True, help="KEY=VALUE of the configuration, for both sides. Repeatable.")
@folder_option("negative_sampling")
def main(
    report: Report,
    rows: int,
    share: float,
    click_rate: float,
    config: str,
    epochs: int,
    own: tuple[str, ...],
    folder: pathlib.Path,
) -> None:
    """Train on all rows and on a sample of the negatives, and compare the two.

    Prints a table, and writes the report as JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"log-{rows}-{click_rate:g}.tsv"
    if not log.exists():
        generate("criteo", rows, 0, log, click_model=ClickModel(base_rate=click_rate))
    load_tensorflow()
    report |= {"rows": rows, "share": share, "click_rate": click_rate, "config": config, "set": own, "sides": {}}
    sides = report["sides"]
    for name, value in (("all rows", 1.0), ("sampled", share)):
        settings = (f"data.negative_sampling={value}", f"training.epochs={epochs}", "training.refit=false", *own)
        announce(f"Training on {name}")
        sides[name] = train_side(load_config(configs_folder() / config, settings), str(log), folder / name)
        report.write()
    report |= verdict(sides["all rows"], sides["sampled"])


if __name__ == "__main__":
    main()
