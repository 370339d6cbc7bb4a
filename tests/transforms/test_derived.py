"""Derived columns: formulas, the graph against NumPy and plain Python, statistics, packed rows and refused settings."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from ctrpipe.transforms.features.analyzers import summarize
from ctrpipe.transforms.features.derived.graph import derived_tensor
from ctrpipe.transforms.features.derived.values import derived_array
from ctrpipe.transforms.features.pack_rows import pack_rows
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.source_rows import differences
from ctrpipe.transforms.features.transform import load_graph, write_graph
from ctrpipe.transforms.log.derived.cross import BETWEEN, Cross
from ctrpipe.transforms.log.derived.expression import Expression
from ctrpipe.transforms.log.derived.formulas import NumpyOperations, evaluate, parse
from ctrpipe.transforms.log.derived.lookup import Lookup
from ctrpipe.transforms.log.derived.vector import VectorOf
from ctrpipe.transforms.log.derived.weighted import WeightedLists
from ctrpipe.transforms.log.payload import payload_schema
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import vector_array

NAN = float("nan")
CLICKS, SHOWS = [3.0, NAN, 0.0, 7.0, 5.0], [9.0, 4.0, -1.0, NAN, 0.0]


def numbers_of(text: str) -> tuple[list[float], list[float]]:
    """The values of a formula by the statistics and by the graph, NaN where one is missing."""
    expression = Expression(kind="expression", of=text)
    columns = {"clicks": CLICKS, "shows": SHOWS}
    rows = {name: pa.array(np.float32(values), mask=np.isnan(values)) for name, values in columns.items()}
    counted = derived_array(expression, rows).fill_null(NAN).to_pylist()
    packed = derived_tensor(expression, {name: tf.constant(values, tf.float32) for name, values in columns.items()})
    return counted, packed.numpy().tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log1p(clicks / (shows + 1))", [math.log1p(0.3), NAN, NAN, NAN, math.log1p(5)]),
        ("clicks / shows", [3 / 9, NAN, 0, NAN, NAN]),
        ("min(clicks / shows, 2)", [3 / 9, NAN, 0, NAN, NAN]),  # a quotient by 0 is missing, not large
        ("if_missing(clicks / shows, -1)", [3 / 9, -1, 0, -1, -1]),
        ("is_missing(clicks) + 2 * is_missing(shows)", [0, 1, 0, 2, 0]),
        ("max(clicks, shows, 4)", [9, NAN, 4, NAN, 5]),
        ("clip(clicks, 1, 4)", [3, NAN, 1, 4, 4]),
        ("-clicks ** 2 - +1", [-10, NAN, -1, -50, -26]),
        ("1 ** clicks", [1, NAN, 1, 1, 1]),
        ("log(shows)", [math.log(9), math.log(4), NAN, NAN, NAN]),
        ("log1p(shows)", [math.log(10), math.log(5), NAN, NAN, 0]),
        ("sqrt(abs(shows))", [3, 2, 1, NAN, 0]),
        ("sqrt(shows)", [3, 2, NAN, NAN, 0]),
        ("exp(clicks * 200)", [NAN, NAN, 1, NAN, NAN]),  # beyond 32-bit floats
        ("floor(clicks / 2) + ceil(clicks / 2)", [3, NAN, 0, 7, 5]),
        ("column('clicks') * 0.5 + 1e-3", [1.501, NAN, 0.001, 3.501, 2.501]),
    ],
)
def test_a_formula_is_the_same_in_the_statistics_and_the_graph(text, expected):
    counted, packed = numbers_of(text)
    np.testing.assert_allclose(counted, expected, rtol=1e-6)
    np.testing.assert_allclose(packed, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clicks / ", "'clicks / ' is not a formula"),
        ("", "at least 1 character"),
        ("3 + 4", "names no column"),
        ("clicks if shows else 0", "is not allowed in a formula"),
        ("clicks[0]", "is not allowed in a formula"),
        ("clicks.real", "is not allowed in a formula"),
        ("(lambda x: x)(clicks)", "is not allowed in a formula"),
        ("__import__('os').system('true')", "is not allowed in a formula"),
        ("open('x')", "there is no function open; there are abs, ceil, clip"),
        ("log(clicks, base=2)", "is not allowed in a formula"),
        ("log(clicks, 2)", "log takes 1 argument, not 2"),
        ("max(clicks)", "max takes 2 or more arguments, not 1"),
        ("clicks + 'a'", "'a' is not a number"),
        ("clicks + True", "True is not a number"),
        ("log + clicks", "the function log needs arguments"),
        ("clicks % 2", "is not allowed in a formula"),
        ("clicks < 2", "is not allowed in a formula"),
        ("column(clicks)", "column takes the name of a column in quotes"),
        ("1e999 * clicks", "is too large"),
        ("-" * 60 + "clicks", "nested more than 50 levels"),
        ("clicks; shows", "is not a formula"),
        ("x" * 1001, "at most 1000 characters"),
    ],
)
def test_what_is_no_formula_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Expression(kind="expression", of=text)


def test_any_formula_is_what_python_makes_of_it():
    """Random formulas of the four operations, against Python's own evaluation."""
    random = np.random.default_rng(3)

    def formula(depth: int) -> str:
        if not depth:
            return str(random.choice(["a", "b", "c", "2", "0.5"]))
        sign = random.choice(["+", "-", "*", "/"])
        return f"({formula(depth - 1)} {sign} {formula(depth - 1)})"

    columns = {name: random.uniform(1, 5, 4) for name in "abc"}
    for text in [f"a + {formula(3)}" for _ in range(40)]:
        found = evaluate(parse(text), columns, NumpyOperations())
        for row in range(4):
            try:
                expected = eval(text, {name: float(values[row]) for name, values in columns.items()})  # noqa: S307
            except ZeroDivisionError:
                expected = NAN
            np.testing.assert_allclose(found[row], expected, rtol=1e-12)


