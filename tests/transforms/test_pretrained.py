"""Tables of pretrained vectors by key: read and checked, looked up in the graph, with what lacks a vector counted."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.preprocessing import layout, preprocessing_fn
from ctrpipe.transforms.features.slots import tensor_slices
from ctrpipe.transforms.features.start_vectors import START_VECTORS, read_start_vectors, write_start_vectors
from ctrpipe.transforms.features.transform import _without_vectors
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, read_table, table_fingerprint
from ctrpipe.transforms.log.spec import LogSpec

KEYS = ["i1", "i2", "i3", "7"]
VECTORS = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def spec(path, column: str = "item", **changes) -> LogSpec:
    pretrained = {"path": str(path), "length": 3, **changes}
    return LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [
                {"kind": "categorical", "columns": [column], "role": "item", "pretrained": pretrained},
                {"kind": "vector", "columns": ["v"], "length": 2},
                {"kind": "categorical", "columns": ["user"]},
            ],
        }
    )


def table(log: LogSpec):
    (described,) = pretrained_tables(log).values()
    return read_table(described, True)


def write(path, keys, vectors) -> None:
    pa.parquet.write_table(pa.table({"key": keys, "vector": vectors}), path)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
def test_a_table_is_read_from_parquet_and_from_numpy(tmp_path, kind):
    vectors = (VECTORS * 10).astype(kind)
    expected = vectors.astype(np.float32)
    np.savez(tmp_path / "t.npz", key=np.array(KEYS), vector=vectors)
    np.savez(tmp_path / "bytes.npz", key=np.array(KEYS).astype("S"), vector=vectors)
    write(tmp_path / "t.parquet", KEYS, [list(row) for row in vectors])
    for name in ("t.npz", "bytes.npz", "t.parquet"):
        found = table(spec(tmp_path / name))
        assert found.keys.to_pylist() == [key.encode() for key in KEYS]
        np.testing.assert_array_equal(found.vectors, expected)
    unit = table(spec(tmp_path / "t.npz", transform="unit")).vectors
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("keys", [pa.array([1, 2, 3], pa.int64()), pa.array([1.0, 2.0, 3.0]), np.array([1, 2, 3])])
def test_keys_are_the_texts_of_whole_numbers(tmp_path, keys):
    if isinstance(keys, np.ndarray):
        np.savez(tmp_path / "t", id=keys, emb=VECTORS[:3])
        path = tmp_path / "t.npz"
    else:
        path = tmp_path / "t.parquet"
        pa.parquet.write_table(pa.table({"id": keys, "emb": VECTORS[:3].tolist()}), path)
    assert table(spec(path, key="id", vector="emb")).keys.to_pylist() == [b"1", b"2", b"3"]


LISTS = VECTORS.tolist()


@pytest.mark.parametrize(
    ("keys", "vectors", "message"),
    [
        (["a", "b", "a"], LISTS[:3], "the key 'a' has several vectors; keep one of them"),
        (["a", None], LISTS[:2], "row 2: key is missing"),
        (["a", "b\nc"], LISTS[:2], "row 2: key has a line break"),
        (["a", "b"], [LISTS[0], LISTS[1][:2]], "row 2: vector: a vector has 3 numbers, found 2"),
        (["a", "b"], [LISTS[0], None], "row 2: vector: the vector is missing"),
        (["a", "b"], [LISTS[0], [1, 2, math.inf]], "row 2: vector: 'inf' in a vector is not finite"),
        (["a", "b"], [[1, math.nan, 3], LISTS[0]], "row 1: vector: element 2 of the vector is missing"),
        ([], pa.array([], pa.list_(pa.float32())), "has no rows"),
        (["a"], [1.5], "vector of type double has no lists"),
    ],
)
def test_a_table_with_a_mistake_is_refused_in_one_line(tmp_path, keys, vectors, message):
    write(tmp_path / "t.parquet", pa.array(keys, pa.string()), vectors)
    with pytest.raises(InputError) as error:
        table(spec(tmp_path / "t.parquet"))
    assert message in str(error.value) and "\n" not in str(error.value)


DAMAGED = [("t.npz", "cut"), ("t.npz", "changed"), ("packed.npz", "changed"), ("t.parquet", "cut")]


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
def test_a_damaged_table_is_refused_in_one_line(tmp_path, name, damage):
    keys, vectors = [f"i{row}" for row in range(900)], np.random.default_rng(1).normal(size=(900, 3))
    if name == "t.parquet":
        write(tmp_path / name, keys, list(vectors))
    else:
        save = np.savez if name == "t.npz" else np.savez_compressed
        save(tmp_path / name, key=np.array(keys), vector=vectors)
    contents = bytearray((tmp_path / name).read_bytes())
    if damage == "changed":
        contents[len(contents) // 2 : len(contents) // 2 + 40] = bytes(40)
    (tmp_path / name).write_bytes(contents if damage == "changed" else contents[: len(contents) // 2])
    with pytest.raises(InputError, match=rf"^{tmp_path / name}: .*\((?!None).+\); (write|check)") as error:
        table(spec(tmp_path / name))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "mark", "place", "byte"),
    [("t.npz", b"PK\1\2", 10, 99), ("t.npz", b"PK\1\2", 8, 1), ("t.parquet", b"vector\x15", 0, 0xE3)],
    ids=["compression", "encryption", "name of a column"],
)
def test_a_table_with_one_changed_byte_is_refused_in_one_line(tmp_path, name, mark, place, byte):
    keys, vectors = ["i1", "i2"], np.ones((2, 3), np.float32)
    if name == "t.parquet":
        write(tmp_path / name, keys, list(vectors))
    else:
        np.savez(tmp_path / name, key=np.array(keys), vector=vectors)
    contents = bytearray((tmp_path / name).read_bytes())
    contents[contents.index(mark) + place] = byte
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(InputError, match=rf"^{tmp_path / name}: .*; write") as error:
        table(spec(tmp_path / name))
    assert "\n" not in str(error.value)


def test_files_that_are_no_table_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        table(spec(tmp_path / "absent.parquet"))
    with pytest.raises(InputError, match="cannot be read"):
        table_fingerprint(str(tmp_path / "absent.parquet"))
    (tmp_path / "text.csv").write_text("key,vector\na,1\n")
    np.save(tmp_path / "one.npy", VECTORS)
    for name in ("text.csv", "one.npy"):
        with pytest.raises(InputError, match=r"neither Parquet nor an \.npz file"):
            table(spec(tmp_path / name))
    np.savez(tmp_path / "t.npz", key=np.array(KEYS), vector=VECTORS[0])
    with pytest.raises(InputError, match=r"write keys \[rows\] and vectors of numbers"):
        table(spec(tmp_path / "t.npz"))
    with pytest.raises(InputError, match="has no emb, which `vector` of pretrained names; it has key, vector"):
        table(spec(tmp_path / "t.npz", vector="emb"))


def test_a_changed_table_is_read_anew(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, key=np.array(KEYS), vector=VECTORS)
    before, first = table_fingerprint(str(path)), table(spec(path)).vectors
    np.savez(path, key=np.array([*KEYS, "more"]), vector=np.concatenate([VECTORS, VECTORS[:1] + 1]))
    assert len(table(spec(path)).vectors) == len(first) + 1 and table_fingerprint(str(path)) != before


def test_the_graph_has_the_vector_of_every_key_and_says_what_has_none(tmp_path):
    """i3 is in no training row and has its vector; i9 is in the training rows and has none."""
    np.savez(tmp_path / "t.npz", key=np.array(KEYS), vector=VECTORS)
    log = spec(tmp_path / "t.npz")
    counter = LogCounter.of_log(log)
    items = ["i1", "i1", "i9", "7", ""]
    texts = {"item": items, "user": list("uuuuu")}
    columns = {
        name: pa.array([each.encode() or None for each in values], pa.binary()) for name, values in texts.items()
    }
    vectors = pa.array([np.zeros(2, np.float32).tobytes()] * 5, pa.binary(8))
    counter.add(columns | {"v": vectors})
    summary = counter.summary()
    (described,) = pretrained_tables(log).values()
    line = _without_vectors("item", described, log, summary)
    assert line == f"item: 1 of 3 different values, in 25.0% of the training rows, have no vector in {tmp_path}/t.npz"
    learned = Learned(log, summary, tmp_path)
    asked = ["i1", "i2", "i3", "7", "7.0", "i9", "other", ""]
    inputs = {"item": tf.constant(asked), "user": tf.constant(["u"] * 8)}
    found = preprocessing_fn({**inputs, "v": tf.ones((8, 2)), "click": tf.zeros(8)}, learned)
    expected = np.concatenate([VECTORS[[0, 1, 2, 3, 3]], np.zeros((3, 3))])
    np.testing.assert_array_equal(found["dense"].numpy()[:, :3], expected)
    np.testing.assert_array_equal(found["candidate_dense"].numpy(), expected)
    assert found["context_dense"].shape == (8, 2)
    ids = found["ids"].numpy()[:, 0] - 1
    assert ids.tolist()[5:] == [ids[5], 0, 1] and ids[5] >= 2  # its own id, unknown, missing
    features = layout(log, lambda column, feature: len(learned._vocabulary(column, feature)[0]))
    assert features.widths == {"item": 3, "v": 2} and features.item_dense == ("item",)
    assert FeatureMap.from_json(features.to_json()) == features
    of_item = [(part.tensor, part.first, part.stop) for part in tensor_slices(log) if part.column == "item"]
    assert of_item == [("ids", 0, 1), ("dense", 0, 3)]


def test_vectors_that_are_fine_tuned_are_rows_of_the_ids_and_no_dense_feature(tmp_path):
    """i3 is in no training row and has an id of its own; i9 is in the training rows and has no vector."""
    path = tmp_path / "t.npz"
    np.savez(path, key=np.array(KEYS), vector=VECTORS)
    log = spec(path, freeze=False)
    counter = LogCounter.of_log(log)
    texts = {"item": ["i1", "i1", "i9", "7", ""], "user": list("uuuuu")}
    columns = {name: pa.array([each.encode() or None for each in values]) for name, values in texts.items()}
    counter.add(columns | {"v": pa.array([np.zeros(2, np.float32).tobytes()] * 5, pa.binary(8))})
    learned = Learned(log, counter.summary(), tmp_path)
    asked = ["i1", "i2", "i3", "7", "i9", "other", ""]
    inputs = {"item": tf.constant(asked), "user": tf.constant(["u"] * 7), "v": tf.ones((7, 2)), "click": tf.zeros(7)}
    found = preprocessing_fn(inputs, learned)
    ids = found["ids"].numpy()[:, 0]
    assert found["dense"].shape == (7, 2) and len(set(ids.tolist())) == 7
    features = layout(log, lambda column, feature: len(learned._vocabulary(column, feature)[0]))
    item = features.fields[0]
    assert ids[5:].tolist() == [item.unknown_id, item.missing_id] and features.widths == {"v": 2}
    learned.write_start_vectors(tmp_path / START_VECTORS)
    (start,) = read_start_vectors(tmp_path / START_VECTORS, features).values()
    rows = dict(zip(start.ids.tolist(), start.vectors, strict=True))
    np.testing.assert_array_equal([rows.pop(each) for each in ids[:4].tolist()], VECTORS)
    assert not rows


def test_fewer_numbers_are_those_that_keep_the_most_of_all_inner_products(tmp_path):
    path = tmp_path / "t.npz"
    vectors = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32) * [0.3, 2, 1] + [0, 0, 1]
    np.savez(path, key=np.arange(50), vector=vectors)
    log = spec(path, freeze=False)
    write_start_vectors(tmp_path / START_VECTORS, log, {"item": pa.array([b"4", b"no", b"7"])})
    features = FeatureMap.from_sizes([("user", "categorical", 5), ("item", "categorical", 3)])
    start = read_start_vectors(tmp_path / START_VECTORS, features)["item"]
    assert start.ids.tolist() == [10, 12]  # 1 to 7 are the user's, 8 the unknown item, 9 the missing one
    np.testing.assert_array_equal(start.fitted(3), vectors[[4, 7]].astype(np.float32))
    left, lengths, right = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    closest = (left[:, :2] * lengths[:2]) @ right[:2]
    np.testing.assert_allclose(start.fitted(2) @ start.fitted(2).T, closest[[4, 7]] @ closest[[4, 7]].T, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transform": "hash", "buckets": 10}, "freeze: false needs an id for each value; set transform: vocabulary"),
        ({"length": 5000}, "at most 4,096 with freeze: false, found 5,000; freeze it"),
    ],
)
def test_vectors_that_cannot_be_fine_tuned_are_refused(changes, message):
    length = changes.pop("length", 3)
    feature = {"kind": "categorical", "columns": ["item"], **changes}
    with pytest.raises(ValueError, match=message):
        Categorical.model_validate(feature | {"pretrained": {"path": "t.npz", "length": length, "freeze": False}})
