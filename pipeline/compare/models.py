"""Compares models on the same test rows, slice by slice: their metrics, and their differences from the first model."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import gauc_estimate
from ctrpipe.common.near import did_you_mean
from ctrpipe.pipeline.compare.corrected import correct
from ctrpipe.pipeline.compare.rows_and_seeds import LEVEL
from ctrpipe.pipeline.compare.shards import SHARDS, shards
from ctrpipe.pipeline.compare.sides import TESTED, TESTED_NUMBERS, Groups, compare_sides, groups_of_rows, side
from ctrpipe.pipeline.evaluation.elements import frequent_slices
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows

MAX_SLICE_VALUES = 20  # per column
ALL, TAIL = "ALL", "Tail"


def compare(
    scored: Mapping[str, Sequence[ScoredRows]],
    task: str | None = None,
    shard_count: int = SHARDS,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Returns the metrics of every model on ALL, on Tail, and on the values of columns that all models have.

    A model's metrics are means over its training runs. Every model but the first has its differences from the first in
    AUC and RIG with a verdict (see `sides.compare_sides`), or in RMSE and MAE where the task predicts a number. The
    differences are corrected for their number, in two families: those on ALL, one per model, and those of all models on
    all slices (see `corrected.correct`). They cover only the rows if a side has one training run.

    Without `task`, `further_tasks` has the same of each other task that all models have, on ALL. Their differences are
    a third family.

    Args:
        scored: For each model's name, the predictions of its training runs, which differ by their seeds. At least two
            models.
        task: The label to judge by. None: the first.
        shard_count: Number of shards. Rows are assigned to shards by a hash of their number.
        progress: Called with the name of each slice before it is compared.

    Raises:
        InputError: predictions are on other rows than the first model's, or lack the task.
    """
    first = next(iter(scored.values()))[0]
    judged, *others = [task] if task else first.labels
    compared = _compare_task(scored, judged, shard_count, progress)
    slices, names = compared["slices"], compared["models"][1:]
    _correct([slices[0]], names)
    _correct(slices[1:], names)
    all_trainings = [each for trainings in scored.values() for each in trainings]
    shared = [name for name in others if all(_is_alike(name, each, first) for each in all_trainings)]
    further = [_compare_task(scored, name, shard_count, progress, whole_only=True) for name in shared]
    _correct([each["slices"][0] for each in further], names)
    return {**compared, "further_tasks": further}


def _is_alike(task: str, each: ScoredRows, first: ScoredRows) -> bool:
    return task in each.labels and (task in each.numbers) == (task in first.numbers)


