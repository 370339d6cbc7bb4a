import collections
import datetime
import math

import numpy as np
import pyarrow as pa
import pydantic
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, QuantileTransformer, StandardScaler
from tensorflow_transform.analyzers import sanitized_vocab_filename

from ctrpipe.common.processes import Workers
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.kinds.kind import MISSING, UNKNOWN
from ctrpipe.transforms.features.kinds.numeric import (
    bars_bucket,
    log_bucket,
    min_max_bucket,
    quantile_bucket,
    quantile_normalize,
    standardize,
)
from ctrpipe.transforms.features.kinds.time import time_ids
from ctrpipe.transforms.features.pack_rows import PackedValues, pack_rows
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze, load_graph
from ctrpipe.transforms.features.vocabulary_files import vocabulary_name
from ctrpipe.transforms.log.kinds.time import Time
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema, read_payload
from ctrpipe.transforms.log.spec import LogSpec

HOUR = Time(columns=["hour"], kind="time")


def test_log_bucket_is_the_floor_of_the_logarithm():
    values = [-5.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 20.0, 1e6, 4e9, 1e30]
    found = log_bucket(tf.constant(values, tf.float32)).numpy().tolist()
    expected = [0 if x < 0 else 1 if x < 1 else min(2 + math.floor(math.log(x)), 24) for x in values]
    assert found == expected
    assert log_bucket(tf.constant([float("nan"), float("inf")])).numpy().tolist() == [0, 24]


def test_bars_bucket_is_the_floor_of_the_squared_logarithm():
    values = [-7.0, -1.0, 0.0, 1.0, 2.0, 3.0, 10.0, 1000.0, 1e9]
    expected = [0 if x < 0 else 1 + (int(x) if x <= 2 else math.floor(math.log(x) ** 2)) for x in values]
    assert bars_bucket(tf.constant(values, tf.float32)).numpy().tolist() == expected


def test_time_equals_the_calendar():
    random = np.random.default_rng(0)
    start = datetime.datetime(2000, 1, 1)
    moments = [start + datetime.timedelta(hours=int(hours)) for hours in random.integers(0, 99 * 365 * 24, 500)]
    moments += [datetime.datetime(2024, 2, 29, 23), datetime.datetime(2000, 3, 1), datetime.datetime(2014, 10, 21, 0)]
    texts = [moment.strftime("%y%m%d%H") for moment in moments]
    hour, weekday, weekend = (time_ids(tf.constant(texts), HOUR).numpy() - RESERVED_IDS).T
    assert hour.tolist() == [moment.hour for moment in moments]
    assert weekday.tolist() == [moment.weekday() for moment in moments]
    assert weekend.tolist() == [int(moment.weekday() >= 5) for moment in moments]


@pytest.mark.parametrize(("text", "local"), [("", 1), ("14139900", 0), ("hello", 0), ("141021", 0)])
def test_other_times_are_missing_or_unknown(text, local):
    assert time_ids(tf.constant([text]), HOUR).numpy().tolist() == [[local] * 3]


def test_vocabulary_names_differ_for_different_columns():
    names = ("a b", "a/b", "a_b", "ä", "a-2f-b", "a_2f_b", "a/e9/", "a/é/")
    assert len({sanitized_vocab_filename(vocabulary_name(name)) for name in names}) == len(names)


def of_column(function, values, learned, *options) -> np.ndarray:
    """The result of a function of [N, C] values for one column between two others."""
    columns = tf.stack([tf.zeros(len(values)), tf.constant(values, tf.float32), tf.fill(len(values), 1e9)], axis=1)
    rows = [np.linspace(-1, 1, len(learned)), np.array(learned, np.float64), np.linspace(5, 6, len(learned))]
    return function(columns, tf.constant(rows, tf.float64), *options).numpy()[:, 1]


LOGNORMAL = np.random.default_rng(0).lognormal(3, 2, 5000).astype(np.float32)
COUNTS = np.floor(np.random.default_rng(1).lognormal(1, 1.5, 5000)).astype(np.float32)  # a third is 0 or 1
UNSEEN = np.array([-1e30, -3, 0, 0.25, 1, 1.5, 2, 7, 1e6, 3e38], np.float32)
NUMBERS = {"continuous": LOGNORMAL, "ties": COUNTS, "constant": np.full(50, 4, np.float32)}


