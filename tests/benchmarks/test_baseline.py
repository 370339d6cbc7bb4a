"""benchmarks.baseline: its logs, its table and its bars; what it trains is tested in tests/pipeline/test_linear.py."""

import csv
import pathlib

import pytest

from benchmarks.baseline import bars, table
from benchmarks.harness.small_logs import LOGS
from ctrpipe.pipeline.config.load import read_yaml
from ctrpipe.pipeline.draft.page import draft


@pytest.mark.parametrize(("name", "label", "low", "high"), [("bank", "y", 0.03, 0.2), ("numbers", "click", 0.1, 0.25)])
def test_a_written_log_is_drafted(tmp_path: pathlib.Path, name: str, label: str, low: float, high: float) -> None:
    path = tmp_path / f"{name}.csv"
    LOGS[name](path, rows=3000)
    with open(path) as file:
        clicks = [row[label] in ("yes", "1") for row in csv.DictReader(file)]
    assert low < sum(clicks) / len(clicks) < high
    drafted = read_yaml(draft([str(path)])[0])
    assert label in str(drafted["data"]["labels"]["ctr"]) and len(drafted["features"]) >= 1


def test_a_rare_log_has_few_clicks(tmp_path: pathlib.Path) -> None:
    LOGS["rare"](tmp_path / "rare.csv", rows=20_000)
    clicks = [line.endswith(",1") for line in (tmp_path / "rare.csv").read_text().splitlines()]
    assert 2 < sum(clicks) < 100


def test_the_bars_are_the_auc_beside_the_chosen_one_and_the_calibration() -> None:
    numbers = {"log_loss": 0.4, "rig": 0.1, "seconds": 1.0}

    def side(auc: float, calibration: float) -> dict:
        return {"side": f"side {auc}", "auc": auc, "calibration": calibration, **numbers}

    logs = {"a": [side(0.9, 1), side(0.75, 1), side(0.7479, 1.02), side(0.7, 1)], "b": [side(0.7, 1)] * 4}
    logs["b"][2] = side(0.71, 1.031)
    assert [line["met"] for line in bars(logs)] == [False, True, True, False]
    assert table(logs)[3] == ["a", "side 0.7479", "0.7479", "0.4000", "0.1000", "1.0200", "1.0"]
