"""BERT4CTR's test of a difference: t over shards of the test rows (section 4.1.4)."""

from collections.abc import Callable

import numpy as np

from ctrpipe.common.hashing import splitmix64
from ctrpipe.common.metrics import Weights

SHARDS = 20  # BERT4CTR, section 4.1.4, calls a difference significant above t = 3

Metric = Callable[[np.ndarray, np.ndarray, Weights], float | None]


def shards(rows: int, count: int = SHARDS) -> np.ndarray:
    """Returns each row's shard by a hash of its number, int64 `[rows]` in 0..count-1: the same in every comparison."""
    # A hash, because neighboring rows of a log are alike: shards of neighbors would differ more than by chance.
    mixed = splitmix64(np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed % np.uint64(count)).astype(np.int64)


def by_shard(
    metric: Metric,
    labels: np.ndarray,
    probabilities: np.ndarray,
    shard: np.ndarray,
    count: int,
    weights: Weights = None,
) -> np.ndarray:
    """Returns a metric on each shard's rows, float64 `[count]`. NaN if it is undefined.

    Args:
        metric: A function of labels, probabilities and weights.
        labels: 0 or 1, `[N]`.
        probabilities: Predictions, `[N]`.
        shard: The shard of each row, `[N]`.
        count: Number of shards.
        weights: How often each row counts, `[N]`. None: once.
    """
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(1, count))
    parts = [
        metric(labels[rows], probabilities[rows], None if weights is None else weights[rows])
        for rows in np.split(order, ends)
    ]
    return np.array([np.nan if value is None else value for value in parts])


def paired_t(first: np.ndarray, second: np.ndarray) -> float | None:
    """Returns t of the paired differences, second - first, of a metric over shards.

    Returns None if a shard has no value, or if all shards have the same difference.

    Args:
        first: The first model's metric on each shard, `[count]`.
        second: The second model's metric, `[count]`.
    """
    differences = second - first
    if len(differences) < 2 or np.isnan(differences).any() or np.ptp(differences) == 0:
        return None
    return float(differences.mean() / (differences.std(ddof=1) / np.sqrt(len(differences))))
