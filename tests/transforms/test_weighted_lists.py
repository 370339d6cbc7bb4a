"""Lists whose values have weights: read from every format, counted by name, packed as numpy does."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pydantic
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.preprocessing import layout, preprocessing_fn
from ctrpipe.transforms.features.slots import tensor_slices
from ctrpipe.transforms.features.transform import _beyond
from ctrpipe.transforms.log.kinds.guess import ColumnSample
from ctrpipe.transforms.log.kinds.multivalent import Multivalent
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

SLOTS = 3
TEXTS = ["t1:0.5|t2:0.1", "t2:2", "t3", "", "t1:-1.5|t9:4|t2:.5|t3:8", "a:b:1e-1|:3", "7.0:2", "t1:0|t2:0"]


def spec(file_format: str = "csv", **changes) -> LogSpec:
    data = {"format": file_format, "header": file_format == "csv", "labels": {"ctr": "click"}}
    feature = {"kind": "multivalent", "columns": ["tags"], "max_length": SLOTS, "weights": ":", **changes}
    return LogSpec.model_validate({"data": data, "features": [feature]})


def read(path, log: LogSpec) -> tuple[list[str | None], list[str]]:
    (batch,) = LogReader(log).read(str(path))
    values = [value and value.decode() for value in batch.rows["tags"].to_pylist()]
    return values, [f"{reject.line}: {reject.reason}" for reject in batch.rejects]


def test_text_keeps_its_weights_and_names_are_made_plain(tmp_path):
    (tmp_path / "log.csv").write_text("click,tags\n" + "".join(f"{n % 2},{text}\n" for n, text in enumerate(TEXTS)))
    expected = [None if not text else text.replace("7.0:2", "7:2") for text in TEXTS]
    assert read(tmp_path / "log.csv", spec()) == (expected, [])
    assert read(tmp_path / "log.csv", spec(whole_numbers=False))[0][6] == "7.0:2"


@pytest.mark.parametrize("weight", ["x", "nan", "inf", "-inf", "1e99", "", "0x1", "1 "])
def test_a_weight_that_is_no_finite_number_is_refused_in_one_line(tmp_path, weight):
    (tmp_path / "log.csv").write_text(f"click,tags\n1,t0:1|t1:{weight}|t2:1\n0,t1:1\n")
    values, reasons = read(tmp_path / "log.csv", spec())
    assert values == ["t1:1"]
    expected = f"2: tags: 't1:{weight}' has no finite number as its weight after ':'"
    assert reasons == ["2: tags: '1e99' is too large for a 32-bit float" if weight == "1e99" else expected]


MAPS = [[("t1", 0.5), ("t2", 2.0)], None, [], [("t3", None)], [("t4", math.nan)], [("5", 1e-7)]]
READ = ["t1:0.5|t2:2", None, None, "5:1e-07"]
REFUSED = [
    f"{row}: tags: '{text}' has no finite number as its weight after ':'" for row, text in ((4, "t3:"), (5, "t4:"))
]


@pytest.mark.parametrize("keys", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("weights", [pa.float32(), pa.float64()], ids=str)
def test_maps_of_parquet_are_lists_with_weights(tmp_path, keys, weights):
    maps = pa.array(MAPS, pa.map_(keys, weights))
    pairs = [None if row is None else [{"name": name, "weight": weight} for name, weight in row] for row in MAPS]
    lists = pa.array(pairs, pa.list_(pa.struct([("name", keys), ("weight", weights)])))
    for values in (maps, lists):
        table = pa.table({"click": [0, 1] * 3, "tags": values})
        pa.parquet.write_table(table, tmp_path / "log.parquet")
        assert read(tmp_path / "log.parquet", spec("parquet")) == (READ, REFUSED)
    strings = pa.array([["t1:0.5", "t2:2"], None], pa.list_(pa.string()))
    pa.parquet.write_table(pa.table({"click": [0, 1], "tags": strings}), tmp_path / "log.parquet")
    assert read(tmp_path / "log.parquet", spec("parquet")) == (["t1:0.5|t2:2", None], [])


@pytest.mark.parametrize("weight", [pa.float32(), pa.decimal128(5, 2)], ids=str)
def test_a_list_of_pairs_whose_weight_comes_first_is_refused(tmp_path, weight):
    """Otherwise the weight 0.5 of the item 7 would be the item 0.5 with the weight 7."""
    pairs = pa.struct([("score", weight), ("item", pa.int64())])
    values = pa.array([[{"score": 2, "item": 7}], None], pa.list_(pairs))
    pa.parquet.write_table(pa.table({"click": [0, 1], "tags": values}), tmp_path / "log.parquet")
    with pytest.raises(InputError, match="tags of type .*: the element comes before its weight, and score"):
        read(tmp_path / "log.parquet", spec("parquet"))
    turned = pa.struct([("item", pa.int64()), ("score", weight)])
    values = pa.array([[{"score": 2, "item": 7}], None], pa.list_(turned))
    pa.parquet.write_table(pa.table({"click": [0, 1], "tags": values}), tmp_path / "log.parquet")
    assert read(tmp_path / "log.parquet", spec("parquet")) == (["7:2", None], [])


def test_ids_that_are_decimals_without_places_come_before_whole_weights(tmp_path):
    """NUMBER(38, 0) of a database is a decimal of Parquet, and an id."""
    pairs = pa.struct([("item", pa.decimal128(38, 0)), ("clicks", pa.int64())])
    values = pa.array([[{"item": 7, "clicks": 2}], None], pa.list_(pairs))
    pa.parquet.write_table(pa.table({"click": [0, 1], "tags": values}), tmp_path / "log.parquet")
    assert read(tmp_path / "log.parquet", spec("parquet")) == (["7:2", None], [])


def test_objects_of_json_lines_are_lists_with_weights(tmp_path):
    values = [{"t1": 0.5, "t2": 2}, {}, None, ["t1:0.25", "t2"], "t3:4", {"t4": "0.5"}, {"t5": None}, {"t6": [1]}]
    lines = [json.dumps({"click": n % 2, "tags": value}) for n, value in enumerate(values)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    found, reasons = read(tmp_path / "log.jsonl", spec("jsonl"))
    assert found == ["t1:0.5|t2:2", None, None, "t1:0.25|t2", "t3:4", "t4:0.5"]
    assert reasons == [f"{n}: tags: 't{n - 2}' has no finite number as its weight" for n in (7, 8)]


def test_names_are_counted_without_their_weights():
    values = pa.array(
        [text.encode() or None for text in ["t1:0.5|t2:0.1", "t1:9|t2:0.1", "t1", "a:b:2", ""]], pa.binary()
    )
    counter = LogCounter.of_log(spec())
    for part in (values, values.dictionary_encode()):
        counter.add({"tags": part})
    counted = counter.summary().values["tags"]
    assert dict(zip(counted.values.to_pylist(), counted.counts.tolist(), strict=True)) == {
        b"t1": 6,
        b"t2": 4,
        b"a:b": 2,
    }


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("weights", [":", None])
def test_slots_have_the_weights_of_their_values(tmp_path, pooling, weights):
    """The reference splits texts in Python. A row without values has the missing value, with the weight 1."""
    log = spec(pooling=pooling, weights=weights)
    texts = TEXTS if weights else ["|".join(part.split(":")[0] for part in text.split("|")) for text in TEXTS]
    counter = LogCounter.of_log(log)
    plain = [text.replace("7.0", "7").encode() or None for text in texts]  # as a reader makes it
    counter.add({"tags": pa.array(plain, pa.binary())})
    learned = Learned(log, counter.summary(), tmp_path)
    found = preprocessing_fn({"tags": tf.constant(texts), "click": tf.zeros(len(texts))}, learned)
    assert (SLOT_WEIGHTS in found) == (weights is not None or pooling == "mean")
    features = layout(log, lambda column, feature: learned.write_vocabularies().sizes[column])
    vocabulary = [value.decode() for value in learned._vocabularies["tags"][0].to_pylist()]
    expected_ids, expected = np.zeros((len(texts), SLOTS), int), np.zeros((len(texts), SLOTS))
    for row, text in enumerate(texts):
        elements = [part for part in text.split("|") if part][:SLOTS]
        for slot, element in enumerate(elements):
            name, sign, weight = element.rpartition(":") if weights else (element, "", "")
            name, weight = (name, float(weight)) if sign else (element, 1.0)
            name = name.removesuffix(".0")
            if name:
                expected_ids[row, slot], expected[row, slot] = 1 + 2 + vocabulary.index(name), weight
        if not elements:
            expected_ids[row, 0], expected[row, 0] = 2, 1
        total = np.abs(expected[row]).sum()
        expected[row] /= total if pooling == "mean" and total else 1
    np.testing.assert_array_equal(found["ids"].numpy(), expected_ids)
    if SLOT_WEIGHTS not in found:
        assert features.weighted_slots == ()
        return
    np.testing.assert_allclose(found[SLOT_WEIGHTS].numpy(), expected, rtol=1e-6)
    assert features.weighted_slots == ("tags",) * SLOTS and features.fields[0].weighted
    assert [(part.tensor, part.stop) for part in tensor_slices(log)] == [("ids", SLOTS), (SLOT_WEIGHTS, SLOTS)]


def test_a_request_with_an_odd_weight_is_answered(tmp_path):
    """A suffix that is not a weight belongs to the name, which is then unknown. A weight beyond the training range is
    its end, which its own width widens on each side: 0.5 to 2 becomes -1 to 3.5.
    """
    counter = LogCounter.of_log(spec())
    for part in (b"t1:.5", b"t1:2|t1"):
        counter.add({"tags": pa.array([part, None], pa.binary()).dictionary_encode()})
    learned = Learned(spec(), counter.summary(), tmp_path)
    assert learned.limits()["tags"].tolist() == [-1, 3.5]
    texts = ["t1:x", "t1:inf|t1:1e30", "t1:-1e30", "t1:1e400", "t1:-Infinity", "t1:3|t1"]
    found = preprocessing_fn({"tags": tf.constant(texts), "click": tf.zeros(len(texts))}, learned)
    assert found["ids"].numpy()[:, 0].tolist() == [1, 3, 3, 3, 3, 3]
    weights = found[SLOT_WEIGHTS].numpy()
    assert weights[:, 0].tolist() == [1, 3.5, -1, 3.5, -1, 3] and weights[[1, 5], 1].tolist() == [3.5, 1]


def test_an_infinite_weight_is_scored_and_counted_as_clipped(tmp_path):
    (tmp_path / "log.csv").write_text("click,tags\n" + "".join(f"1,{text}\n" for text in ("t1:inf", "t1:1e99", "t2:1")))
    (batch,) = LogReader(spec(), labels=False).read(str(tmp_path / "log.csv"))
    assert batch.rows["tags"].to_pylist() == [b"t1:inf", b"t1:1e99", b"t2:1"] and not batch.rejects
    assert _beyond({"tags": batch.rows["tags"]}, {"tags": [-1, 3.5]}, spec()) == {"tags": 2}


def test_both_separators_must_differ():
    for sign in ("|", "||", "a|"):
        with pytest.raises(pydantic.ValidationError, match="must be different signs"):
            spec(weights=sign)


def test_a_draft_names_the_weights():
    values = ["|".join(f"t{(n + k) % 9}:{n % 7}.{n % 10}" for k in range(1 + n % 4)) for n in range(60)]
    guess = Multivalent.guess(ColumnSample("tags", values))
    assert guess and guess.settings["weights"] == ":" and guess.settings["separator"] == "|"
    pairs = [f"t{n % 9}:{n % 7}.{n % 10}|u{n % 5}:{n % 3}.{n}" for n in range(60)]  # two in each row
    guess = Multivalent.guess(ColumnSample("tags", pairs))
    assert guess and guess.settings["weights"] == ":" and guess.settings["max_length"] == 2
    plain = Multivalent.guess(ColumnSample("tags", [value.replace(":", "-") for value in values]))
    assert plain is None or "weights" not in plain.settings