def _correct(parts: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Corrects the differences of slices or tasks for multiple comparisons: the first metric, and each other metric."""
    tested = [part["differences"][name] for part in parts for name in names]
    for metrics_of_one_place in zip(TESTED, TESTED_NUMBERS, strict=True):
        correct([by_metric[name] for by_metric in tested for name in metrics_of_one_place if name in by_metric])
    correct([by_metric["gauc"] for by_metric in tested if "gauc" in by_metric])


def _compare_task(
    scored: Mapping[str, Sequence[ScoredRows]],
    task: str,
    shard_count: int,
    progress: Callable[[str], None],
    whole_only: bool = False,
) -> dict[str, Any]:
    """Returns the comparison by one task, on ALL and, unless `whole_only`, on the slices. Nothing is corrected yet.

    Raises:
        InputError: see `compare`.
    """
    names = list(scored)
    first = scored[names[0]][0]
    for name, trainings in scored.items():
        for each in trainings:
            _check_same(names[0], first, name, each, task)
    scored = {name: [each.labelled(task) for each in trainings] for name, trainings in scored.items()}
    first = scored[names[0]][0]
    labels, is_number = first.labels[task], task in first.numbers
    probabilities = {name: [each.probabilities[task] for each in trainings] for name, trainings in scored.items()}
    shard = shards(len(labels), shard_count)
    slices = _slices([each for trainings in scored.values() for each in trainings])
    slices_compared = []
    for name, rows in slices[:1] if whole_only else slices:
        progress(f"{task}, {name}" if whole_only else name)
        parts = {model: [values[rows] for values in trainings] for model, trainings in probabilities.items()}
        weights = None if first.weights is None else first.weights[rows]
        groups = None if is_number else groups_of_rows(first)
        own = None if groups is None else dataclasses.replace(groups, numbers=groups.numbers[rows])
        compared = _compare_slice(labels[rows], parts, weights, shard[rows], shard_count, own, is_number)
        slices_compared.append({"slice": name, **compared})
    return {
        "models": names,
        "trainings": {name: len(trainings) for name, trainings in scored.items()},
        "task": task,
        "rows": len(labels),
        "shards": shard_count,
        "level": LEVEL,
        "tail": first.tail_of,
        "slices": slices_compared,
    }


def _check_same(first_name: str, first: ScoredRows, name: str, each: ScoredRows, task: str) -> None:
    if task not in each.labels:
        raise InputError(
            f"{name}: there is no task {task}; it has {', '.join(each.labels)}{did_you_mean(task, each.labels)}"
        )
    if (task in each.numbers) != (task in first.numbers):
        one, other = (first_name, name) if task in first.numbers else (name, first_name)
        raise InputError(
            f"{name}: {task} is a number that {one} predicts, and a click of {other}; compare models of one kind "
            "of label"
        )
    if len(each) != len(first):
        reason = f"{len(each):,} test rows, not {len(first):,}"
    elif each.rows != first.rows:
        reason = "other files, or another split"
    elif not np.array_equal(each.labels[task], first.labels[task], equal_nan=True):
        same = (each.labels[task] == first.labels[task]) | (np.isnan(each.labels[task]) & np.isnan(first.labels[task]))
        row = int(np.flatnonzero(~same)[0])
        reason = f"row {row} has another label"
    elif not np.array_equal(_weights(each), _weights(first)):
        reason = "other weights"
    elif (each.groups is None) != (first.groups is None) or each.group_weight != first.group_weight:
        reason = "another evaluation.group or group_weight"
    else:
        return
    raise InputError(
        f"{name}: not the same test rows as {first_name} ({reason}); compare runs on the same log and split"
    )


def _weights(scored: ScoredRows) -> np.ndarray:
    return np.ones(len(scored)) if scored.weights is None else scored.weights


def _slices(scored: Sequence[ScoredRows]) -> list[tuple[str, np.ndarray | slice]]:
    """Returns the slices' names with the numbers of their rows."""
    first = scored[0]
    slices: list[tuple[str, np.ndarray | slice]] = [(ALL, slice(None))]
    if first.tail is not None and all(each.tail_of == first.tail_of for each in scored) and first.tail.any():
        slices.append((TAIL, np.flatnonzero(first.tail)))
    for column in first.slices:
        if all(column in each.slices for each in scored):
            separators = [each.separators[column] for each in scored if column in each.separators]
            slices += _by_value(column, first.slices[column], next(iter(separators), ""))
    return slices


def _by_value(column: str, values: pa.ChunkedArray, separator: str) -> list[tuple[str, np.ndarray]]:
    """Returns the rows of each of the most frequent values, most frequent first."""
    encoded = values.combine_chunks().dictionary_encode()
    texts, codes = encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices)
    frequent = frequent_slices(texts, codes, separator, MAX_SLICE_VALUES)
    return [(f"{column} = {value}", np.flatnonzero(own)) for value, own in frequent]


def _compare_slice(
    labels: np.ndarray,
    probabilities: dict[str, list[np.ndarray]],
    weights: metrics.Weights,
    shard: np.ndarray,
    count: int,
    groups: Groups | None,
    is_number: bool,
) -> dict[str, Any]:
    first, *others = probabilities
    sides = {
        name: side(labels, trainings, shard, count, weights, groups, is_number)
        for name, trainings in probabilities.items()
    }
    summarise = metrics.summarise_numbers if is_number else metrics.summarise
    summaries = {
        name: [summarise(labels, values, weights) for values in trainings] for name, trainings in probabilities.items()
    }
    if groups is not None:
        for name, trainings in probabilities.items():
            for summary, values in zip(summaries[name], trainings, strict=True):
                estimate = gauc_estimate(groups.numbers, labels, values, weights, groups.weight)
                summary["gauc"] = None if estimate is None else estimate.value
    return {
        "rows": len(labels),
        "metrics": {name: _over_trainings(each, statistics.fmean) for name, each in summaries.items()},
        "deviations": {name: _over_trainings(each, statistics.stdev) for name, each in summaries.items()},
        "differences": {
            name: {
                metric: compare_sides(sides[first], sides[name], metric).to_json() for metric in sides[first].estimates
            }
            for name in others
        },
    }


def _over_trainings(
    summaries: list[dict[str, float | int | None]], statistic: Callable[[list[float]], float]
) -> dict[str, float | None]:
    """Returns a statistic of each metric over training runs. None if a value is missing or a deviation needs more."""
    of: dict[str, float | None] = {}
    for name in summaries[0]:
        values = [float(value) for summary in summaries if (value := summary[name]) is not None]
        enough = len(values) == len(summaries) and (statistic is statistics.fmean or len(values) > 1)
        of[name] = statistic(values) if enough else None
    return of
