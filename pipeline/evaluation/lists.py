"""Metrics of candidate lists, computed on arrays.

A list contains the candidates that one user could be shown at once, each with a score. Candidates with equal scores are
in random order, so a model that gives all candidates the same score is as good as chance, not as the order of the log.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.hashing import hash_values
from ctrpipe.common.metrics import has_rates


@dataclasses.dataclass(frozen=True)
class Lists:
    """Candidates, each in one list.

    Attributes:
        lists: int64 [N], the list number of each candidate, from 0.
        items: int64 [N], the item number of each candidate, from 0.
        labels: float32 [N], 1 for a positive candidate.
    """

    lists: np.ndarray
    items: np.ndarray
    labels: np.ndarray

    @property
    def count(self) -> int:
        """The number of lists."""
        return int(self.lists.max()) + 1 if len(self.lists) else 0

    def judged(self) -> np.ndarray:
        """Returns which lists have both a positive and a negative candidate, bool [lists]."""
        positives = np.bincount(self.lists, self.labels, self.count)
        both: np.ndarray = (positives > 0) & (positives < np.bincount(self.lists, minlength=self.count))
        return both

    def only(self, chosen: np.ndarray) -> tuple["Lists", np.ndarray]:
        """Returns some of the lists, renumbered, and a mask of their candidates, bool [N].

        Args:
            chosen: Mask of the lists to keep, bool [lists].
        """
        kept: np.ndarray = chosen[self.lists]
        numbers = np.cumsum(chosen) - 1
        return Lists(numbers[self.lists[kept]], self.items[kept], self.labels[kept]), kept

    def ranks(self, scores: np.ndarray, seed: int = 0) -> np.ndarray:
        """Returns the rank of each candidate in its list by descending score, from 1, int64 [N]."""
        order = np.lexsort((hash_values(f"{seed}/ties", np.arange(len(scores))), -scores, self.lists))
        ordered = self.lists[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        sizes = np.diff(np.append(starts, len(ordered)))
        ranks = np.empty(len(scores), np.int64)
        ranks[order] = np.arange(len(ordered)) - np.repeat(starts, sizes) + 1
        return ranks


def candidate_lists(groups: pa.ChunkedArray, items: pa.ChunkedArray, labels: np.ndarray) -> tuple[Lists, pa.Array]:
    """Returns the lists of a log's rows, and the item names by item number.

    Args:
        groups: Binary [N], the list of each row; null is a list too.
        items: Binary [N], the candidate.
        labels: float32 [N].
    """
    lists, candidates = (each.combine_chunks().fill_null(b"").dictionary_encode() for each in (groups, items))
    numbers = [values.indices.to_numpy().astype(np.int64) for values in (lists, candidates)]
    if has_rates(labels):
        raise InputError(
            "lists of candidates need labels of 0 and 1, and some are rates; give a row for each candidate"
        )
    return Lists(numbers[0], numbers[1], labels), candidates.dictionary


def hit_rate(lists: Lists, ranks: np.ndarray, k: int) -> np.ndarray:
    """Returns HR@k of each list: 1 if a positive candidate is among the first k, otherwise 0, float64 [lists]."""
    return _most(lists, ((ranks <= k) & (lists.labels == 1)).astype(np.float64))


def ndcg(lists: Lists, ranks: np.ndarray, k: int) -> np.ndarray:
    """Returns NDCG@k of each list with gains of 0 and 1, float64 [lists]; NaN without a positive candidate.

    References:
        Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002.
    """
    gains = np.where(ranks <= k, lists.labels / np.log2(1.0 + ranks), 0.0)
    positives = np.bincount(lists.lists, lists.labels, lists.count).astype(np.int64)
    best = np.append(0.0, np.cumsum(1.0 / np.log2(np.arange(2, k + 2))))[np.minimum(positives, k)]
    values: np.ndarray = np.full(lists.count, np.nan)
    np.divide(np.bincount(lists.lists, gains, lists.count), best, out=values, where=best > 0)
    return values


def reciprocal_rank(lists: Lists, ranks: np.ndarray) -> np.ndarray:
    """Returns 1 / rank of the first positive candidate of each list, 0 if there is none, float64 [lists]."""
    return _most(lists, np.where(lists.labels == 1, 1.0 / ranks, 0.0))


def effective_catalogue_size(shares: np.ndarray) -> float:
    """Returns ECS(p) = 2 Σ i p_i - 1 of the items' shares p in descending order.

    It is 1 if one item has the whole share, and N for N equal shares.

    Args:
        shares: Non-negative values [items], which are normalised to sum to 1.

    References:
        Gomez-Uribe and Hunt, "The Netflix Recommender System: Algorithms, Business Value, and Innovation", 2016.
    """
    falling = np.sort(shares[shares > 0])[::-1].astype(np.float64)
    if not len(falling):
        return 0.0
    return float(2.0 * np.sum(np.arange(1, len(falling) + 1) * falling) / falling.sum() - 1.0)


def shown_catalogue(lists: Lists, ranks: np.ndarray, k: int) -> float:
    """Returns ECS(q(k)): the effective catalogue size of the first k candidates of all lists."""
    return effective_catalogue_size(np.bincount(lists.items[ranks <= k]))


def taken_catalogue(lists: Lists, popularity: np.ndarray, k: int) -> float:
    """Returns ECS(p(k)): the effective catalogue size of the positive candidates among the k most popular items.

    Args:
        lists: The candidates.
        popularity: [items]; larger is more popular.
        k: Number of items.
    """
    taken = np.bincount(lists.items, lists.labels, len(popularity))
    return effective_catalogue_size(taken[np.argsort(-popularity, kind="stable")[:k]])


def take_rate(lists: Lists, ranks: np.ndarray, k: int) -> float:
    """Returns the share of positive candidates among the first k candidates of all lists."""
    return float(lists.labels[ranks <= k].mean())


def popularity_strata(popularity: np.ndarray) -> np.ndarray:
    """Returns each item's stratum, int64 [items]: 0 head, 1 middle, 2 tail, with about a third of the events each."""
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    strata = np.empty(len(popularity), np.int64)
    strata[order] = np.minimum(3 * before // max(1, popularity.sum()), 2)
    strata[popularity == 0] = 2
    return strata


def _most(lists: Lists, values: np.ndarray) -> np.ndarray:
    """Returns the largest value of each list's candidates, float64 [lists]."""
    most = np.zeros(lists.count)
    np.maximum.at(most, lists.lists, values)
    return most