def test_a_cross_is_the_pair_and_missing_where_one_is():
    cross = Cross(kind="cross", of=["a", "b"])
    columns = {"a": ["x", "", "x|", "y"], "b": ["z", "z", "z", ""]}
    expected = [f"x{BETWEEN}z".encode(), b"", f"x|{BETWEEN}z".encode(), b""]
    given = {name: tf.constant(values) for name, values in columns.items()}
    assert derived_tensor(cross, given).numpy().tolist() == expected
    rows = {
        name: pa.array([value.encode() or None for value in values], pa.binary()).dictionary_encode()
        for name, values in columns.items()
    }
    assert derived_array(cross, rows).fill_null(b"").to_pylist() == expected
    # One context for all candidates.
    one = derived_tensor(cross, {"a": tf.constant(["u"]), "b": tf.constant(["i", "j"])})
    assert one.numpy().tolist() == [f"u{BETWEEN}i".encode(), f"u{BETWEEN}j".encode()]


MAPS = ["s:0.5|n:-2|s:9", "n:1e9", "s:x|s:4", "", "12.0:3", "s", "a:b:7|b:1"]
KEYS = ["s", "n", "s", "s", "12", "s", "a:b"]
FOUND = [0.5, 1e6, 4.0, NAN, 3.0, NAN, 7.0]


def test_a_lookup_is_the_first_number_of_the_key():
    lookup = Lookup(kind="lookup", key="k", map="m")
    given = {"k": tf.constant([*KEYS, ""]), "m": tf.constant([*MAPS, "s:1"])}
    np.testing.assert_array_equal(derived_tensor(lookup, given).numpy(), np.float32([*FOUND, NAN]))
    rows = {
        "k": pa.array([*map(str.encode, KEYS), None], pa.binary()),
        "m": pa.array([value.replace("12.0", "12").encode() or None for value in [*MAPS, "s:1"]], pa.binary()),
    }
    np.testing.assert_array_equal(derived_array(lookup, rows).fill_null(NAN).to_numpy(), np.float32([*FOUND, NAN]))
    shared = derived_tensor(lookup, {"k": tf.constant(["s", "n", "q"]), "m": tf.constant(["s:0.5|n:-2"])})
    np.testing.assert_array_equal(shared.numpy(), np.float32([0.5, -2, NAN]))


