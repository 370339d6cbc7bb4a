"""Tests whether a model is better than another on the same rows: t over shards, DeLong's test, a paired bootstrap."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from common.hashing import splitmix64
from models.metrics import auc_of_counts, ranks

SHARDS = 20  # BERT4CTR, section 4.1.4, calls a difference significant above t = 3
LEVEL = 0.95  # of the bootstrap's interval
SEED = 20

Metric = Callable[[np.ndarray, np.ndarray], float | None]


@dataclasses.dataclass(frozen=True)
class PairedT:
    """The result of a paired t test of second - first: t and its two-sided p, both None where it cannot be made."""

    t: float | None
    p: float | None


@dataclasses.dataclass(frozen=True)
class DeLong:
    """The result of DeLong's test of two AUCs.

    Attributes:
        difference: AUC of the second model minus that of the first.
        standard_error: Its standard error.
        z: The difference in standard errors; None where these are 0.
        p: The two-sided probability of such a z by chance; None as z.
    """

    difference: float
    standard_error: float
    z: float | None
    p: float | None


def shards(rows: int, count: int = SHARDS) -> np.ndarray:
    """Returns each row's shard by a hash of its number, int64 `[rows]` in 0..count-1: the same in every comparison."""
    # A hash, because neighbouring rows of a log are alike: shards of neighbours would differ more than by chance.
    mixed = splitmix64(np.arange(rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed % np.uint64(count)).astype(np.int64)


def by_shard(
    metric: Metric, labels: np.ndarray, probabilities: np.ndarray, shard: np.ndarray, count: int
) -> np.ndarray:
    """Returns a metric on each shard's rows, float64 `[count]`; NaN where it is undefined.

    Args:
        metric: A function of labels and probabilities.
        labels: 0 or 1, `[N]`.
        probabilities: Predictions, `[N]`.
        shard: The shard of each row, `[N]`.
        count: Number of shards.
    """
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(1, count))
    parts = [metric(labels[rows], probabilities[rows]) for rows in np.split(order, ends)]
    return np.array([np.nan if value is None else value for value in parts])


def paired_t(first: np.ndarray, second: np.ndarray) -> PairedT:
    """Returns the paired t test of a metric over shards.

    t and p are None where a shard has no value, or where all shards have the same difference.

    Args:
        first: The first model's metric on each shard, `[count]`.
        second: The second model's, `[count]`.
    """
    differences = second - first
    if len(differences) < 2 or np.isnan(differences).any() or np.ptp(differences) == 0:
        return PairedT(None, None)
    t = float(differences.mean() / (differences.std(ddof=1) / np.sqrt(len(differences))))
    return PairedT(t, two_sided_p(t, len(differences) - 1))


def two_sided_p(t: float, freedom: int) -> float:
    """Returns the probability that Student's t is as far from 0 as `t`, to an absolute error of 1e-14.

    scipy.special has it too, but its import takes a third of `ctrpipe compare`.

    Args:
        t: The value.
        freedom: Degrees of freedom, 1 or more.

    References:
        Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = sine * (math.cos(angle) if odd else 1.0)
    total = 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= squared * power / (power + 1)
    inside = 2 / math.pi * (angle + total) if odd else total
    return max(1 - inside, 0.0)


def delong(labels: np.ndarray, first: np.ndarray, second: np.ndarray) -> DeLong | None:
    """Returns DeLong's test of two models' AUCs on the same rows, in O(N log N); None with fewer than two of a class.

    Args:
        labels: 0 or 1, `[N]`.
        first: The first model's predictions, `[N]`.
        second: The second model's, `[N]`.

    References:
        Sun and Xu, "Fast Implementation of DeLong's Algorithm", 2014.
    """
    clicked = labels > 0.5
    clicks, others = int(clicked.sum()), int((~clicked).sum())
    if min(clicks, others) < 2:
        return None
    # For each row, the share of the other class's rows that are on the right side of it.
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
    """Returns the ends of the 95% interval of the AUCs' difference, second - first, over resamples of the rows.

    A resample has the same rows for both models. It takes O(N): the scores are sorted once before, and a resample only
    counts rows. Returns None without a resample, or with one class only.

    Args:
        labels: 0 or 1, `[N]`.
        first: The first model's predictions, `[N]`.
        second: The second model's, `[N]`.
        resamples: How often the rows are drawn.
        seed: Seed of the draws.
    """
    clicked = labels > 0.5
    if not resamples or clicked.all() or not clicked.any():
        return None
    random = np.random.default_rng(seed)
    sides = [_bins(clicked, scores) for scores in (first, second)]
    differences = []
    for _ in range(resamples):
        rows = random.integers(len(labels), size=len(labels))
        if 0 < np.count_nonzero(clicked[rows]) < len(rows):
            aucs = [_auc_of_bins(bins[rows], count) for bins, count in sides]
            differences.append(aucs[1] - aucs[0])
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return float(low), float(high)


def _bins(clicked: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns the bin of each row, int64 `[N]`, and the number of bins of a class, B: others in 0..B-1, clicks behind.

    Bins are in the order of the scores. Equal scores share one, and so do neighbouring scores of one class, whose order
    does not change the area under the ROC curve: counting and summing then take half the time or less.
    """
    values, places = np.unique(scores, return_inverse=True)
    clicks = np.bincount(places, clicked, len(values)) > 0
    others = np.bincount(places, ~clicked, len(values)) > 0
    joined = (clicks[1:] == clicks[:-1]) & (others[1:] == others[:-1]) & (clicks[1:] != others[1:])
    bins = np.append(0, np.cumsum(~joined))
    count = int(bins[-1]) + 1
    return bins[places] + count * clicked, count


def _auc_of_bins(bins: np.ndarray, count: int) -> float:
    """Returns the area under the ROC curve of rows by their bins, those of `_bins`."""
    counts = np.bincount(bins, minlength=2 * count)
    return auc_of_counts(counts[count:], counts[:count])
