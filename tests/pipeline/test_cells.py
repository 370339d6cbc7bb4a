"""The cells of an approximate index of items, and what it finds in them, computed again in numpy."""

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.pipeline.retrieval.cells import default_cells, divided, recall_by_probes
from ctrpipe.serving.export.retrieval import Cells, CellSearch


def unit(random: np.random.Generator, rows: int) -> np.ndarray:
    vectors = random.normal(size=(rows, 6))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def found_by(cells: Cells, vectors: np.ndarray, user: np.ndarray, top: int) -> np.ndarray:
    """The items of the nearest cells, and of further ones while there are fewer than `top`, the best first."""
    read: list[int] = []
    for number, cell in enumerate(np.argsort(-(cells.centers @ user), kind="stable")):
        if number < cells.probes or len(read) < top:
            read.extend(np.flatnonzero(cells.of_vector == cell))
    return np.array(read)[np.argsort(-(vectors[read] @ user), kind="stable")[:top]]


@pytest.mark.parametrize("probes", [1, 3, 12])
def test_the_best_items_of_the_nearest_cells_are_found_for_each_user_of_a_batch(probes):
    random = np.random.default_rng(1)
    vectors, users = unit(random, 200), unit(random, 9)
    of_vector = random.integers(0, 12, 200).astype(np.int32)
    of_vector[of_vector == 7] = 8  # an empty cell
    cells = Cells(unit(random, 12), of_vector, probes)
    order = np.argsort(of_vector, kind="stable")
    scores, places = CellSearch(tf.Variable(vectors[order]), cells, 40)(tf.constant(users))
    for user, of_user, best in zip(users, scores.numpy(), order[places.numpy()], strict=True):
        assert best.tolist() == found_by(cells, vectors, user, 40).tolist()
        np.testing.assert_allclose(of_user, vectors[best] @ user, atol=1e-6)


def test_the_recall_that_is_stated_is_the_share_of_the_exact_answers_that_is_found():
    random = np.random.default_rng(2)
    vectors, users = unit(random, 600), unit(random, 35)
    cells, recall = divided(vectors, users, 30, 10, recall=0.8)
    hits = 0
    for user in users:
        exact = np.argsort(-(vectors @ user))[:10]
        hits += len(set(exact) & set(found_by(cells, vectors, user, 10)))
    assert recall.share == hits / 350 >= 0.8 and (recall.top, recall.users) == (10, 35)
    shares = recall_by_probes(cells.centers, cells.of_vector, vectors, users, 10)
    assert shares[cells.probes - 2] < 0.8 and (np.diff(shares) >= 0).all() and shares[-1] == 1


def test_every_item_is_in_the_cell_of_the_nearest_center():
    random = np.random.default_rng(3)
    vectors = unit(random, 300)
    cells, _ = divided(vectors, vectors[:5], 10, 5, recall=1.0)
    distances = ((vectors[:, None] - cells.centers[None]) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == cells.of_vector).mean() > 0.99  # rounding decides between two equal ones
    assert [default_cells(items) for items in (1, 9, 10_000, 1_000_000)] == [1, 9, 400, 4000]
