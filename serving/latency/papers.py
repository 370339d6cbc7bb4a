"""Measures predictions by the methods of two papers, Hiformer and BERT4CTR, for any function of a batch."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Hiformer, section 4.1.2: the latency of batches of 1024, over that of a Transformer of one layer, pruned.
HIFORMER_BATCHES, HIFORMER_ROWS = 20, 1024
# BERT4CTR, section 4.1.5: ms/sample of batches of 10; every experiment is repeated 20 times.
BERT4CTR_BATCHES, BERT4CTR_ROWS, BERT4CTR_REPEATS = 100, 10, 20
WARM_UP = 2

Predict = Callable[[Any], Any]


def batch_seconds(
    calls: Mapping[str, tuple[Predict, Sequence[Any]]], report: Callable[[int], None] | None = None
) -> dict[str, list[float]]:
    """Returns the seconds of each batch by model, the models in turn, after two uncounted batches each.

    Args:
        calls: The function and its batches by model, equally many batches for each.
        report: Called with the number of batches that all models have done.
    """
    for predict, batches in calls.values():
        for batch in batches[:WARM_UP]:
            predict(batch)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for index in range(min(len(batches) for _, batches in calls.values())):
        for name, (predict, batches) in calls.items():
            started = time.perf_counter()
            predict(batches[index])
            seconds[name].append(time.perf_counter() - started)
        if report:
            report(index + 1)
    return seconds


def hiformer(calls: Mapping[str, tuple[Predict, Sequence[Any]]], baseline: str | None) -> dict[str, dict[str, Any]]:
    """Returns, by model, `batch_ms`, the median ms of a batch, and `relative`, the same over the baseline's or None."""
    medians = {name: statistics.median(seconds) for name, seconds in batch_seconds(calls).items()}
    unit = medians.get(baseline) if baseline else None
    return {
        name: {"batch_ms": 1000 * median, "relative": median / unit if unit else None}
        for name, median in medians.items()
    }


def bert4ctr(
    calls: Mapping[str, tuple[Predict, Sequence[Any]]], rows: int, report: Callable[[int], None] | None = None
) -> dict[str, dict[str, float]]:
    """Returns, by model, average, median, p90 and p95 of the ms/sample of 20 repeats; a repeat is all batches.

    Args:
        calls: The function and its batches by model.
        rows: Rows of a batch.
        report: Called with the number of repeats that all models have done.
    """

    def repeat(predict: Predict, batches: Sequence[Any]) -> Callable[[], None]:
        def all_batches() -> None:
            for batch in batches:
                predict(batch)

        return all_batches

    repeats = {name: (repeat(*call), rows * len(call[1])) for name, call in calls.items()}
    return {name: bert4ctr_statistics(ms) for name, ms in bert4ctr_repeats(repeats, report).items()}


def bert4ctr_repeats(
    repeats: Mapping[str, tuple[Callable[[], Any], int]], report: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Returns the ms/sample of each of 20 repeats by name, (20,), all names in turn.

    Args:
        repeats: What one repeat does, and the number of its rows.
        report: Called with the number of repeats that all names have done.
    """

    def numbered(repeat: Callable[[], Any]) -> Predict:
        return lambda _: repeat()

    calls = {name: (numbered(repeat), range(BERT4CTR_REPEATS)) for name, (repeat, _) in repeats.items()}
    seconds = batch_seconds(calls, report)
    return {name: 1000 * np.array(seconds[name]) / rows for name, (_, rows) in repeats.items()}


def bert4ctr_statistics(ms: np.ndarray) -> dict[str, float]:
    """Returns average, median, p90 and p95 of the repeats' ms/sample."""
    p90, p95 = np.percentile(ms, [90, 95], method="inverted_cdf")
    values = {"average": ms.mean(), "median": np.median(ms), "p90": p90, "p95": p95}
    return {key: float(value) for key, value in values.items()}
