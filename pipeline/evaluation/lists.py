"""Metrics of lists of candidates, on arrays.

A list is what one user could be shown at once, with one score a candidate. Candidates of equal score stand in an order
drawn by chance, so that a model that gives all the same score is as good as chance, not as the order of the log.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from ctrpipe.common.hashing import hash_values


@dataclasses.dataclass(frozen=True)
class Lists:
    """Candidates, each in one list.

    Attributes:
        lists: int64 [N], the number of each candidate's list, from 0.
        items: int64 [N], the candidates' items, from 0.
        labels: float32 [N], 1 for a positive one.
    """

    lists: np.ndarray
    items: np.ndarray
    labels: np.ndarray

    @property
    def count(self) -> int:
        """The number of lists."""
        return int(self.lists.max()) + 1 if len(self.lists) else 0

    def judged(self) -> np.ndarray:
        """Returns which lists have a positive candidate and another one, bool [lists]."""
        positives = np.bincount(self.lists, self.labels, self.count)
        both: np.ndarray = (positives > 0) & (positives < np.bincount(self.lists, minlength=self.count))
        return both

    def only(self, chosen: np.ndarray) -> tuple["Lists", np.ndarray]:
        """Returns some of the lists, numbered anew, and which candidates are theirs, bool [N].

        Args:
            chosen: Which lists, bool [lists].
        """
        kept: np.ndarray = chosen[self.lists]
        numbers = np.cumsum(chosen) - 1
        return Lists(numbers[self.lists[kept]], self.items[kept], self.labels[kept]), kept

    def ranks(self, scores: np.ndarray, seed: int = 0) -> np.ndarray:
        """Returns the place of each candidate in its list by falling score, from 1, int64 [N]."""
        order = np.lexsort((hash_values(f"{seed}/ties", np.arange(len(scores))), -scores, self.lists))
        ordered = self.lists[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        sizes = np.diff(np.append(starts, len(ordered)))
        ranks = np.empty(len(scores), np.int64)
        ranks[order] = np.arange(len(ordered)) - np.repeat(starts, sizes) + 1
        return ranks


def candidate_lists(groups: pa.ChunkedArray, items: pa.ChunkedArray, labels: np.ndarray) -> tuple[Lists, pa.Array]:
    """Returns the lists of a log's rows, and the items' names by number.

    Args:
        groups: Binary [N], the list of each row; null is a list too.
        items: Binary [N], the candidate.
        labels: float32 [N].
    """
    lists, candidates = (each.combine_chunks().fill_null(b"").dictionary_encode() for each in (groups, items))
    numbers = [values.indices.to_numpy().astype(np.int64) for values in (lists, candidates)]
    return Lists(numbers[0], numbers[1], labels), candidates.dictionary


def hit_rate(lists: Lists, ranks: np.ndarray, k: int) -> np.ndarray:
    """Returns HR@k of each list: 1 where a positive candidate is among the first k, float64 [lists]."""
    return _most(lists, ((ranks <= k) & (lists.labels == 1)).astype(np.float64))


def ndcg(lists: Lists, ranks: np.ndarray, k: int) -> np.ndarray:
    """Returns NDCG@k of each list with gains of 0 and 1, float64 [lists]; NaN without a positive candidate.

    References:
        Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002.
    """
    gains = np.where(ranks <= k, lists.labels / np.log2(1.0 + ranks), 0.0)
    positives = np.bincount(lists.lists, lists.labels, lists.count).astype(np.int64)
    best = np.append(0.0, np.cumsum(1.0 / np.log2(np.arange(2, k + 2))))[np.minimum(positives, k)]
    found: np.ndarray = np.full(lists.count, np.nan)
    np.divide(np.bincount(lists.lists, gains, lists.count), best, out=found, where=best > 0)
    return found


def reciprocal_rank(lists: Lists, ranks: np.ndarray) -> np.ndarray:
    """Returns 1 / the place of each list's first positive candidate, 0 without one, float64 [lists]."""
    return _most(lists, np.where(lists.labels == 1, 1.0 / ranks, 0.0))


def grouped_auc(groups: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> float | None:
    """Returns GAUC: the mean of the groups' AUC, weighted by their impressions; None where no group has both classes.

    Args:
        groups: int64 [N], as users, from 0.
        labels: 0 and 1 [N].
        scores: [N]; equal ones count half.

    References:
        Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", 2018, section 6.
    """
    order = np.lexsort((scores, groups))
    group, label, score = groups[order], labels[order].astype(np.float64), scores[order]
    is_first = np.append(True, group[1:] != group[:-1])[: len(group)]
    starts = np.flatnonzero(is_first)
    place = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group)))) + 1
    is_new = is_first | np.append(True, score[1:] != score[:-1])[: len(score)]
    tie = np.cumsum(is_new) - 1
    rank = (np.bincount(tie, place) / np.bincount(tie))[tie]
    impressions = np.bincount(group)
    positives, of_positives = np.bincount(group, label), np.bincount(group, label * rank)
    pairs = positives * (impressions - positives)
    both = pairs > 0
    if not both.any():
        return None
    auc = (of_positives - positives * (positives + 1) / 2)[both] / pairs[both]
    return float(np.average(auc, weights=impressions[both]))


def effective_catalogue_size(shares: np.ndarray) -> float:
    """Returns ECS(p) = 2 Σ i p_i - 1 of the items' shares p, the largest first: 1 where all is one item.

    Args:
        shares: Non-negative [items], which are divided by their sum. N equal ones give N.

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
    """Returns ECS(p(k)): that of the positive candidates, of which only the k most popular items count.

    Args:
        lists: The candidates.
        popularity: [items], the larger the more popular.
        k: Number of items.
    """
    taken = np.bincount(lists.items, lists.labels, len(popularity))
    return effective_catalogue_size(taken[np.argsort(-popularity, kind="stable")[:k]])


def take_rate(lists: Lists, ranks: np.ndarray, k: int) -> float:
    """Returns the share of positive ones among the first k candidates of all lists."""
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