@pytest.mark.parametrize("train", NUMBERS.values(), ids=NUMBERS.keys())
def test_quantile_normalize_equals_scikit_learn(train):
    reference = QuantileTransformer(n_quantiles=min(1000, len(train)), subsample=None).fit(train[:, None])
    values = np.concatenate([train, UNSEEN])
    found = of_column(quantile_normalize, values, reference.quantiles_[:, 0])
    np.testing.assert_allclose(found, reference.transform(values[:, None])[:, 0], atol=1e-6)


def test_quantile_normalize_of_what_scikit_learn_refuses():
    assert of_column(quantile_normalize, [math.nan, math.inf, -math.inf], [1, 2, 5]).tolist() == [0.5, 1, 0]


@pytest.mark.parametrize("train", NUMBERS.values(), ids=NUMBERS.keys())
def test_quantile_buckets_divide_as_scikit_learns(train):
    values = np.concatenate([train, UNSEEN.clip(train.min(), train.max())])
    edges = np.quantile(train, np.arange(9) / 8)
    found = of_column(quantile_bucket, values, edges[1:-1])
    expected = (
        KBinsDiscretizer(8, encode="ordinal", subsample=None).fit(train[:, None]).transform(values[:, None])[:, 0]
    )
    # It numbers the buckets anew where boundaries are equal; the values that share one are the same.
    np.testing.assert_array_equal(np.unique(found, return_inverse=True)[1], expected)


def test_equal_boundaries_leave_buckets_empty_between_them():
    found = of_column(quantile_bucket, [-1, 0, 3, 5, math.inf, -math.inf], [0, 0, 0, 5])
    assert found.tolist() == [0, 3, 3, 4, 4, 0]


@pytest.mark.parametrize("buckets", [2, 10, 101])
@pytest.mark.parametrize("train", NUMBERS.values(), ids=NUMBERS.keys())
def test_min_max_buckets_equal_scikit_learns_scale(train, buckets):
    reference = MinMaxScaler(clip=True).fit(train[:, None].astype(np.float64))
    values = np.concatenate([train, UNSEEN])
    found = of_column(min_max_bucket, values, [train.min(), train.max()], buckets)
    scaled = reference.transform(values[:, None].astype(np.float64))[:, 0] * (buckets - 1)
    # scikit-learn multiplies where we divide: a value on a border may fall on either side of it.
    inside = np.abs(scaled - np.round(scaled)) > 1e-9
    np.testing.assert_array_equal(found[inside], np.floor(scaled[inside]))
    assert np.isin(found - np.round(scaled), [0, -1])[~inside].all()


def test_min_max_buckets_are_the_hundredths_of_the_range():
    values = [-2, -1.9375, 0.5, 7.9375, 8, 9, -3, math.inf, -math.inf]
    assert of_column(min_max_bucket, values, [-2, 8], 101).tolist() == [0, 0, 25, 99, 100, 100, 0, 100, 0]


@pytest.mark.parametrize("train", NUMBERS.values(), ids=NUMBERS.keys())
def test_standardize_equals_scikit_learn(train):
    wide = train[:, None].astype(np.float64)
    reference = StandardScaler().fit(wide)
    found = of_column(standardize, train, [reference.mean_[0], reference.var_[0]])
    np.testing.assert_allclose(found, reference.transform(wide)[:, 0], rtol=1e-5, atol=1e-6)


def test_standardize_keeps_the_digits_of_large_numbers():
    train = np.arange(16_000_000, 16_001_000, dtype=np.float32)
    found = of_column(standardize, train, [train.mean(dtype=np.float64), train.var(dtype=np.float64)])
    np.testing.assert_allclose(found, (np.arange(1000) - 499.5) / np.arange(1000).std(), rtol=1e-5)


# One log that has every transform, through the analysis and the graph that serves.
TRAIN = 3000
NUMERIC = ["uniform", "scaled", "ties", "bucketed", "absent", "nothing", "same", "logarithm", "other", "bars"]
SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", *NUMERIC, "ad", "user", "tags", "hour", "hashed"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": ["uniform", "ties", "absent"], "transform": "quantile_normalize"},
            {"kind": "numeric", "columns": ["bucketed"], "transform": "quantile_bucketize", "buckets": 5},
            {"kind": "numeric", "columns": ["scaled", "nothing"], "transform": "min_max"},
            {"kind": "numeric", "columns": ["same"], "transform": "min_max", "buckets": 7},
            {"kind": "categorical", "columns": ["ad"], "top_k": 6, "oov_buckets": 3},
            {"kind": "categorical", "columns": ["user"], "min_count": 40, "missing_rate": 0.05},
            {"kind": "multivalent", "columns": ["tags"], "max_length": 2, "top_k": 2, "oov_buckets": 2},
            {"kind": "time", "columns": ["hour"]},
            {"kind": "numeric", "columns": ["logarithm", "other"]},
            {"kind": "numeric", "columns": ["bars"], "transform": "bars_bucketize"},
            {"kind": "categorical", "columns": ["hashed"], "transform": "hash", "buckets": 7},
        ],
    }
)


