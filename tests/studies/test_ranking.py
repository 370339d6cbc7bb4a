"""The sides of `python -m studies.ranking` that are no models, and the logs that it reads."""

import pathlib
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.transforms.features.packed_files import PackedWriter
from studies import ranking
from studies.ranking import Log, by_user, compared, find_source, summary


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
    difference, _ = compared({"a": [perfect], "b": [worst]}, [("a", "b")])
    assert (difference["metric"], difference["mean"], difference["half"]) == ("HR", 1.0, 0.0)
    seeds = {"a": [perfect, worst], "b": [worst], "c": [worst, worst]}
    of_one, _, of_both, _ = compared(seeds, [("a", "b"), ("a", "c")])
    assert [(each["seeds"], each["mean"]) for each in (of_one, of_both)] == [(1, 1.0), (2, 0.5)]
    values = np.array([0.0, 1, 1, 0])
    assert summary(values) == {"mean": 0.5, "half": pytest.approx(1.95996 * np.sqrt(1 / 3) / 2, rel=1e-5)}


def test_the_paper_s_figures_stand_in_the_row_of_their_side_where_it_has_the_data_set():
    sides = dict.fromkeys(
        ["popularity", "fism", "recbole fism"], dict.fromkeys(["HR", "NDCG"], {"mean": 0.5, "half": 0.1})
    )
    trainings = {"fism": [{"validation_auc": 0.8, "evaluations": 3}]}
    report = {"users": 8, "seeds": 1, "against": "recbole", "against_seeds": 1}
    report |= {"sides": sides, "trainings": trainings, "differences": []}
    for paper in ranking.PAPER.values():
        table = ranking.table(report | {"paper": paper})
        cells = [f"{paper[name][0]:.4f}, {paper[name][1]:.4f}" for name in ("popularity", "fism")]
        assert list(table.columns[-1].cells) == [*cells, ""] and "He et al. 2018" in table.caption
        assert list(table.columns[3].cells) == ["", "0.8000", ""]
        assert set(paper) <= {"popularity", "item_knn", *ranking.MODELS}
    assert len(ranking.table(report | {"paper": {}}).columns) == 5


def test_the_files_of_movielens(tmp_path):
    with pytest.raises(InputError, match="none of u.data, ratings.dat and NAME.train.rating is in it"):
        find_source(tmp_path, tmp_path)
    (tmp_path / "ratings.dat").write_text("1::1193::5::978300760\n1::661::3::978302109\n")
    one_million = find_source(tmp_path, tmp_path)
    assert one_million.events.read_text() == "1\t1193\t5\t978300760\n1\t661\t3\t978302109\n"
    assert one_million.name in ranking.PAPER and one_million.others is None
    (tmp_path / "u.data").write_text("1\t2\t3\t4\n")
    assert (
        find_source(tmp_path, tmp_path)
        == find_source(tmp_path / "u.data", tmp_path)
        == ranking.Source(tmp_path / "u.data")
    )


@pytest.fixture
def published(tmp_path: pathlib.Path) -> tuple[pathlib.Path, dict[int, list[int]], dict[int, list[int]]]:
    """A folder as He et al. published them, each user's items in order, the last one the test, and the other items.

    Times of training events are all 0 for the odd users, whose order is the file's, and fall in the file for the
    others. The users' events are mixed.
    """
    random = np.random.default_rng(2)
    items = {user: random.permutation(40)[: 5 + user].tolist() for user in range(8)}
    others = {user: [item for item in range(40) if item not in items[user]][:9] for user in items}
    places = [
        (place if user % 2 else -place, user, item) for user in items for place, item in enumerate(items[user][:-1])
    ]
    lines = [f"{user}\t{item}\t1\t{0 if user % 2 else 100 - place}\n" for place, user, item in sorted(places)]
    folder = tmp_path / "Data"
    folder.mkdir()
    (folder / "pinterest-20.train.rating").write_text("".join(lines))
    tests = [f"{user}\t{items[user][-1]}\t1\t0\n" for user in items]
    (folder / "pinterest-20.test.rating").write_text("".join(tests))
    lists = ["\t".join([f"({user},{items[user][-1]})", *map(str, others[user])]) + "\n" for user in items]
    (folder / "pinterest-20.test.negative").write_text("".join(lists))
    return folder, items, others


def test_published_lists_and_events_are_taken_as_they_are(published, tmp_path):
    folder, items, others = published
    assert find_source(folder / "pinterest-20.test.rating", tmp_path).name == "pinterest-20"
    dataset = find_source(folder, tmp_path)
    config = ranking._config("fism", ["events.test_negatives=0", "events.negatives=3", "events.max_length=6"])
    data = joined([str(dataset.events)], config, tmp_path)
    added = dataset.others.added(data, tmp_path / "lists")
    files = [*pathlib.Path(data[0]).parent.glob("*.parquet"), pathlib.Path(added)]
    rows = pa.concat_tables([pa.parquet.read_table(file) for file in files]).to_pylist()
    for row in rows:
        row |= {name: int(row[name]) for name in ("user", "item")}
        row["item_history"] = [int(item) for item in row["item_history"]]
    for user, own in items.items():
        training, validation, test = (
            [row for row in rows if row["user"] == user and row["part"] == k] for k in range(3)
        )
        assert {(row["item"], row["label"]) for row in test} == {(own[-1], 1), *((item, 0) for item in others[user])}
        assert len(test) == 10 and all(row["item_history"] == own[:-1][-6:] for row in test)
        assert [row["item"] for row in validation if row["label"]] == [own[-2]] and len(validation) == 4
        assert {row["item"] for row in training if row["label"]} == set(own[:-2])
        assert all(row["item_history"] == own[: own.index(row["item"])][-6:] for row in training if row["label"])
    past = ranking.past_events(data)
    of_past = zip(numbers(past, "user").tolist(), numbers(past, "item").tolist(), strict=True)
    assert sorted(of_past) == sorted((user, item) for user in items for item in items[user][:-1])


