"""benchmarks.baseline: its logs, its table and its bars; what it trains is tested in tests/pipeline/test_linear.py."""

import csv
import dataclasses
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from sklearn.metrics import roc_auc_score

from benchmarks.baseline import OneHotRows, bars, measured, shares, table
from benchmarks.harness.small_logs import LOGS, truth_of
from ctrpipe.models.base.feature_map import FeatureMap, Field
from ctrpipe.pipeline.config.load import read_yaml
from ctrpipe.pipeline.draft.page import draft


@pytest.mark.parametrize(("name", "label", "low", "high"), [("bank", "y", 0.03, 0.2), ("numbers", "click", 0.1, 0.25)])
def test_a_written_log_is_drafted(tmp_path: pathlib.Path, name: str, label: str, low: float, high: float) -> None:
    path = tmp_path / f"{name}.csv"
    LOGS[name](path, rows=3000)
    with open(path) as file:
        clicks = [row[label] in ("yes", "1") for row in csv.DictReader(file)]
    assert low < sum(clicks) / len(clicks) < high
    truth = pq.read_table(truth_of(path))["probability"].to_numpy()
    assert truth.sum() == pytest.approx(sum(clicks), abs=4 * np.sqrt(sum(clicks)))
    assert roc_auc_score(clicks, truth) > 0.6
    drafted = read_yaml(draft([str(path)])[0])
    assert label in str(drafted["data"]["labels"]["ctr"]) and len(drafted["features"]) >= 1


def test_a_rare_log_has_few_clicks(tmp_path: pathlib.Path) -> None:
    LOGS["rare"](tmp_path / "rare.csv", rows=20_000)
    clicks = [line.endswith(",1") for line in (tmp_path / "rare.csv").read_text().splitlines()]
    assert 2 < sum(clicks) < 100


def side(name: str, auc: float, calibration: float, ahead: tuple[float, float], interval: tuple[float, float]) -> dict:
    numbers = {"log_loss": 0.4, "rig": 0.1, "ahead": ahead, "calibration_interval": interval}
    return {"side": name, "auc": auc, "calibration": calibration, **numbers}


@pytest.mark.parametrize(
    ("baseline", "drafted", "met"),
    [
        ((0.7485, 1.02, (-0.002, -0.001)), (0.749, (-0.01, 0.0)), [True, True, True]),  # near, within, ahead
        ((0.74, 0.95, (-0.012, -0.008)), (0.737, (-0.015, -0.011)), [False, True, False]),  # further; few clicks
        ((0.74, 1.1, (-0.03, 0.01)), (0.737, (-0.033, 0.007)), [True, False, True]),  # no further; off in many clicks
        ((0.75, 0.9, (-0.01, 0.01)), (0.75, (-0.01, 0.01)), [True, False, True]),  # the interval ends below 1
    ],
)
def test_a_bar_is_missed_beyond_the_interval_alone(baseline: tuple, drafted: tuple, met: list[bool]) -> None:
    auc, calibration, ahead = baseline
    wide = (calibration - 0.08, calibration + 0.08) if calibration <= 1 else (1.06, 1.14)
    theirs = side("C=1", 0.75, 1.0, (0.0, 0.0), (0.9, 1.1))
    sides = [theirs, side("lr", auc, calibration, ahead, wide), side("draft", drafted[0], 1.0, drafted[1], (0.9, 1.1))]
    if calibration == 1.02:
        sides[1]["calibration_interval"] = (0.99, 1.05)
    assert [line["met"] for line in bars({"a": sides})] == met
    cells = [list(column.cells)[1] for column in table({"logs": {"a": sides}}).columns]
    assert cells[:5] == ["a", "lr", f"{auc:.4f}", f"{ahead[0]:+.4f} .. {ahead[1]:+.4f}", "0.4000"]


def test_the_intervals_are_of_the_test_rows() -> None:
    random = np.random.default_rng(1)
    probabilities = random.uniform(0.1, 0.4, 4000)
    labels = (random.random(4000) < probabilities).astype(np.float32)
    labels[:5] = np.nan
    rows = OneHotRows(scipy.sparse.csr_array((4000, 1)), labels, None)
    found = measured(rows, probabilities, random.random(4000))
    low, high = found["calibration_interval"]
    clicks = np.nansum(labels)
    assert low < found["calibration"] < high and found["calibration"] == pytest.approx(probabilities[5:].sum() / clicks)
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt((1 - clicks / 3995) / clicks), rel=0.1)
    assert found["auc"] == pytest.approx(roc_auc_score(labels[5:], probabilities[5:]))
    assert 0 < found["ahead"][0] < found["auc"] - 0.5 < found["ahead"][1]


def test_a_list_enters_as_shares_and_a_summed_one_as_counts() -> None:
    single, mean = (
        Field("a", "categorical", size=4, offset=1),
        Field("b", "multivalent", size=4, offset=5, slots=2, pooling="mean"),
    )
    feature_map = FeatureMap([single, mean, dataclasses.replace(mean, name="c", offset=9, pooling="sum")], [], ["ctr"])
    found = shares(np.array([[1, 6, 7, 10, 10], [2, 6, 0, 11, 0]]), feature_map).toarray()
    expected = np.zeros((2, 13))
    expected[0, [1, 6, 7, 10]] = 1, 0.5, 0.5, 2
    expected[1, [2, 6, 11]] = 1
    np.testing.assert_array_equal(found, expected)
