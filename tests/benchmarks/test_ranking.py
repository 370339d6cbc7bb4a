"""The sides of `python -m benchmarks.ranking` that are no models, and the logs that it reads."""

import types

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import ranking
from benchmarks.ranking import Log, by_user, compared, events_file, summary
from common.errors import InputError
from models.feature_map import FeatureMap
from transforms.features.packed_files import PackedWriter


@pytest.fixture
def log() -> tuple[Log, np.ndarray, pa.Table]:
    """A log, its users' events as a dense matrix, and its candidates."""
    random = np.random.default_rng(0)
    dense = (random.random((8, 12)) < 0.4).astype(float)
    users, items = np.nonzero(dense)
    pairs = random.permutation(8 * 12)
    names = [pa.array([str(code).encode() for code in codes]) for codes in (pairs // 12, pairs % 12)]
    labels = pa.array((pairs % 12 == pairs // 12).astype(np.float32))
    test = pa.table({"user": names[0], "item": names[1], "label": labels})
    past = pa.table({"user": [str(n).encode() for n in users], "item": [str(n).encode() for n in items]})
    return Log(past, test), dense, test


def numbers(table: pa.Table, name: str) -> np.ndarray:
    return np.array([int(value) for value in table[name].to_pylist()])


@pytest.mark.parametrize("neighbours", [100, 3])
def test_item_knn_sums_the_largest_cosines_with_the_users_items(log, monkeypatch, neighbours):
    monkeypatch.setattr(ranking, "NEIGHBOURS", neighbours)
    found, dense, test = log
    norms = np.linalg.norm(dense, axis=0)
    expected = []
    for user, item in zip(numbers(test, "user"), numbers(test, "item"), strict=True):
        products = dense[:, item] @ dense / norms[item] / norms
        products[item] = 0
        least = np.sort(products)[-min(neighbours, 12)]
        expected.append(sum(product for j, product in enumerate(products) if dense[user, j] and product >= least))
    np.testing.assert_allclose(found.item_knn(), expected, atol=1e-12)


def test_popularity_counts_the_events_before_the_test(log):
    found, dense, test = log
    assert found.popularity().tolist() == dense.sum(axis=0)[numbers(test, "item")].tolist()


def test_sides_are_compared_by_the_same_users(log):
    found, _, _ = log
    perfect = by_user(found.lists, found.lists.labels.astype(float))
    worst = by_user(found.lists, -found.lists.labels.astype(float))
    assert perfect["HR"].tolist() == perfect["NDCG"].tolist() == [1.0] * 8 and worst["HR"].tolist() == [0.0] * 8
    difference, _ = compared({"a": perfect, "b": worst}, [("a", "b")])
    assert (difference["metric"], difference["mean"], difference["half"]) == ("HR", 1.0, 0.0)
    values = np.array([0.0, 1, 1, 0])
    assert summary(values) == {"mean": 0.5, "half": pytest.approx(1.96 * np.sqrt(1 / 3) / 2)}


def test_the_files_of_movielens(tmp_path):
    with pytest.raises(InputError, match="neither u.data nor ratings.dat"):
        events_file(tmp_path, tmp_path)
    (tmp_path / "ratings.dat").write_text("1::1193::5::978300760\n1::661::3::978302109\n")
    assert events_file(tmp_path, tmp_path).read_text() == "1\t1193\t5\t978300760\n1\t661\t3\t978302109\n"
    (tmp_path / "u.data").write_text("1\t2\t3\t4\n")
    assert events_file(tmp_path, tmp_path) == tmp_path / "u.data"


def test_a_peer_gets_each_row_s_item_user_and_history_and_zero_is_no_item(tmp_path):
    fields = FeatureMap.from_sizes(
        [
            ("user", "categorical", 20),
            ("item", "categorical", 30),
            ("items", "sequence", 30, 3, "feature", "mean", "item"),
        ]
    )
    user, item, _ = fields.fields
    random = np.random.default_rng(1)
    rows, files = {}, {}
    for split in ("train", "validation", "test"):
        users, items, seen = random.integers(0, 20, 5), random.integers(0, 30, 5), random.integers(-1, 30, (5, 3))
        labels = random.integers(0, 2, (5, 1)).astype(np.float32)
        events = np.where(seen < 0, 0, item.offset + seen)
        ids = np.column_stack([user.offset + users, item.offset + items, events]).astype(np.int32)
        with PackedWriter(tmp_path / f"{split}.parquet") as writer:
            writer.write({"ids": ids, "label": labels})
        files[split] = [str(tmp_path / f"{split}.parquet")]
        rows[split] = np.column_stack([items + 1, users, seen + 1]), labels[:, 0]
    ranking.write_peer_rows(types.SimpleNamespace(feature_map=fields, **files), tmp_path / "rows.npz")
    with np.load(tmp_path / "rows.npz") as found:
        assert found["sizes"].tolist() == [item.size + 1, user.size]
        for split, (ids, labels) in rows.items():
            assert found[f"{split}_ids"].tolist() == ids.tolist()
            assert found[f"{split}_labels"].tolist() == labels.tolist()