def training_rows() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    numbers = random.lognormal(2, 1, TRAIN).astype(np.float32)
    return {
        "uniform": np.where(random.random(TRAIN) < 0.1, np.float32("nan"), numbers),
        "ties": np.floor(numbers / 8),
        "absent": np.full(TRAIN, np.nan, np.float32),
        "bucketed": random.normal(0, 1, TRAIN).astype(np.float32),
        "scaled": np.concatenate([[math.inf, -math.inf, math.nan], numbers[3:]]).astype(np.float32),
        "nothing": np.full(TRAIN, np.nan, np.float32),
        "same": np.full(TRAIN, 3, np.float32),
        "ad": np.array([f"a{n}".encode() for n in random.zipf(1.4, TRAIN)], object),
        "user": np.array([f"u{n}".encode() if n < 100 else b"" for n in random.zipf(1.4, TRAIN)], object),
        "tags": np.array([b"|".join(b"t%d" % n for n in random.zipf(1.6, k % 4)) for k in range(TRAIN)], object),
        "hour": np.array([b"141021%02d" % (k % 24) if k % 9 else b"" for k in range(TRAIN)], object),
        "logarithm": numbers,
        "other": -numbers,
        "bars": numbers * 10,
        "hashed": np.array([b"h%d" % (k % 50) if k % 7 else b"" for k in range(TRAIN)], object),
        "click": np.zeros(TRAIN, np.float32),
    }


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory):
    """The training rows, and the folder with their payload and in it the graph's."""
    folder, rows = tmp_path_factory.mktemp("every"), training_rows()
    columns = {name: pa.array(values, from_pandas=True) for name, values in rows.items() if values.dtype != object}
    columns |= {
        name: pa.array([value or None for value in values], pa.binary())
        for name, values in rows.items()
        if values.dtype == object
    }
    with PayloadWriter(folder, "part", payload_schema(SPEC)) as writer:
        writer.write(pa.RecordBatch.from_pydict(columns))
    analyze(SPEC, payload_files(folder), folder / "graph", Workers(processes=1))
    return rows, folder


@pytest.fixture(scope="module")
def graph(analyzed):
    """The training rows, the feature map, and the graph as a function of raw rows that gives ids and dense by name."""
    rows, folder = analyzed
    fields = feature_map(SPEC, tft.TFTransformOutput(str(folder / "graph")))
    run = load_graph(folder / "graph")

    def by_name(**changed) -> dict[str, np.ndarray]:
        count = len(next(iter(changed.values()))) if changed else TRAIN
        packed = run({name: values[:count] for name, values in rows.items()} | changed)
        found, slot = {}, 0
        for field in fields.fields:
            found[field.name] = packed["ids"][:, slot : slot + field.slots] - field.offset
            slot += field.slots
        return found | {name: packed["dense"][:, place] for place, name in enumerate(fields.dense)}

    return rows, fields, by_name


@pytest.mark.slow
def test_the_feature_map_has_every_field_and_dense_feature(graph):
    _, fields, _ = graph
    assert fields.dense == ("uniform", "ties", "absent")
    size = {field.name: field.size - RESERVED_IDS for field in fields.fields}
    assert size["bucketed"] == 5 and size["scaled"] == size["nothing"] == 101 and size["same"] == 7
    assert size["ad"] == 6 + 2 and size["tags"] == 2 + 1