def test_a_vector_of_columns_is_whole_or_missing():
    vector = VectorOf(kind="vector", of=["v1..v2"])
    columns = {"v1": [1.0, NAN, 3.0], "v2": [4.0, 5.0, 6.0]}
    expected = np.float32([[1, 4], [NAN, NAN], [3, 6]])
    packed = derived_tensor(vector, {name: tf.constant(values, tf.float32) for name, values in columns.items()})
    np.testing.assert_array_equal(packed.numpy(), expected)
    rows = {name: pa.array(np.float32(values), mask=np.isnan(values)) for name, values in columns.items()}
    np.testing.assert_array_equal(vector_array(derived_array(vector, rows)), expected)


def test_two_lists_are_values_with_weights():
    made = WeightedLists(kind="weighted", values="tags", weights="w")
    tags, weights = ["a|b", "", "x:y", "a|b|c", "q"], ["0.5|1e-1", "", "2", "-1|0", ""]
    expected = [b"a:0.5|b:1e-1", b"", b"x:y:2", b"a:-1|b:0|c:1", b"q:"]
    packed = derived_tensor(made, {"tags": tf.constant(tags), "w": tf.constant(weights)})
    assert packed.numpy().tolist() == expected  # a value without a weight has the weight 1, as `q:` has
    rows = {"tags": tags[:3], "w": weights[:3]}
    columns = {name: pa.array([text.encode() or None for text in texts], pa.binary()) for name, texts in rows.items()}
    assert derived_array(made, columns).fill_null(b"").to_pylist() == expected[:3]
    shared = derived_tensor(made, {"tags": tf.constant(["a|b", "c"]), "w": tf.constant(["3|4"])})
    assert shared.numpy().tolist() == [b"a:3|b:4", b"c:3"]


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_two_lists_of_a_log_have_the_same_length_and_numbers(tmp_path, name):
    lists = [("a|b", "0.5|1"), ("a", "0.5|1"), ("a|b", "1|x"), ("", ""), ("a", "1e60")]
    path = tmp_path / f"log.{name}"
    if name == "csv":
        path.write_text("click,tags,w\n" + "".join(f"1,{tags},{weights}\n" for tags, weights in lists))
    else:
        parts = [[text.split("|") if text else None for text in column] for column in zip(*lists, strict=True)]
        pa.parquet.write_table(pa.table({"click": [1] * 5, "tags": parts[0], "w": parts[1]}), path)
    features = [{"kind": "multivalent", "columns": ["both"], "max_length": 2, "weights": ":"}]
    made = {"both": {"kind": "weighted", "values": "tags", "weights": "w"}}
    log = described(features, made, format=name, header=name == "csv")
    [batch] = LogReader(log).read(str(path))
    assert batch.rows.to_pydict()["tags"] == [b"a|b", None] and batch.rows.to_pydict()["w"] == [b"0.5|1", None]
    assert [reject.reason for reject in batch.rejects] == [
        "w: 2 values, but tags, with which it is aligned, has 1",
        "w: 'x' is not a number",
        "w: '1e60' is too large for a 32-bit float",
    ]


DERIVED = {
    "rate": {"kind": "expression", "of": "clicks / shows"},
    "site_ad": {"kind": "cross", "of": ["site", "ad"]},
    "likes": {"kind": "lookup", "key": "topic", "map": "topics"},
    "title": {"kind": "vector", "of": ["t1..t2"]},
    "tags": {"kind": "weighted", "values": "names", "weights": "sizes"},
}
FEATURES = [
    {"kind": "categorical", "columns": ["site", "site_ad"]},
    {"kind": "numeric", "columns": ["rate", "shows"], "transform": "quantile_bucketize", "buckets": 4},
    {"kind": "numeric", "columns": ["likes"], "transform": "standardize"},
    {"kind": "vector", "columns": ["title"], "length": 2},
    {"kind": "multivalent", "columns": ["tags"], "max_length": 2, "weights": ":", "pooling": "mean"},
]


def described(features=FEATURES, derived=DERIVED, **data) -> LogSpec:
    settings = {"format": "csv", "header": True, "labels": {"ctr": "click"}, **data}
    return LogSpec.model_validate({"data": settings, "features": features, "derived": derived})


