import collections
import itertools
import math
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.features.analyzers import QUANTILE_ERROR, LogSummary, merge, summarize
from ctrpipe.transforms.log import payload
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "site", "tags", "hashed", "age", "price", "plain"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["site"]},
            {"kind": "multivalent", "columns": ["tags"], "separator": "::", "max_length": 2},
            {"kind": "categorical", "columns": ["hashed"], "transform": "hash", "buckets": 5},
            {"kind": "numeric", "columns": ["age"], "transform": "standardize"},
            {"kind": "numeric", "columns": ["price"], "transform": "quantile_normalize"},
            {"kind": "numeric", "columns": ["plain"]},
        ],
    }
)
NUMBERS = ("age", "price", "plain", "click")
ODD = ["é", "ÿ", "☃", "a b", " a", "a ", "0", "x" * 300, "\x00", '"q"', "NULL"]


def make_rows(count: int, seed: int = 0) -> dict[str, list]:
    random = np.random.default_rng(seed)
    sites = [None, *ODD, *(f"s{n}" for n in random.zipf(1.3, 500) % 100_000)]
    tags = ["::".join(f"t{n % 30}" for n in random.zipf(1.4, random.integers(0, 6))) for _ in range(count)]
    return {
        "site": [sites[n] for n in random.integers(0, len(sites), count)],
        "tags": [None if text == "" else f"::{text}" if n % 4 == 0 else text for n, text in enumerate(tags)],
        "hashed": ["h"] * count,
        "age": [None if random.random() < 0.2 else float(random.normal(1e4, 3)) for _ in range(count)],
        "price": [float(n) for n in np.round(random.lognormal(2, 2, count))],
        "plain": [1.0] * count,
        "click": [0.0] * count,
    }


