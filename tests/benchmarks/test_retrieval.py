"""What `python -m benchmarks.retrieval` draws and counts, and FAISS beside it where `make peers` has installed it."""

import importlib
import sys
import types

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.peers.client import ENVIRONMENTS, FOLDER
from benchmarks.peers.faiss_client import INDEXES, Faiss
from benchmarks.retrieval import Index, Mixture, best_places, in_rounds, main, read_vectors, recall
from common.errors import InputError

needs_faiss = pytest.mark.skipif(
    not (ENVIRONMENTS / "faiss" / "bin" / "python").exists(), reason="no environment of faiss: run `make peers`"
)


def test_recall_is_the_share_of_the_best_places_that_are_found():
    best = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert recall(best[:, ::-1], best) == 1.0
    assert recall(np.array([[4, 9, 1, 0], [0, 5, -1, -1]]), best) == 3 / 8


def test_the_best_places_are_those_of_the_largest_products():
    random = np.random.default_rng(0)
    users, items = random.normal(size=(37, 6)).astype(np.float32), random.normal(size=(50, 6)).astype(np.float32)
    expected = np.argsort(-(users.astype(np.float64) @ items.T.astype(np.float64)), axis=1)[:, :7]
    np.testing.assert_array_equal(np.sort(best_places(users, items, 7), axis=1), np.sort(expected, axis=1))


def test_vectors_lie_around_the_clusters_that_users_and_items_share():
    without = Mixture(clusters=3, spread=0.0).draw(items=60, users=20, width=8)
    directions = np.unique(without.items.round(5), axis=0)
    assert len(directions) == 3
    for vectors in (without.users, without.tuning):
        assert np.unique(vectors.round(5), axis=0).tolist() == directions.tolist()
    drawn = Mixture(clusters=3, spread=0.7).draw(items=2000, users=20, width=64)
    np.testing.assert_allclose(np.linalg.norm(drawn.items, axis=1), 1, atol=1e-5)
    centers = Mixture(clusters=3, spread=0.0).draw(items=2000, users=20, width=64).items
    nearest = (drawn.items @ np.unique(centers.round(6), axis=0).T).max(axis=1)
    assert nearest.mean() == pytest.approx(1 / np.sqrt(1 + 0.7**2), abs=0.02)


def test_without_clusters_directions_are_uniform_and_each_draw_is_the_same():
    first, second = (Mixture(clusters=0, spread=1.0).draw(items=4000, users=3, width=5) for _ in range(2))
    assert first.items.tolist() == second.items.tolist() and first.users.tolist() == second.users.tolist()
    np.testing.assert_allclose(first.items.T @ first.items / 4000, np.eye(5) / 5, atol=0.02)


def test_given_vectors_are_divided_into_users_who_are_timed_and_others(tmp_path):
    users = np.arange(10, dtype=np.float64).reshape(5, 2)
    np.savez(tmp_path / "own.npz", items=np.ones((3, 2)), users=users)
    data = read_vectors(tmp_path / "own.npz", users=100, width=2)
    assert data.items.dtype == np.float32 and data.items.shape == (3, 2)
    assert (data.users.tolist(), data.tuning.tolist()) == (users[:2].tolist(), users[2:].tolist())
    assert read_vectors(tmp_path / "own.npz", users=1, width=2).users.tolist() == users[:1].tolist()
    with pytest.raises(InputError, match="expected items and two users or more of 3 numbers"):
        read_vectors(tmp_path / "own.npz", users=1, width=3)
    np.savez(tmp_path / "half.npz", items=np.ones((3, 2)))
    for name in ("half.npz", "none.npz"):
        with pytest.raises(InputError, match=f"{name}: expected an .npz file with items and users"):
            read_vectors(tmp_path / name, users=1, width=2)


def test_indexes_take_turns_and_their_first_answers_are_not_timed():
    data = Mixture(clusters=2, spread=0.5).draw(items=30, users=4, width=3)
    best, asked = best_places(data.users, data.items, 5), []

    def answers(name, places):
        def search(users):
            asked.append(name)
            return [1000.0 if asked.count(name) == 1 else float(asked.count(name))] * len(users), places

        return search

    half = np.where(np.arange(5) < 2, best, -1)
    indexes = {"exact": Index(answers("exact", best)), "part": Index(answers("part", half), 7, 1.5)}
    exact, part = in_rounds(indexes, data, best, rounds=2)
    assert asked == ["exact", "part"] * 3
    assert exact == {
        "index": "exact",
        "setting": None,
        "build_s": None,
        "recall": 1.0,
        "ms": {"median": 2.5, "min": 2.0, "max": 3.0},
    }
    assert (part["setting"], part["build_s"], part["recall"]) == (7, 1.5, 0.4)


def test_faiss_s_setting_is_the_least_that_finds_enough(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setitem(sys.modules, "faiss", types.ModuleType("faiss"))
    server = importlib.import_module("faiss_server")
    for enough in range(1, 12):
        assert server.least(lambda setting, enough=enough: setting >= enough, 1, 9) == min(enough, 9)
    best = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert server.share_found(np.array([[4, 9, 1, 0], [0, 5, -1, -1]]), best) == 3 / 8
    monkeypatch.delitem(sys.modules, "faiss_server")


@needs_faiss
@pytest.mark.slow
def test_faiss_answers_the_same_items_and_reads_as_much_as_finds_the_share():
    data = Mixture(clusters=20, spread=0.5).draw(items=3000, users=50, width=8)
    best = best_places(data.users, data.items, 10)
    with Faiss() as faiss:
        assert faiss.load(data.items, data.tuning, best_places(data.tuning, data.items, 10), threads=1)
        settings = {index: faiss.build(index, cells=50, recall=0.9)["setting"] for index in INDEXES}
        for index in INDEXES:
            milliseconds, places = faiss.search(index, data.users)
            assert len(milliseconds) == 50 and min(milliseconds) > 0
            assert recall(places, best) >= (1.0 if index == "flat" else 0.85), index
    assert 1 <= settings["ivf"] < 50 and settings["hnsw"] >= 10


def test_a_missing_environment_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.client.ENVIRONMENTS", tmp_path)
    arguments = [str(tmp_path), "--against", "faiss", "--output", str(tmp_path / "retrieval.json")]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 2 and found.stderr.count("\n") == 1
    assert "The environment of faiss is missing" in found.stderr and "`make peers`" in found.stderr
