"""Measures the share of a grid search's training steps that `ctrpipe tune` needs to match the grid's best model.

    python -m benchmarks.tune --data criteo_60k.tsv.gz [--seeds 3] [--trials 24] [--folder DIR] [--output FILE]

The grid has 48 points of a DeepFM on a log in Criteo's format: 4 learning rates, 3 embedding dropouts, 2 widths and 2
hidden networks. The study searches the same widths and networks, and the two ranges spanned by the grid's numbers. Both
train with the same seed, early stopping and evaluations, and are compared by validation AUC. A stopped trial counts
with the steps it used. --seeds are seeds of the search. Results are kept in the folder: the same command resumes.
"""

import dataclasses
import itertools
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.result_table import Cell, if_any, result_table
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.run.run import transform
from ctrpipe.pipeline.sweep.plan import value_text
from ctrpipe.pipeline.tune.plan import Budget, TunePlan, make_plan
from ctrpipe.pipeline.tune.plots import budget_curve
from ctrpipe.pipeline.tune.space import with_settings

GRID: dict[str, list[Any]] = {
    "training.learning_rate": [3e-4, 1e-3, 3e-3, 1e-2],
    "model.embedding_dropout": [0.0, 0.25, 0.5],
    "model.embedding_dim": [8, 16],
    "model.hidden_units": [[64, 32], [200, 100]],
}
SEARCH = (
    "{training.learning_rate: {log: [3e-4, 1e-2]}, model.embedding_dropout: {linear: [0, 0.5]}, "
    "model.embedding_dim: [8, 16], model.hidden_units: [[64, 32], [200, 100]]}"
)
SETTINGS = (
    "model={name: deepfm, embedding_dim: 8, hidden_units: [64, 32], embedding_stddev: 0.01}",
    "training={batch_size: 1024, epochs: 3, evaluations_per_epoch: 4, patience: 4, plateau: null}",
)
BAR = 0.25  # maximum share of the grid's steps


def grid_points() -> list[dict[str, Any]]:
    """Returns the settings by key of every grid point."""
    return [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]


def train_grid(plan: TunePlan, config: pathlib.Path, data: list[str], folder: pathlib.Path) -> list[dict[str, Any]]:
    """Trains every grid point without a result in the folder, and returns the AUC and steps of all."""
    load_tensorflow()
    from ctrpipe.pipeline.tune.trial import train_trial  # imports Keras: 3 s, after TensorFlow is loaded quietly

    check_output(folder)
    results = []
    with one_run_at_a_time(folder):
        log = transform(plan.space.base, data, folder)
        for number, point in enumerate(grid_points(), 1):
            trial = with_settings(plan.space.base, point, config)
            file = folder / f"{log.inputs.training_fingerprint(trial, trial.model)}.json"
            if not file.exists():
                work = folder / "work" / file.stem
                result = train_trial(trial, log, work, folder / "stages", lambda numbers: False)
                auc = result.best["validation_auc"] if result.best else None
                write_json(file, {"point": point, "auc": auc, "steps": result.steps})
            results.append(json.loads(file.read_text()))
            settings = " ".join(value_text(value) for value in point.values())
            announce(f"Grid {number}: {settings}: AUC {results[-1]['auc']}, {results[-1]['steps']} steps")
    return results


def reached(report: dict[str, Any], auc: float) -> int | None:
    """Returns the training steps after which a study's best AUC reaches `auc`; None if it never does.

    Args:
        report: The contents of tune.json.
        auc: The AUC to reach.
    """
    spent, _, best = budget_curve(report)
    return next((steps for steps, value in zip(spent, best, strict=True) if value is not None and value >= auc), None)


def best_within(report: dict[str, Any], steps: float) -> float | None:
    """Returns the best AUC of the trials that end within `steps` training steps."""
    spent, _, best = budget_curve(report)
    return max((value for used, value in zip(spent, best, strict=True) if value and used <= steps), default=None)


def median_share(shares: list[float | None]) -> float | None:
    """Returns the median share; None if the middle study never reached the grid's best AUC."""
    middle = statistics.median_high([float("inf") if share is None else share for share in shares])
    return None if middle == float("inf") else middle


def table(report: Mapping[str, Any]) -> Table:
    grid = report["grid"]
    columns: dict[str, Cell] = {
        "seed": "{seed}",
        "trials": "{trials}",
        "stopped": "{stopped}",
        "best AUC": "{auc:.4f}",
        f"AUC within {BAR:.0%}": if_any("auc_within", "{auc_within:.4f}"),
        "grid's best after": if_any("reached", "{reached:,} steps"),
        "share": if_any("share", "{share:.1%}"),
    }
    title = f"Grid of {grid['points']} points: AUC {grid['auc']:.4f} in {grid['steps']:,} steps"
    return result_table(title, columns, report["studies"])


@Benchmark("benchmarks.tune", table)
@click.option("--data", required=True, help="A log in Criteo's format.")
@click.option("--seeds", type=click.IntRange(1), default=3, help="Seeds of the search.")
@click.option("--trials", type=click.IntRange(1), default=24, help="Trials of each study.")
@folder_option("tune")
def main(report: Report, data: str, seeds: int, trials: int, folder: pathlib.Path) -> None:
    """Compare the training steps of a search and of a grid.

    Prints a table with a row for each seed, and writes the report as JSON.
    """
    load_tensorflow()
    from ctrpipe.pipeline.tune.run import run_tune  # imports Optuna and TFX: 1 s that --help does without

    config = configs_folder() / "criteo" / "deepfm.yaml"
    plan = make_plan(config, (*SETTINGS, f"search={SEARCH}"), Budget(trials=trials), "auc")
    key = fingerprint(load_config(config, SETTINGS), SEARCH)
    grid = train_grid(plan, config, [data], folder / "grid")
    total = sum(point["steps"] for point in grid)
    auc = max(point["auc"] for point in grid)
    report |= {"data": pathlib.Path(data).name, "grid": {"points": len(grid), "auc": auc, "steps": total}}
    report |= {"bar": BAR, "studies": []}
    for seed in range(1, seeds + 1):
        tuned = run_tune(dataclasses.replace(plan, seed=seed, seeds=0), [data], folder / f"{key}-seed{seed}").report
        steps, within = reached(tuned, auc), best_within(tuned, BAR * total)
        share = None if steps is None else steps / total
        stopped = sum(trial["state"] == "stopped" for trial in tuned["trials"])
        study = {"seed": seed, "trials": len(tuned["trials"]), "stopped": stopped, "steps": tuned["steps"]}
        study |= {"auc": tuned["best"]["value"], "auc_within": within, "reached": steps, "share": share}
        report["studies"].append(study)
        report.write()
    report["median_share"] = median_share([study["share"] for study in report["studies"]])


if __name__ == "__main__":
    main()