def test_what_learns_nothing_from_the_log_is_beside_the_rest(graph):
    rows, fields, by_name = graph
    found = by_name()
    for name, bucket in (("logarithm", log_bucket), ("other", log_bucket), ("bars", bars_bucket)):
        np.testing.assert_array_equal(found[name][:, 0], bucket(tf.constant(rows[name])) + RESERVED_IDS)
    times = time_ids(tf.constant(rows["hour"]), HOUR).numpy()
    for place, part in enumerate(("hour", "weekday", "is_weekend")):
        np.testing.assert_array_equal(found[f"hour_{part}"][:, 0], times[:, place])
    buckets = tf.strings.to_hash_bucket_fast(tf.constant(rows["hashed"]), 7).numpy() + RESERVED_IDS
    np.testing.assert_array_equal(found["hashed"][:, 0], np.where(rows["hashed"] == b"", MISSING, buckets))
    assert fields.total_slots == 15


def test_training_numbers_become_uniform(graph):
    rows, _, by_name = graph
    found = by_name()
    present = ~np.isnan(rows["uniform"])
    reference = QuantileTransformer(subsample=None).fit(rows["uniform"][present][:, None])
    expected = reference.transform(rows["uniform"][present][:, None])[:, 0]
    np.testing.assert_allclose(found["uniform"][present], expected, atol=2 / 1000)
    assert (found["uniform"][~present] == 0.5).all() and (~present).sum() > 200
    reference.fit(rows["ties"][:, None])
    np.testing.assert_allclose(found["ties"], reference.transform(rows["ties"][:, None])[:, 0], atol=2 / 1000)
    assert (found["absent"] == 0.5).all()


def test_quantile_buckets_hold_equally_many_training_rows(graph):
    rows, _, by_name = graph
    ids = by_name()["bucketed"][:, 0] - RESERVED_IDS
    assert np.bincount(ids, minlength=5).tolist() == pytest.approx([TRAIN / 5] * 5, abs=0.002 * TRAIN)
    assert np.diff([rows["bucketed"][ids == bucket].mean() for bucket in range(5)]).min() > 0


def test_min_max_leaves_out_what_is_not_finite_and_clips_what_is_outside(graph):
    rows, _, by_name = graph
    numbers = rows["scaled"][3:].astype(np.float64)
    expected = np.floor((numbers - numbers.min()) / (numbers.max() - numbers.min()) * 100)
    found = by_name()["scaled"][:, 0]
    assert found[:3].tolist() == [RESERVED_IDS + 100, RESERVED_IDS, MISSING]
    np.testing.assert_array_equal(found[3:] - RESERVED_IDS, expected)
    new = by_name(scaled=np.array([numbers.max() * 2, -5], np.float32), same=np.array([3, 5], np.float32))
    assert new["scaled"][:, 0].tolist() == [RESERVED_IDS + 100, RESERVED_IDS]
    assert new["same"][:, 0].tolist() == [RESERVED_IDS, RESERVED_IDS + 6]


def test_a_column_that_was_always_missing_takes_numbers_when_they_come(graph):
    _, _, by_name = graph
    values = np.array([-1, 0.5, 7, math.nan, math.inf], np.float32)
    found = by_name(absent=values, nothing=values)
    assert found["nothing"][:, 0].tolist() == [RESERVED_IDS, RESERVED_IDS + 50, RESERVED_IDS + 100, MISSING, 102]
    assert found["absent"].tolist() == [0, 1, 1, 0.5, 1]
    assert (by_name()["nothing"] == MISSING).all()


def test_unknown_values_share_the_unknown_ids_by_their_hash(graph):
    rows, _, by_name = graph
    found = by_name()["ad"][:, 0]
    top = [value for value, _ in collections.Counter(rows["ad"].tolist()).most_common(6)]
    buckets = tf.strings.to_hash_bucket_fast(tf.constant(rows["ad"]), 3).numpy()
    unknown = [UNKNOWN, RESERVED_IDS + 6, RESERVED_IDS + 7]
    expected = [
        RESERVED_IDS + top.index(value) if value in top else unknown[bucket]
        for value, bucket in zip(rows["ad"], buckets, strict=True)
    ]
    assert found.tolist() == expected and set(unknown) <= set(expected)


def test_tokens_have_unknown_ids_by_their_hash_too(graph):
    _, _, by_name = graph
    tokens = [b"t1", b"t2", *(b"new%d" % n for n in range(20))]
    found = by_name(tags=np.array([b"t2|" + token for token in tokens], object))["tags"]
    assert (found[:, 0] == RESERVED_IDS + 1).all()
    buckets = tf.strings.to_hash_bucket_fast(tf.constant(tokens), 2).numpy()[2:]
    assert found[:, 1].tolist() == [2, 3, *np.where(buckets == 0, UNKNOWN, RESERVED_IDS + 2)]


