"""The vectors and counts of `python -m benchmarks.retrieval`, and its peer libraries if `make peers` installed them."""

import importlib

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.peers.client import ENVIRONMENTS, FOLDER
from benchmarks.peers.index_client import EXACT, INDEXES, IndexPeer
from benchmarks.retrieval import Index, Mixture, best_places, in_rounds, main, read_vectors, recall
from ctrpipe.common.errors import InputError


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


def test_a_peer_s_setting_is_the_least_that_finds_enough(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(FOLDER)
    server = importlib.import_module("index_server")
    for enough in range(1, 12):
        assert server.least_enough(lambda setting, enough=enough: setting >= enough, 1, 9) == min(enough, 9)
    best = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert server.share_found(np.array([[4, 9, 1, 0], [0, 5, -1, -1]]), best) == 3 / 8

    class Part:
        """Finds the best of the first items alone."""

        least, most = 1, 30

        def __init__(self, items, _cells, top):
            self.items, self.top = items, top

        def set_to(self, setting):
            self.read = setting

        def search(self, users):
            return best_places(users, self.items[: max(self.read, self.top)], self.top)

    class Library:
        version, builds = "1", {"part": Part}

        def set_threads(self, threads):
            self.threads = threads

    items, users = np.eye(30, dtype=np.float32), np.arange(30, dtype=np.float32)[::-1][None]  # the first are best
    given, found = str(tmp_path / "given.npz"), str(tmp_path / "found.npz")
    np.savez(given, items=items[::-1].copy(), users=users, best=best_places(users, items[::-1], 4))
    peer = server.IndexServer(library := Library())
    assert peer.answer({"cmd": "load", "in": given, "threads": 3}) == {"version": "1"} and library.threads == 3
    built = peer.answer({"cmd": "build", "index": "part", "cells": 2, "recall": 0.5})
    assert built["setting"] == 28  # two of the last four items
    assert len(peer.answer({"cmd": "search", "index": "part", "in": given, "out": found})["ms"]) == 1
    with np.load(found) as arrays:
        assert recall(arrays["places"], best_places(users, items[::-1], 4)) == 0.5


@pytest.mark.large(like="tests/benchmarks/test_retrieval.py::test_a_peer_s_setting_is_the_least_that_finds_enough")
@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.slow
def test_a_peer_answers_the_same_items_and_reads_as_much_as_finds_the_share(name):
    if not (ENVIRONMENTS / name / "bin" / "python").exists():
        pytest.skip(f"no environment of {name}: run `make peers`")
    data = Mixture(clusters=20, spread=0.5).draw(items=3000, users=50, width=8)
    best = best_places(data.users, data.items, 10)
    with IndexPeer(name) as peer:
        assert peer.load(data.items, data.tuning, best_places(data.tuning, data.items, 10), threads=1)
        settings = {index: peer.build(index, cells=50, recall=0.8)["setting"] for index in INDEXES[name]}
        for index in INDEXES[name]:
            milliseconds, places = peer.search(index, data.users)
            assert len(milliseconds) == 50 and min(milliseconds) > 0
            assert recall(places, best) >= (1.0 if index in EXACT else 0.65), index
    limits = {"flat": (1, 1), "ivf": (1, 10), "hnsw": (10, 100), "tree": (1, 10)}
    for index, setting in settings.items():
        low, high = limits[index]
        assert low <= setting <= high, (index, setting)


def test_a_missing_environment_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.client.ENVIRONMENTS", tmp_path)
    arguments = [str(tmp_path), "--against", "faiss", "--output", str(tmp_path / "retrieval.json")]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 2 and found.stderr.count("\n") == 1
    assert "The environment of faiss is missing" in found.stderr and "`make peers`" in found.stderr
