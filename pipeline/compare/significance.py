"""Is one model better than another on the same rows: t values over shards, DeLong's test, a paired bootstrap."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import scipy.special  # scipy.stats takes half a second to import

from common.hashing import splitmix64
from models.metrics import auc_of_counts, ranks

SHARDS = 20  # BERT4CTR, section 4.1.4, calls a difference significant above t = 3
LEVEL = 0.95  # of the bootstrap's interval
SEED = 20

Metric = Callable[[np.ndarray, np.ndarray], float | None]


@dataclasses.dataclass(frozen=True)
class PairedT:
    """A paired t test of second - first; None where it cannot be made."""

    t: float | None
    p: float | None


@dataclasses.dataclass(frozen=True)
class DeLong:
    """The AUCs' difference, second - first, in its standard errors."""

    difference: float
    standard_error: float
    z: float | None
    p: float | None


def shards(rows: int, count: int = SHARDS) -> np.ndarray:
    """Returns each row's shard, int64 [rows] in [0, count): by a hash of its number, alike in every comparison."""
    # Neighbours of a log, which belong together, come apart.
    mixed = splitmix64(np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed % np.uint64(count)).astype(np.int64)


def by_shard(
    metric: Metric, labels: np.ndarray, probabilities: np.ndarray, shard: np.ndarray, count: int
) -> np.ndarray:
    """Returns a metric on each shard's rows, float64 [count]; NaN where it is undefined."""
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(1, count))
    parts = [metric(labels[rows], probabilities[rows]) for rows in np.split(order, ends)]
    return np.array([np.nan if value is None else value for value in parts])


def paired_t(first: np.ndarray, second: np.ndarray) -> PairedT:
    """Returns a paired t-test over shards, [count] each; None where a shard has no value or all differ alike."""
    differences = second - first
    if len(differences) < 2 or np.isnan(differences).any() or np.ptp(differences) == 0:
        return PairedT(None, None)
    t = float(differences.mean() / (differences.std(ddof=1) / np.sqrt(len(differences))))
    return PairedT(t, float(2 * scipy.special.stdtr(len(differences) - 1, -abs(t))))


def delong(labels: np.ndarray, first: np.ndarray, second: np.ndarray) -> DeLong | None:
    """DeLong's test of two correlated AUCs, in O(N log N); None where there is one class only.

    Args are [N].

    References:
        Sun and Xu, "Fast Implementation of DeLong's Algorithm", 2014.
    """
    clicked = labels > 0.5
    clicks, others = int(clicked.sum()), int((~clicked).sum())
    if min(clicks, others) < 2:
        return None
    # By row, the share of the other class that it is ranked rightly against.
    of_clicks, of_others = [], []
    for scores in (first, second):
        of_all = ranks(scores)
        of_clicks.append((of_all[clicked] - ranks(scores[clicked])) / others)
        of_others.append(1 - (of_all[~clicked] - ranks(scores[~clicked])) / clicks)
    difference = float(of_clicks[1].mean() - of_clicks[0].mean())
    variance = (
        np.var(of_clicks[1] - of_clicks[0], ddof=1) / clicks + np.var(of_others[1] - of_others[0], ddof=1) / others
    )
    error = float(np.sqrt(variance))
    if not error:
        return DeLong(difference, error, None, None)
    z = difference / error
    return DeLong(difference, error, z, math.erfc(abs(z) / math.sqrt(2)))


def bootstrap(
    labels: np.ndarray, first: np.ndarray, second: np.ndarray, resamples: int, seed: int = SEED
) -> tuple[float, float] | None:
    """Returns the interval that holds 95% of the AUCs' differences, second - first, over resamples of the rows.

    Both models have the same rows in a resample. Each takes O(N): the scores are sorted once, and a resample only
    counts how often each row is in it. None without a resample, or with one class only.

    Args are [N].
    """
    clicked = labels > 0.5
    if not resamples or clicked.all() or not clicked.any():
        return None
    random = np.random.default_rng(seed)
    sides = []
    for scores in (first, second):
        values, places = np.unique(scores, return_inverse=True)
        sides.append((len(values), places[clicked], places[~clicked]))
    differences = []
    for _ in range(resamples):
        times = np.bincount(random.integers(len(labels), size=len(labels)), minlength=len(labels))
        of_clicks, of_others = times[clicked], times[~clicked]
        if not of_clicks.any() or not of_others.any():
            continue
        aucs = [
            auc_of_counts(np.bincount(clicks, of_clicks, size), np.bincount(others, of_others, size))
            for size, clicks, others in sides
        ]
        differences.append(aucs[1] - aucs[0])
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return float(low), float(high)
