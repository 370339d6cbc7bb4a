"""Clusters the items' vectors into cells. An approximate index reads only the cells closest to the user."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from ctrpipe.serving.export.retrieval import Cells, Vectors

SEED = 1
SAMPLE = 64  # vectors per cell to learn the centers from
PASSES = 10  # maximum passes over the sample
QUERIES = 16  # users per block, whose scores of all items are in memory at once


@dataclasses.dataclass(frozen=True)
class Recall:
    """The recall of an approximate index, relative to the exact one.

    Attributes:
        top: Number of items in each result.
        share: The share of the exact results that the approximate index finds: recall@top.
        users: Number of users that the recall was measured on.
    """

    top: int
    share: float
    users: int


def default_cells(items: int) -> int:
    """Returns 4 √items, as recommended by FAISS. A user then reads about as many centers as items."""
    return max(1, min(items, round(4 * math.sqrt(items))))


def divided(vectors: Vectors, users: Vectors, count: int, top: int, recall: float) -> tuple[Cells, Recall]:
    """Returns the cells of items, with the smallest number of probes that reaches a recall.

    Args:
        vectors: The items' vectors, float32 [M, vector_dim].
        users: Vectors of users, float32 [N, vector_dim].
        count: Number of cells, at most M.
        top: Number of items in each result, at most M.
        recall: The share of the exact results to find, at most 1.
    """
    centers, of_vector = _clustered(vectors, count)
    shares = recall_by_probes(centers, of_vector, vectors, users, top)
    probes = min(int(np.searchsorted(shares, recall)) + 1, count)
    return Cells(centers, of_vector, probes), Recall(top, float(shares[probes - 1]), len(users))


def _clustered(vectors: Vectors, count: int) -> tuple[Vectors, npt.NDArray[np.int32]]:
    """Returns the centers of k-means, float32 [count, vector_dim], and each vector's cell, int32 [M]."""
    from sklearn.cluster import KMeans  # lazy: takes 1 s, and an exact index does not need it

    random = np.random.default_rng(SEED)
    rows = min(len(vectors), SAMPLE * count)
    sample = vectors[np.sort(random.choice(len(vectors), rows, replace=False))]
    means = KMeans(count, init="random", n_init=1, max_iter=PASSES, random_state=SEED).fit(sample)
    return means.cluster_centers_.astype(np.float32), means.predict(vectors).astype(np.int32)


def recall_by_probes(
    centers: Vectors, of_vector: npt.NDArray[np.int32], vectors: Vectors, users: Vectors, top: int
) -> npt.NDArray[np.float64]:
    """Returns the share of the users' exact results that the best 1, 2, ... cells contain, float64 [cells].

    An item is found with n probes if fewer than n centers have a larger inner product with the user than its own
    center.
    """
    hits = np.zeros(len(centers), np.int64)
    for start in range(0, len(users), QUERIES):
        some = users[start : start + QUERIES]
        best = np.argpartition(-(some @ vectors.T), top - 1, axis=1)[:, :top]
        ranks = np.argsort(np.argsort(-(some @ centers.T), axis=1), axis=1)
        needed = np.take_along_axis(ranks, of_vector[best], axis=1)
        hits += np.bincount(needed.ravel(), minlength=len(centers))
    shares: npt.NDArray[np.float64] = np.cumsum(hits) / hits.sum()
    return shares
