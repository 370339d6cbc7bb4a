"""Numbers far beyond the range of the training rows, in every transform of numbers."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.processes import Workers
from ctrpipe.transforms.features.analyzers import LogSummary, Numbers
from ctrpipe.transforms.features.learned import Former, Learned
from ctrpipe.transforms.features.transform import LIMITS, analyze, load_graph, transform
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

TRANSFORMS = {
    "standardize": {},
    "quantile_normalize": {},
    "min_max": {"buckets": 11},
    "quantile_bucketize": {"buckets": 4},
    "log_bucketize": {},
    "bars_bucketize": {},
}
SPEC = LogSpec.model_validate(
    {
        "data": {"format": "csv", "columns": ["click", *TRANSFORMS], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": [name], "transform": name, **more} for name, more in TRANSFORMS.items()
        ],
        "raw_numbers": True,
    }
)
TRAIN = np.random.default_rng(3).lognormal(2, 1, 400).astype(np.float32)
LOW, HIGH = TRAIN.min() - np.ptp(TRAIN), TRAIN.max() + np.ptp(TRAIN)
BEYOND = np.array([2.0**63 - 1, 1e30, 3.4e38, math.inf, -1e30, -(2.0**63), -math.inf, HIGH * 1.01], np.float32)
WITHIN = np.array([HIGH * 0.99, 0, -1, 7, math.nan], np.float32)


def write(folder, numbers: np.ndarray) -> None:
    folder.mkdir()
    columns = {name: pa.array(numbers, pa.float32(), from_pandas=True) for name in TRANSFORMS}
    columns["click"] = pa.array(np.arange(len(numbers)) % 2, pa.float32())
    with PayloadWriter(folder, "part", payload_schema(SPEC)) as writer:
        writer.write(pa.RecordBatch.from_pydict(columns))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clipped")
    write(folder / "train", TRAIN)
    write(folder / "test", np.concatenate([BEYOND, WITHIN]))
    analyze(SPEC, payload_files(folder / "train"), folder / "graph", Workers(processes=1))
    return folder


def packed(folder, numbers: np.ndarray) -> dict[str, np.ndarray]:
    columns = {name: numbers.astype(np.float32) for name in [*TRANSFORMS, "click"]}
    return load_graph(folder / "graph")(columns)


@pytest.mark.slow
def test_a_number_beyond_the_range_is_the_end_of_the_widened_range(folder):
    """The reference clips with numpy and packs numbers that every model has seen the like of."""
    for name, (low, high) in json.loads((folder / "graph" / LIMITS).read_text()).items():
        assert (low, high) == pytest.approx((LOW, HIGH), rel=1e-6), name
    numbers = np.concatenate([BEYOND, WITHIN, TRAIN])
    found, clipped = packed(folder, numbers), packed(folder, np.clip(numbers, LOW, HIGH))
    for tensor in ("dense", "ids", "numbers"):
        np.testing.assert_array_equal(found[tensor], clipped[tensor], tensor)
        assert np.isfinite(found[tensor]).all()
    wide = np.clip(numbers.astype(np.float64), LOW, HIGH)
    expected = np.where(np.isnan(wide), 0, (wide - TRAIN.mean(dtype=np.float64)) / TRAIN.std(dtype=np.float64))
    np.testing.assert_allclose(found["dense"][:, 0], expected, rtol=1e-5, atol=1e-5)
    assert set(found["dense"][: len(BEYOND), 1].tolist()) == {0.0, 1.0}
    above, below = f"{HIGH:.2e}", f"{LOW:.2e}"
    for row, text in ((1, above), (3, above), (4, below), (6, below)):
        significand, exponent = found["numbers"][row, :2]
        assert significand * 10.0 ** (exponent - len(str(abs(significand))) + 1) == pytest.approx(float(text))


@pytest.mark.slow
def test_the_clipped_numbers_of_each_split_are_counted(folder):
    splits = {name: (folder / name, folder / f"packed-{name}") for name in ("train", "test")}
    found = transform(SPEC, folder / "graph", splits, 1, Workers(processes=1))
    assert found.rows == {"train": len(TRAIN), "test": len(BEYOND) + len(WITHIN)}
    assert found.clipped == {"train": {}, "test": dict.fromkeys(TRANSFORMS, len(BEYOND))}


def test_a_warm_start_keeps_the_numbers_that_its_parent_knows(tmp_path):
    numbers = dict.fromkeys(TRANSFORMS, Numbers(2, 5, 25, 0, 10))
    former = Former(limits={"standardize": np.array([-7, 12]), "min_max": np.array([-99, 999])})
    found = Learned(SPEC, LogSummary({}, numbers, 1), tmp_path, former).limits()
    assert {name: limits.tolist() for name, limits in found.items()} == {
        **dict.fromkeys(TRANSFORMS, [-10, 20]),
        "min_max": [-99, 999],
    }


@pytest.mark.parametrize("text", ["inf", "-Infinity", "+INF", "1e300", "-1e39"])
def test_an_infinite_number_is_scored_and_never_learned_from(text, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("".join(f"{click},{','.join([value] * 6)}\n" for click, value in ((1, text), (0, "2"))))
    (batch,) = LogReader(SPEC).read(str(path))
    assert batch.rows["min_max"].to_pylist() == [2] and [reject.line for reject in batch.rejects] == [1]
    assert f"'{text}'" in batch.rejects[0].reason
    (batch,) = LogReader(SPEC, labels=False).read(str(path))
    sign = -1 if text.startswith("-") else 1
    assert batch.rows["min_max"].to_pylist() == [sign * float(np.finfo(np.float32).max), 2] and not batch.rejects


def test_typed_infinite_numbers_are_scored_as_well(tmp_path):
    spec = SPEC.model_validate({**SPEC.model_dump(), "data": {"format": "parquet", "labels": {"ctr": "click"}}})
    numbers = pa.array([math.inf, -1e300, math.nan, None, 5], pa.float64())
    table = pa.table({name: numbers for name in TRANSFORMS})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    (batch,) = LogReader(spec, labels=False).read(str(tmp_path / "log.parquet"))
    largest = float(np.finfo(np.float32).max)
    assert batch.rows["standardize"].to_pylist() == [largest, -largest, None, None, 5] and not batch.rejects


def test_a_decimal_comma_has_infinite_numbers_too(tmp_path):
    data = {**SPEC.data.model_dump(), "delimiter": ";", "decimal": ","}
    spec = SPEC.model_validate({**SPEC.model_dump(), "data": data})
    (tmp_path / "log.csv").write_text("1;1,5;inf;-1e99;2;3;4\n")
    (batch,) = LogReader(spec, labels=False).read(str(tmp_path / "log.csv"))
    largest = float(np.finfo(np.float32).max)
    assert [batch.rows[name][0].as_py() for name in list(TRANSFORMS)[:3]] == [1.5, largest, -largest]
