"""Compares models on the same test rows, slice by slice: the metrics of each, and its difference to the first."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from common.errors import InputError
from models import metrics
from pipeline.compare.significance import LEVEL, SHARDS, bootstrap, by_shard, delong, paired_t, shards
from pipeline.evaluation.scored_rows import ScoredRows

MAX_SLICE_VALUES = 20  # of one column
ALL, TAIL = "ALL", "Tail"
TESTED: dict[str, Callable[[np.ndarray, np.ndarray], float | None]] = {"auc": metrics.auc, "rig": metrics.rig}


def compare(
    scored: dict[str, ScoredRows],
    task: str | None = None,
    shard_count: int = SHARDS,
    resamples: int = 1000,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Returns the metrics of every model on ALL, on Tail, and on the values of columns that all models have.

    Each model but the first has its differences to the first: of AUC and RIG with their paired t values over the
    shards, of AUC also with DeLong's test and the interval of the bootstrap. A t value is None where a shard has one
    class only.

    Args:
        scored: By the model's name, its predictions; at least two.
        task: The label to judge by; None takes the first.
        shard_count: Number of shards, into which rows are divided by a hash of their number.
        resamples: How often the bootstrap draws the rows; 0 gives no interval.
        progress: Called with the name of each slice before it is compared.

    Raises:
        InputError: a model's predictions are of other rows than the first's, or it has no such task.
    """
    names = list(scored)
    first = scored[names[0]]
    task = task or next(iter(first.labels))
    for name, each in scored.items():
        _check_same(names[0], first, name, each, task)
    labels = first.labels[task]
    probabilities = {name: each.probabilities[task] for name, each in scored.items()}
    shard = shards(len(labels), shard_count)
    slices_compared = []
    for name, rows in _slices(list(scored.values())):
        progress(name)
        parts = {model: values[rows] for model, values in probabilities.items()}
        slices_compared.append(
            {"slice": name, **_compare_slice(labels[rows], parts, shard[rows], shard_count, resamples)}
        )
    return {
        "models": names,
        "task": task,
        "rows": len(labels),
        "shards": shard_count,
        "resamples": resamples,
        "level": LEVEL,
        "tail": first.tail_of,
        "slices": slices_compared,
    }


def _check_same(first_name: str, first: ScoredRows, name: str, each: ScoredRows, task: str) -> None:
    if task not in each.labels:
        raise InputError(f"{name}: there is no task {task}; it has {', '.join(each.labels)}")
    if len(each) != len(first):
        reason = f"{len(each):,} test rows, not {len(first):,}"
    elif each.rows != first.rows:
        reason = "other files, or another split"
    elif not np.array_equal(each.labels[task], first.labels[task]):
        row = int(np.flatnonzero(each.labels[task] != first.labels[task])[0])
        reason = f"row {row} has another label"
    else:
        return
    raise InputError(
        f"{name}: not the same test rows as {first_name} ({reason}); compare runs on the same log and split"
    )


def _slices(scored: Sequence[ScoredRows]) -> list[tuple[str, np.ndarray | slice]]:
    """Returns the slices' names with the numbers of their rows."""
    first = scored[0]
    slices: list[tuple[str, np.ndarray | slice]] = [(ALL, slice(None))]
    if first.tail is not None and all(each.tail_of == first.tail_of for each in scored) and first.tail.any():
        slices.append((TAIL, np.flatnonzero(first.tail)))
    for column in first.slices:
        if all(column in each.slices for each in scored):
            slices += _by_value(column, first.slices[column])
    return slices


def _by_value(column: str, values: pa.ChunkedArray) -> list[tuple[str, np.ndarray]]:
    """Returns the rows of each of the most frequent values, most frequent first."""
    encoded = values.combine_chunks().dictionary_encode()
    texts, codes = encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices)
    counts = np.bincount(codes, minlength=len(texts))
    order = sorted((code for code in range(len(texts)) if counts[code]), key=lambda code: (-counts[code], texts[code]))
    return [(f"{column} = {texts[code]}", np.flatnonzero(codes == code)) for code in order[:MAX_SLICE_VALUES]]


def _compare_slice(
    labels: np.ndarray, probabilities: dict[str, np.ndarray], shard: np.ndarray, count: int, resamples: int
) -> dict[str, Any]:
    first, *others = probabilities
    summaries = {name: metrics.summarise(labels, values) for name, values in probabilities.items()}
    by_metric = {
        name: {metric: by_shard(of, labels, values, shard, count) for metric, of in TESTED.items()}
        for name, values in probabilities.items()
    }
    differences = {}
    for name in others:
        compared: dict[str, Any] = {}
        for metric in TESTED:
            from_, to = summaries[first][metric], summaries[name][metric]
            compared[metric] = {
                "difference": None if from_ is None or to is None else to - from_,
                **dataclasses.asdict(paired_t(by_metric[first][metric], by_metric[name][metric])),
            }
        test = delong(labels, probabilities[first], probabilities[name])
        compared["auc"]["delong"] = dataclasses.asdict(test) if test else None
        compared["auc"]["interval"] = bootstrap(labels, probabilities[first], probabilities[name], resamples)
        differences[name] = compared
    return {"rows": len(labels), "metrics": summaries, "differences": differences}
