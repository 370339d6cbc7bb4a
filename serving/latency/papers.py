"""Measures prediction latency by the methods of two papers, Hiformer and BERT4CTR."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Hiformer, section 4.1.2: the latency of batches of 1024 rows, relative to a pruned one-layer Transformer.
HIFORMER_BATCHES, HIFORMER_ROWS = 20, 1024
# BERT4CTR, section 4.1.5: ms/sample in batches of 10 rows; each experiment is repeated 20 times.
BERT4CTR_BATCHES, BERT4CTR_ROWS, BERT4CTR_REPEATS = 100, 10, 20
WARM_UP = 2

Predict = Callable[[Any], Any]


def batch_seconds(
    calls: Mapping[str, tuple[Predict, Sequence[Any]]], report: Callable[[int], None] | None = None
) -> dict[str, list[float]]:
    """Returns the seconds of each batch by model, after two warm-up batches. The models take turns.

    Args:
        calls: The function and its batches by model, with equally many batches for each model.
        report: Called with the number of batches that all models have completed.
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
    """Returns `batch_ms` by model, the median ms of a batch, and `relative` to the baseline, or None."""
    medians = {name: statistics.median(seconds) for name, seconds in batch_seconds(calls).items()}
    unit = medians.get(baseline) if baseline else None
    return {
        name: {"batch_ms": 1000 * median, "relative": median / unit if unit else None}
        for name, median in medians.items()
    }


def bert4ctr(
    calls: Mapping[str, tuple[Predict, Sequence[Any]]], rows: int, report: Callable[[int], None] | None = None
) -> dict[str, dict[str, float]]:
    """Returns average, median, p90 and p95 of the ms/sample of 20 repeats of all batches, by model.

    Args:
        calls: The function and its batches by model.
        rows: The number of rows in a batch.
        report: Called with the number of repeats that all models have completed.
    """

    def repeat(predict: Predict, batches: Sequence[object]) -> Callable[[], None]:
        def all_batches() -> None:
            for batch in batches:
                predict(batch)

        return all_batches

    repeats = {name: (repeat(*call), rows * len(call[1])) for name, call in calls.items()}
    return {name: bert4ctr_statistics(ms) for name, ms in bert4ctr_repeats(repeats, report).items()}


def bert4ctr_repeats(
    repeats: Mapping[str, tuple[Callable[[], Any], int]], report: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Returns the ms/sample of 20 repeats by name, (20,). The names take turns.

    Args:
        repeats: A function that runs one repeat, and the repeat's number of rows, by name.
        report: Called with the number of repeats that all names have completed.
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