@pytest.mark.parametrize("end", ranking.PUBLISHED)
def test_a_published_file_that_is_missing_is_named(published, tmp_path, end):
    folder, _, _ = published
    (folder / f"pinterest-20{end}").unlink()
    with pytest.raises(InputError, match=rf"pinterest-20{end}: is missing; NAME.train.rating, .* go together"):
        find_source(folder, tmp_path)


def test_published_files_that_do_not_fit_each_other_are_named(published, tmp_path):
    folder, items, _ = published
    lists = folder / "pinterest-20.test.negative"
    lines = lists.read_text().splitlines(keepends=True)
    lists.write_text("".join([lines[0], lines[2], lines[1], *lines[3:]]))
    with pytest.raises(InputError, match=rf"line 2: is of \(2,{items[2][-1]}\), and in .* of \(1,{items[1][-1]}\)"):
        find_source(folder, tmp_path)
    lists.write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match="test.negative: has 7 lines, pinterest-20.test.rating 8"):
        find_source(folder, tmp_path)
    lists.write_text("".join([lines[0], lines[1].rstrip() + "\t5\n", *lines[2:]]))
    with pytest.raises(InputError, match="test.negative: .* Expected 10 columns, got 11"):
        find_source(folder, tmp_path)
    (folder / "ml-1m.train.rating").write_text("0\t1\t5\t978300760\n")
    with pytest.raises(InputError, match="has the files of ml-1m and of pinterest-20; give .*ml-1m.train.rating"):
        find_source(folder, tmp_path)


def test_the_rate_that_is_set_is_that_of_the_models_that_share_an_optimizer():
    set_rate = ["training.learning_rate=0.007", "training.epochs=3"]
    rates = {name: ranking._config(name, set_rate).training.learning_rate for name in ranking.MODELS}
    assert {rate for name, rate in rates.items() if name not in ranking.OWN_RATE} == {0.007}
    own = ranking._config("starspace", []).training.learning_rate
    assert rates["starspace"] == own != 0.007 and ranking._config("starspace", set_rate).training.epochs == 3


def test_trainings_are_kept_for_the_same_configurations_and_rows_alone(tmp_path):
    work, config = tmp_path / "work", ranking._config("fism", [])
    other = ranking._config("fism", ["training.epochs=3"])
    rows, other_rows = (types.SimpleNamespace(train=[pattern]) for pattern in ("a/*", "b/*"))
    for given, kept in (
        ((config, rows), False),
        ((config, rows), True),
        ((other, rows), False),
        ((other, other_rows), False),
    ):
        ranking.keep_trainings(work, {"fism": given[0]}, {"fism": given[1]})
        assert (work / "weights").is_file() == kept
        (work / "weights").touch()


class _Peer:
    """A peer whose probabilities say which training they are of."""

    def __init__(self):
        self.asked: list[dict] = []

    def fit(self, model: str, data: pathlib.Path, out: pathlib.Path, threads: int, **options) -> dict[str, float]:
        self.asked.append({"model": model, **options})
        np.savez(out, probabilities=np.array([len(self.asked)]))
        return {"seconds": 1.0, "auc": len(self.asked) / 10, "evaluations": 4}


def test_a_peer_s_training_is_asked_for_once_and_its_own_fism_pretrains_nais(tmp_path):
    peer, configs = _Peer(), {name: ranking._config(name, ["training.epochs=7"]) for name in ranking.OF_PEER}
    for _ in range(2):
        found_ones = [
            ranking.peer_trained(peer, name, configs[name], tmp_path / "rows.npz", tmp_path / "recbole", seed)
            for seed in (0, 1)
            for name in ranking.OF_PEER
        ]
        assert [one.scores.tolist() for one in found_ones] == [[k] for k in range(1, 7)]
        assert [(one.validation_auc, one.evaluations) for one in found_ones] == [(k / 10, 4) for k in range(1, 7)]
    assert [(each["model"], each["seed"], each["epochs"]) for each in peer.asked] == [
        (model, seed, 7) for seed in (0, 1) for model in ("fism", "nais", "nais")
    ]
    assert peer.asked[0]["keep"] == peer.asked[2]["pretrained"] != peer.asked[5]["pretrained"] == peer.asked[3]["keep"]
    assert "pretrained" not in peer.asked[1] and {each["history"] for each in peer.asked} == {50}


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