def test_with_a_missing_rate_a_new_value_is_missing(graph):
    rows, _, by_name = graph
    counts = collections.Counter(rows["user"].tolist())
    found = by_name()["user"][:, 0]
    kept = np.array([value != b"" and counts[value] >= 40 for value in rows["user"]])
    assert (found[~kept] == MISSING).all() and (found[kept] >= RESERVED_IDS).all() and 0 < kept.sum() < TRAIN
    assert by_name(user=np.array([b"new"], object))["user"].tolist() == [[MISSING]]


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"kind": "numeric", "transform": "quantile_bucketize"}, "needs buckets"),
        ({"kind": "numeric", "transform": "standardize", "buckets": 4}, "not to standardize"),
        ({"kind": "categorical", "transform": "hash", "buckets": 4, "top_k": 4}, "not to hash"),
        ({"kind": "categorical", "missing_rate": 0.1, "oov_buckets": 2}, "set oov_buckets to 1"),
        ({"kind": "categorical", "missing_rate": 1.0}, "less than 1"),
        ({"kind": "multivalent", "max_length": 2, "oov_buckets": 0}, "greater than or equal to 1"),
    ],
)
def test_a_transform_with_keys_of_another_is_a_mistake(feature, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        LogSpec.model_validate({"data": SPEC.data.model_dump(), "features": [{"columns": ["ad"], **feature}]})


@pytest.mark.parametrize("as_dictionaries", [True, False])
def test_packing_by_different_values_gives_what_the_graph_gives_by_rows(analyzed, as_dictionaries):
    rows, folder = analyzed
    run = load_graph(folder / "graph")
    expected = run(rows)
    start = 0
    for batch in read_payload(payload_files(folder), batch_rows=700, as_dictionaries=as_dictionaries):
        packed = pack_rows(pa.Table.from_batches([batch]), SPEC, run)
        assert packed.keys() == expected.keys() and len(packed["ids"]) == batch.num_rows
        for name, values in packed.items():
            assert values.dtype == expected[name].dtype
            np.testing.assert_array_equal(values, expected[name][start : start + batch.num_rows], name)
        start += batch.num_rows
    assert start == TRAIN


def test_the_graph_sees_each_different_value_of_a_column_once():
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    spec = LogSpec.model_validate({"data": {"columns": ["y", "n", "c"], "labels": {"ctr": "y"}}, "features": features})
    seen: dict[str, list] = {}

    def graph(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen.update({name: values.tolist() for name, values in columns.items()})
        lengths = [len(value) for value in columns["c"]]
        return {"ids": np.stack([np.nan_to_num(columns["n"], nan=-1), lengths], axis=1).astype(np.int32)}

    values = {"n": pa.array([5, None, 5, 7] * 100, pa.float32()), "c": pa.array([b"a", b"bcd", None, b"a"] * 100)}
    rows = pa.Table.from_pydict(values | {"y": pa.array([0, 1, 1, 0] * 100, pa.float32())})
    packed = pack_rows(rows, spec, graph)
    assert packed["ids"].tolist() == [[5, 1], [-1, 3], [5, 0], [7, 1]] * 100
    assert packed["label"].tolist() == [[0], [1], [1], [0]] * 100
    assert seen["n"][:2] == [5, 7] and seen["c"] == [b"a", b"bcd", b""]


@pytest.mark.parametrize("as_dictionaries", [True, False])
def test_any_rows_of_several_chunks_are_laid_out(analyzed, monkeypatch, as_dictionaries):
    monkeypatch.setattr("ctrpipe.transforms.features.pack_rows.GRAPH_ROWS", 10)
    rows, folder = analyzed
    run = load_graph(folder / "graph")
    expected = run(rows)
    # Each chunk of the payload may have a dictionary of its own.
    batches = list(read_payload(payload_files(folder), batch_rows=100, as_dictionaries=as_dictionaries))
    labels = {name: np.zeros(10, np.float32) for name in SPEC.label_columns}

    def graph(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(next(iter(columns.values())))
        return run(columns | {name: values[:count] for name, values in labels.items()})

    packed = PackedValues(pa.Table.from_batches(batches), SPEC, graph).rows(150, 333)
    assert packed.keys() == expected.keys() - {"label"}
    for name, values in packed.items():
        np.testing.assert_array_equal(values, expected[name][150:333], name)
