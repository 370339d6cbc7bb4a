"""Writes all training runs of a run with several seeds to one file, seeds.json, next to metrics.json."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from ctrpipe.common.files import link_or_copy
from ctrpipe.pipeline.compare.sides import compare_trainings
from ctrpipe.pipeline.evaluation.scored_rows import (
    ScoredRows,
    as_numpy,
    baseline_column,
    read_scored,
    read_table,
    write_scored,
)
from ctrpipe.pipeline.evaluation.seeds import Seeds, SeedSide, SeedTraining, read_seeds

FOLDER = "report_data"
SCORES = "seeds"  # below FOLDER


def all_seeds(
    seed: int, artifact: pathlib.Path, predictions: pathlib.Path, ends: dict[str, dict[str, Any]], data: pathlib.Path
) -> Seeds:
    """Returns the training runs of both sides, the run's own first, and their difference. Copies their predictions.

    Args:
        seed: The seed of the run's own training runs.
        artifact: The folder of SeedTrainings' seeds.json.
        predictions: The predictions of the run's own training runs, see `write_evaluation`.
        ends: By side, `stopped` and `converged` of the run's own training run.
        data: The folder that becomes FOLDER.
    """
    others = read_seeds(artifact)
    assert others is not None
    (data / SCORES).mkdir()
    own = _own_rows(predictions, others)
    sides: dict[str, SeedSide] = {}
    scored: dict[str, list[ScoredRows]] = {}
    for name, rows in own.items():
        other = others.model if name == "model" else others.baseline
        assert other is not None
        scored[name] = [rows, *other.read_scores(artifact)]
        write_scored(data / _scores(name, seed), rows)
        tasks = {task: rows.summary(task) for task in rows.labels}
        end, place = ends[name], f"{FOLDER}/{_scores(name, seed)}"
        trainings = [SeedTraining(seed, tasks[others.task], end["stopped"], end["converged"], place, tasks)]
        for training in other.trainings:
            place = _scores(name, training.seed)
            link_or_copy(artifact / training.scores, data / place)
            trainings.append(dataclasses.replace(training, scores=f"{FOLDER}/{place}"))
        sides[name] = SeedSide(other.name, tuple(trainings))
    if "baseline" not in scored:
        return Seeds(others.task, sides["model"])
    tasks = sides["model"].trainings[0].tasks
    measured = {task: metrics.get("auc", metrics.get("rmse")) for task, metrics in tasks.items()}
    known = [task for task, value in measured.items() if value is not None or task == others.task]
    differences = {task: _difference(scored["baseline"], scored["model"], task) for task in known}
    return Seeds(others.task, sides["model"], sides["baseline"], differences[others.task], differences)


def _scores(side: str, seed: int) -> str:
    return f"{SCORES}/{side}-{seed}.parquet"


def _own_rows(predictions: pathlib.Path, others: Seeds) -> dict[str, ScoredRows]:
    """Returns the test rows with the predictions of the run's own training runs, by side."""
    whole = read_scored(predictions)
    model = dataclasses.replace(whole, slices={}, tail=None, tail_of=None, separators={})
    if others.baseline is None:
        return {"model": model}
    columns = {task: baseline_column(list(whole.labels), task) for task in whole.labels}
    table = read_table(predictions, list(columns.values()))
    of_baseline = {task: as_numpy(table[column]) for task, column in columns.items()}
    return {"model": model, "baseline": dataclasses.replace(model, probabilities=of_baseline)}


def _difference(baseline: Sequence[ScoredRows], model: Sequence[ScoredRows], task: str) -> dict[str, dict[str, Any]]:
    """Returns the model's difference from the baseline by metric, over rows and training runs.

    A side that does not depend on the seed has one training run, and every other seed would give the same one. It is
    therefore repeated here: its variance over training runs is 0, and the other side's variance counts.
    """
    most = max(len(baseline), len(model), 2)
    first, second = (list(side) * most if len(side) == 1 else list(side) for side in (baseline, model))
    compared = compare_trainings(first, second, task)
    seeds = (len(baseline), len(model))
    return {metric: {**each.to_json(), "seeds": seeds} for metric, each in compared.items()}