def test_a_request_holds_the_sources_and_an_explanation_the_derived_column():
    log = described()
    assert log.feature_columns == ["site", "shows", "clicks", "ad", "topic", "topics", "t1", "t2", "names", "sizes"]
    assert log.numeric_columns == ["shows", "clicks", "t1", "t2"]
    assert log.text_columns == ["site", "ad", "topic", "topics", "names", "sizes"]
    assert log.explained_columns == ["site", "site_ad", "rate", "shows", "likes", "title", "tags"]
    assert log.vocabulary_columns == ["site", "site_ad", "tags"] and log.weight_separators == {"topics": ":"}
    other = described(derived={**DERIVED, "rate": {"kind": "expression", "of": "clicks"}})
    assert differences(log, other) == ["columns of another transform: rate"]


@pytest.mark.slow
def test_training_and_serving_agree_to_the_bit(tmp_path):
    random = np.random.default_rng(2)
    lines = ["click,site,ad,clicks,shows,topic,topics,t1,t2,names,sizes"]
    for row in range(300):
        clicks, shows = random.integers(0, 20), random.integers(0, 30)
        topics = "|".join(f"{name}:{random.normal():.3f}" for name in random.choice(list("abcd"), 2, replace=False))
        cells = [row % 2, f"s{random.integers(4)}.0", f"a{random.integers(5)}", clicks, shows]
        cells += [random.choice(list("abcd")), topics, f"{random.normal():.4f}", f"{random.normal():.4f}"]
        cells = ["" if place and random.random() < 0.1 else str(cell) for place, cell in enumerate(cells)]
        lists = [f"{random.choice(list('xyz'))}|w", f"{random.normal():.2f}|2"] if row % 9 else ["", ""]
        lines.append(",".join(cells + lists))
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    log = described()
    batches = list(LogReader(log).read(str(path)))
    assert sum(batch.rows.num_rows for batch in batches) == 300
    rows = pa.Table.from_batches([batch.rows for batch in batches]).select(payload_schema(log).names)
    pa.parquet.write_table(rows, tmp_path / "payload.parquet")
    summary = summarize([tmp_path / "payload.parquet"], log)
    write_graph(log, summary, tmp_path / "graph")
    graph = load_graph(tmp_path / "graph")
    packed = pack_rows(rows, log, graph)  # as training reads it: by distinct values
    raw = raw_arrays(rows.combine_chunks().to_batches()[0], log, labels=True)
    for size in (1, 7, 300):  # as requests come
        parts = [
            graph({name: values[start : start + size] for name, values in raw.items()}) for start in range(0, 300, size)
        ]
        for name in ("ids", "dense", "slot_weights"):
            np.testing.assert_array_equal(np.concatenate([np.asarray(part[name]) for part in parts]), packed[name])
    # The vocabulary and the moments are those of the values themselves.
    table = rows.to_pydict()
    pairs = {(site, ad) for site, ad in zip(table["site"], table["ad"], strict=True) if site and ad}
    fields = feature_map(log, tft.TFTransformOutput(str(tmp_path / "graph")))
    sizes = {field.name: field.size - 2 for field in fields.fields}
    assert sizes["site_ad"] == len(pairs) and fields.dense == ("likes", "title") and fields.dense_width == 3
    likes = []
    for topic, topics in zip(table["topic"], table["topics"], strict=True):
        entries = dict(entry.split(":") for entry in (topics or b"").decode().split("|") if entry)
        likes.append(float(entries.get((topic or b"").decode(), NAN)))
    assert summary.numbers["likes"].mean == pytest.approx(np.nanmean(likes), rel=1e-5)
    expected = np.nan_to_num((np.array(likes) - np.nanmean(likes)) / np.nanstd(likes))
    np.testing.assert_allclose(packed["dense"][:, 0], expected, atol=1e-5)
    sizes = [text.split(b"|") if text else None for text in table["sizes"]]
    weights = [np.array(pair, float) / np.abs(np.array(pair, float)).sum() if pair else [1, 0] for pair in sizes]
    np.testing.assert_allclose(packed["slot_weights"], weights, rtol=1e-5)
    rates = [c / s if c is not None and s else NAN for c, s in zip(table["clicks"], table["shows"], strict=True)]
    assert summary.numbers["rate"].count == np.isfinite(rates).sum()