def batch(rows: dict[str, list]) -> pa.RecordBatch:
    arrays = {}
    for name, values in rows.items():
        if name in NUMBERS:
            arrays[name] = pa.array(values, pa.float32())
        else:
            encoded = [value if value is None else value.encode() for value in values]
            arrays[name] = pa.array(encoded, pa.binary())
    return pa.RecordBatch.from_pydict(arrays)


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Writes rows as a payload of parts of 1,000 rows, and gives its files."""
    monkeypatch.setattr(payload, "ROW_GROUP_ROWS", 400)
    monkeypatch.setattr(payload, "PART_ROWS", 800)

    def write(rows: dict[str, list]) -> list:
        with PayloadWriter(tmp_path, "part", payload_schema(SPEC)) as writer:
            writer.write(batch(rows))
        return payload_files(tmp_path)

    return write


def counted(summary: LogSummary, column: str) -> dict[bytes, int]:
    found = summary.values[column]
    assert len(found.values) == len(set(found.values.to_pylist()))
    return dict(zip(found.values.to_pylist(), found.counts.tolist(), strict=True))


def of_values(tmp_path, values: list[str | None], capacity: int | None = None) -> LogSummary:
    """The summary of rows with these sites."""
    folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    with PayloadWriter(folder, "part", payload_schema(SPEC)) as writer:
        writer.write(batch({**make_rows(len(values)), "site": values}))
    return summarize(payload_files(folder), SPEC, capacity)


def test_counts_are_those_of_plain_python_however_the_rows_lie_in_parts(parts):
    rows = make_rows(3000)
    files = parts(rows)
    assert len(files) == 4
    expected = {
        "site": collections.Counter(value.encode() for value in rows["site"] if value),
        "tags": collections.Counter(
            token.encode() for value in rows["tags"] if value for token in value.split("::") if token
        ),
    }
    whole = summarize(files, SPEC)
    separately = [summarize([file], SPEC) for file in files]
    for summary in (whole, merge(separately), merge(separately, threads=3)):
        assert {name: counted(summary, name) for name in summary.values} == expected
        assert not summary.bounds()


def test_a_vocabulary_is_the_same_in_whatever_order_the_parts_are_merged(parts):
    summaries = [summarize([file], SPEC) for file in parts(make_rows(2400))]
    found = {tuple(merge(order).vocabulary("site", 50, 2).to_pylist()) for order in itertools.permutations(summaries)}
    assert len(found) == 1 and len(found.pop()) == 50


def test_the_most_frequent_come_first_and_of_equals_the_greater_bytes(tmp_path):
    values = ["b"] * 3 + ["a", "é", "z", "\u00ff", "A", "aa"] * 2 + ["once", "Once"]
    summary = of_values(tmp_path, values)
    order = ["b", "\u00ff", "é", "z", "aa", "a", "A", "once", "Once"]
    assert [value.decode() for value in summary.vocabulary("site").to_pylist()] == order
    for top_k in range(1, 11):  # every cut inside the ties
        cut = summary.vocabulary("site", top_k).to_pylist()
        assert [value.decode() for value in cut] == order[:top_k]
        assert summary.vocabulary_size("site", top_k) == len(cut)
    assert summary.vocabulary("site", None, 3).to_pylist() == [b"b"]
    assert summary.vocabulary_size("site", None, 2) == 7
    assert summary.vocabulary("site", 5, 4).to_pylist() == []


def test_a_value_with_a_line_break_is_an_entry(tmp_path):
    summary = of_values(tmp_path, ["a\nb"] * 5 + ["c\r"] * 4 + ["d"] * 3 + ["", None, "e"])
    assert summary.vocabulary("site", 1).to_pylist() == [b"a\nb"]
    assert summary.vocabulary("site").to_pylist() == [b"a\nb", b"c\r", b"d", b"e"]
    assert summary.vocabulary_size("site") == 4


def test_a_column_without_values_has_no_entry(tmp_path):
    summary = of_values(tmp_path, [None] * 20)
    assert summary.vocabulary("site").to_pylist() == [] and summary.vocabulary_size("site") == 0


@pytest.mark.parametrize("pieces", [1, 7])
def test_beyond_the_capacity_counts_are_short_by_at_most_the_stated_bound(tmp_path, pieces):
    random = np.random.default_rng(1)
    values = [f"s{n}" for n in random.zipf(1.2, 20_000) % 100_000] + [f"once{n}" for n in range(10_000)]
    random.shuffle(values)
    capacity = 200
    cuts = np.array_split(np.array(values, object), pieces)
    summary = merge([of_values(tmp_path, cut.tolist(), capacity) for cut in cuts])
    true = collections.Counter(value.encode() for value in values)
    found, bound = counted(summary, "site"), summary.bounds()["site"]
    assert len(true) > 10_000 and 0 < len(found) <= capacity
    assert 0 < bound <= len(values) / (capacity + 1)
    for value, count in true.items():
        assert count - bound <= found.get(value, 0) <= count
    # The frequent values stand in their true order.
    frequent = [value for value, count in true.most_common(5)]
    assert summary.vocabulary("site", 5).to_pylist() == frequent


def test_a_capacity_that_suffices_is_exact(tmp_path):
    values = [f"s{n % 500}" for n in range(3000)]
    found = of_values(tmp_path, values, 500)
    assert not found.bounds() and set(counted(found, "site").values()) == {6}
    less = of_values(tmp_path, values, 499)
    assert less.bounds() == {"site": 6} and counted(less, "site") == {}


def test_mean_deviation_and_range_are_those_of_numpy(parts):
    rows = make_rows(3000)
    rows["age"][:4] = [math.nan, math.inf, -math.inf, None]
    files = parts(rows)
    numbers = np.array([n for n in rows["age"] if n is not None and math.isfinite(n)], np.float32).astype(np.float64)
    for summary in (summarize(files, SPEC), merge([summarize([file], SPEC) for file in files])):
        found = summary.numbers["age"]
        assert found.count == len(numbers)
        np.testing.assert_allclose([found.mean, found.variance], [numbers.mean(), numbers.var()], rtol=1e-9)
        assert (found.minimum, found.maximum) == (numbers.min(), numbers.max())
    assert set(summary.numbers) == {"age", "price", "plain"}


def test_the_moments_of_the_largest_numbers_are_finite(parts):
    rows = make_rows(3000)
    largest = float(np.finfo(np.float32).max)
    rows["age"] = [largest, -largest] * 1500
    found = summarize(parts(rows), SPEC).numbers["age"]
    assert found.mean == 0 and found.variance == pytest.approx(largest**2)
    assert found.limits == (-largest, largest)


def test_quantiles_are_numbers_of_the_log_within_the_error_of_their_place(parts):
    rows = make_rows(3000)
    files = parts(rows)
    numbers = np.sort(rows["price"])
    for summary in (summarize(files, SPEC), merge([summarize([file], SPEC) for file in files])):
        found = summary.numbers["price"].quantiles(20)
        assert set(found) <= set(numbers) and (found[0], found[-1]) == (numbers[0], numbers[-1])
        first, last = (np.searchsorted(numbers, found, side) / len(numbers) for side in ("left", "right"))
        place = np.arange(21) / 20
        slack = QUANTILE_ERROR + 1 / len(numbers)
        assert (first <= place + slack).all() and (last >= place - slack).all()
        np.testing.assert_array_equal(found, summary.numbers["price"].quantiles(20))  # asking changes nothing


def test_quantiles_of_few_numbers_of_none_and_without_a_sketch(tmp_path, parts):
    rows = make_rows(20)
    rows["price"], rows["age"] = [None] * 19 + [7.0], [None] * 20
    summary = summarize(parts(rows), SPEC)
    assert summary.numbers["price"].quantiles(4).tolist() == [7.0] * 5
    assert summary.numbers["age"].count == 0 and summary.numbers["age"].variance == 0
    assert summary.numbers["age"].quantiles(2).tolist() == [0, 0, 0]
    rows["age"] = [1.0] * 20
    with pytest.raises(ValueError, match="sketch"):
        of_values(tmp_path, ["a"] * 20).numbers["age"].quantiles(2)


def test_a_summary_is_the_same_from_another_process(parts):
    summary = summarize(parts(make_rows(900)), SPEC)
    found = pickle.loads(pickle.dumps(summary))
    assert found.vocabulary("site").equals(summary.vocabulary("site")) and found.capacity == summary.capacity
    assert found.numbers["age"] == summary.numbers["age"]
    np.testing.assert_array_equal(found.numbers["price"].quantiles(10), summary.numbers["price"].quantiles(10))
    assert counted(merge([found, summary]), "tags") == {
        value: 2 * count for value, count in counted(summary, "tags").items()
    }


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="no summary"):
        merge([])


def test_a_log_without_anything_to_learn_needs_no_reading(tmp_path):
    features = [{"kind": "categorical", "columns": ["site"], "transform": "hash", "buckets": 9}]
    spec = LogSpec.model_validate({"data": SPEC.data.model_dump(), "features": features})
    assert summarize([tmp_path / "not there"], spec) == LogSummary({}, {}, spec.data.max_distinct_values)


def test_a_process_that_counts_loads_neither_tensorflow_nor_beam():
    code = "import ctrpipe.transforms.features.transform, sys\n"  # whose _Summarize it is given
    code += "print({'tensorflow', 'apache_beam', 'keras'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "set()", run.stderr
