"""Histories whose items have several values each: read, counted, looked up, and pooled inside the item."""

import json

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow_transform as tft

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.din import DIN
from ctrpipe.transforms.features.analyzers import summarize
from ctrpipe.transforms.features.pack_rows import pack_rows
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import load_graph, write_graph
from ctrpipe.transforms.log.payload import payload_schema
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

# items and the categories of each item
HISTORIES = [
    (["i1", "i2"], [["c1", "c2"], ["c2"]]),
    (["i3"], [["c3", "c1", "c2", "c9"]]),
    ([], []),
    (["i1", "i2", "i3"], [["c1"], [], ["c2", "c2"]]),
]
SEQUENCE = {"kind": "sequence", "columns": ["items", "cats"], "shared_with": ["item", None], "max_length": 2}
SEVERAL = {"within": ",", "values_per_item": {"cats": 3}}


def spec(name: str, **changes) -> LogSpec:
    features = [{"kind": "categorical", "columns": ["item"]}, {**SEQUENCE, **SEVERAL, **changes}]
    data = {"format": name, "header": name == "csv", "labels": {"ctr": "click"}}
    return LogSpec.model_validate({"data": data, "features": features})


def write(path) -> None:
    clicks, item = [0, 1, 0, 1], ["i1", "i2", "i3", "i1"]
    items, cats = zip(*HISTORIES, strict=True)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table({"click": clicks, "item": item, "items": items, "cats": cats}), path)
        return
    rows = zip(clicks, item, items, cats, strict=True)
    if path.suffix == ".jsonl":
        lines = [json.dumps({"click": c, "item": i, "items": own, "cats": of}) for c, i, own, of in rows]
    else:
        texts = [(c, i, "|".join(own), "|".join(",".join(each) for each in of)) for c, i, own, of in rows]
        lines = ["click,item,items,cats", *(f'{c},{i},{own},"{of}"' for c, i, own, of in texts)]
    path.write_text("\n".join(lines) + "\n")


def read(path, log: LogSpec) -> pa.Table:
    batches = list(LogReader(log).read(str(path)))
    assert not any(batch.rejects for batch in batches)
    return pa.Table.from_batches([batch.rows for batch in batches]).select(payload_schema(log).names)


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_lists_of_lists_are_read_from_every_format(tmp_path, name):
    path = tmp_path / f"log.{name}"
    write(path)
    assert read(path, spec(name))["cats"].to_pylist() == [b"c1,c2|c2", b"c3,c1,c2,c9", None, b"c1||c2,c2"]


@pytest.mark.slow
def test_the_values_of_an_item_are_counted_and_have_slots_of_their_own(tmp_path):
    log = spec("parquet")
    write(tmp_path / "log.parquet")
    rows = read(tmp_path / "log.parquet", log)
    pa.parquet.write_table(rows, tmp_path / "payload.parquet")
    summary = summarize([tmp_path / "payload.parquet"], log)
    counted = dict(zip(summary.values["cats"].values.to_pylist(), summary.values["cats"].counts.tolist(), strict=True))
    assert counted == {b"c1": 3, b"c2": 5, b"c3": 1, b"c9": 1}
    write_graph(log, summary, tmp_path / "graph")
    fields = {field.name: field for field in feature_map(log, tft.TFTransformOutput(str(tmp_path / "graph"))).fields}
    cats = fields["cats"]
    assert (cats.slots, cats.per_item, cats.length, fields["items"].length) == (6, 3, 2, 2)
    known = ["unknown", "missing", *(b.decode() for b in summary.vocabulary("cats", None, 1).to_pylist())]
    graph = load_graph(tmp_path / "graph")
    packed = pack_rows(rows, log, graph)["ids"]
    found = [[known[i - cats.offset] if i else "" for i in row[-6:]] for row in packed.tolist()]
    assert found == [
        ["c1", "c2", "", "c2", "", ""],
        ["c3", "c1", "c2", "", "", ""],  # at most three values
        [""] * 6,
        ["missing", "", "", "c2", "c2", ""],  # the last two items
    ]
    np.testing.assert_array_equal(graph(raw_arrays(rows.to_batches()[0], log, labels=True))["ids"], packed)


ITEM = ("item", "categorical", 5)
ITEMS = ("items", "sequence", 5, 2, "feature", "mean", "item", "items")
CATS = ("cats", "sequence", 4, 6, "feature", "mean", "", "items", False, 3)
MAP = FeatureMap.from_sizes([ITEM, ITEMS, CATS])


@keras.saving.register_keras_serializable(package="tests")
class Sums(HistoryModel):
    """Gives back the items' embeddings."""

    def interact(self, rows, inputs, training=None):
        [self.seen] = self.histories(rows, inputs["ids"])
        return keras.ops.sum(self.seen.items, axis=(1, 2))[:, None]


def test_an_item_s_embedding_is_the_mean_of_its_values():
    ids = np.array([[3, 3, 4, 8, 9, 0, 10, 0, 0], [4, 5, 0, 11, 11, 8, 0, 0, 0]], np.int32)
    model = Sums(MAP, embedding_dim=2, embedding_stddev=1.0)
    model({"ids": ids})
    table = keras.ops.convert_to_numpy(model.table.table)
    expected = [[(table[8] + table[9]) / 2, table[10]], [(2 * table[11] + table[8]) / 3, np.zeros(2)]]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(model.seen.items)[:, :, 2:], expected, rtol=1e-5)
    np.testing.assert_array_equal(model.seen.is_item, [[True, True], [True, False]])


def test_candidates_share_a_history_of_such_items():
    model = DIN(MAP, embedding_dim=2, embedding_stddev=1.0, hidden_units=[3])
    history = np.array([[3, 4, 8, 9, 0, 10, 0, 0]], np.int32)
    candidates = np.array([[3], [4], [5]], np.int32)
    whole = np.concatenate([candidates, np.repeat(history, 3, axis=0)], axis=1)
    expected = model({"ids": whole})
    found = model.candidate_logits({"ids": history}, {"ids": candidates})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"within": None}, "within and values_per_item belong together"),
        ({"values_per_item": {"x": 2}}, "values_per_item: x is not one of columns"),
        ({"within": "|"}, "must be different signs"),
        ({"values_per_item": {"cats": 1}}, "greater than or equal to 2"),
        (
            {"values_per_item": {"items": 2}},
            "items has several values per item, and item, whose vocabulary it shares, has one",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        spec("csv", **changes)