@pytest.mark.parametrize(
    ("features", "derived", "message"),
    [
        (
            FEATURES[:1],
            {"rate": DERIVED["rate"]} | {"site_ad": DERIVED["site_ad"]},
            "derived.rate: no feature reads it",
        ),
        (
            [{"kind": "numeric", "columns": ["site_ad"]}],
            {"site_ad": DERIVED["site_ad"]},
            "derived.site_ad: site_ad is of kind numeric; its values need kind categorical",
        ),
        (
            [{"kind": "categorical", "columns": ["rate"]}],
            {"rate": DERIVED["rate"]},
            "derived.rate: rate is of kind categorical; its values need kind numeric",
        ),
        (
            [{"kind": "numeric", "columns": ["site", "site_ad"]}],
            {"site_ad": {"kind": "cross", "of": ["site", "x"]}},
            "derived.site_ad: site_ad is of kind numeric",
        ),
        (
            [{"kind": "numeric", "columns": ["site"]}, {"kind": "categorical", "columns": ["p"]}],
            {"p": {"kind": "cross", "of": ["site", "x"]}},
            "derived.p: site is of kind numeric; a cross is of columns of kind categorical",
        ),
        (
            [{"kind": "categorical", "columns": ["clicks"]}, {"kind": "numeric", "columns": ["rate"]}],
            {"rate": DERIVED["rate"]},
            "derived.rate: clicks is of kind categorical, no number",
        ),
        (
            [{"kind": "multivalent", "columns": ["topics"], "max_length": 3}, FEATURES[2]],
            {"likes": DERIVED["likes"]},
            "derived.likes: topics is of kind multivalent without weights, no map",
        ),
        (
            [{"kind": "multivalent", "columns": ["topics"], "max_length": 3, "weights": "="}, FEATURES[2]],
            {"likes": DERIVED["likes"]},
            "derived.likes: the feature topics has separator: '|' and weights: '='; write the same here",
        ),
        (
            [{"kind": "vector", "columns": ["title"], "length": 3}],
            {"title": DERIVED["title"]},
            "derived.title: title has length: 3, and its vectors have 2 elements",
        ),
        (
            [{"kind": "categorical", "columns": ["p"], "missing_rate": 0.1}],
            {"p": {"kind": "cross", "of": ["a", "b"]}},
            "derived.p: the log's own values are dropped by missing_rate",
        ),
        (
            [{"kind": "categorical", "columns": ["p", "q"]}],
            {"p": {"kind": "cross", "of": ["a", "b"]}, "q": {"kind": "cross", "of": ["p", "b"]}},
            "derived.q: p is derived itself; name columns of the log",
        ),
        (
            [{"kind": "numeric", "columns": ["rate"]}],
            {"rate": {"kind": "expression", "of": "click + 1"}},
            "derived: click is a label or the weight",
        ),
        (
            [{"kind": "categorical", "columns": ["site"], "role": "item"}, {"kind": "categorical", "columns": ["p"]}],
            {"p": {"kind": "cross", "of": ["user", "site"]}},
            "derived.p: site is a column of the candidate; write role: item for the feature p",
        ),
        (
            [{"kind": "multivalent", "columns": ["p"], "max_length": 3}],
            {"p": {"kind": "weighted", "values": "a", "weights": "b"}},
            "derived.p: p needs separator: '|' and weights: ':'",
        ),
        (
            [{"kind": "multivalent", "columns": ["p"], "max_length": 3, "weights": ":"}],
            {"p": {"kind": "weighted", "values": "a", "weights": "a"}},
            "name two columns",
        ),
        ([{"kind": "categorical", "columns": ["p"]}], {"p": {"kind": "cross", "of": ["a"]}}, "at least 2 items"),
        ([{"kind": "categorical", "columns": ["p"]}], {"p": {"kind": "cross", "of": ["a", "a"]}}, "named twice"),
        (
            [{"kind": "numeric", "columns": ["p"]}],
            {"p": {"kind": "lookup", "key": "a", "map": "a"}},
            "name two columns",
        ),
    ],
)
def test_a_derived_column_that_cannot_be_is_refused(features, derived, message):
    with pytest.raises(ValueError, match=message):
        described(features, derived)
