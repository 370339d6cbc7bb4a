"""A calibrated run on a share of the negatives: what is pushed answers the probabilities of all rows."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import sklearn.metrics
import yaml

from tests.e2e.small_run import SHORT_CONFIG, call

ROWS, SHARE = 12_000, 0.2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("negatives")
    data = {**SHORT_CONFIG["data"], "negative_sampling": SHARE, "split": {"validation": 0.3, "test": 0.2}}
    calibrated = {"calibration": {"method": "platt", "by": ["C9"]}, "evaluation": {"slices": ["C9"]}}
    (folder / "config.yaml").write_text(yaml.safe_dump({**SHORT_CONFIG, "data": data, **calibrated}))
    assert call("generate", "--rows", ROWS, "--seed", 5, "--output", folder / "log.tsv")[0] == 0
    code, output = call("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", folder / "out")
    assert code == 0, output
    return folder


@pytest.mark.slow
def test_the_served_model_is_calibrated_on_rows_that_are_not_sampled(run):
    metrics = json.loads((run / "out" / "metrics.json").read_text())  # of the SavedModel
    assert metrics["examples"] == pytest.approx(0.2 * ROWS, rel=0.1)
    assert metrics["calibration"] == pytest.approx(1, abs=0.15)
    assert metrics["uncalibrated"]["calibration"] == pytest.approx(1, abs=0.15)


@pytest.mark.slow
def test_metrics_before_and_after_the_calibration_are_those_of_the_test_rows(run):
    metrics = json.loads((run / "out" / "metrics.json").read_text())
    table = pq.read_table(run / "out" / "report_data" / "predictions.parquet")
    columns = {name: table[name].to_numpy() for name in ("label", "probability", "uncalibrated_probability")}
    before, after = columns["uncalibrated_probability"], columns["probability"]
    for found, probability in ((metrics["uncalibrated"], before), (metrics, after)):
        assert found["log_loss"] == pytest.approx(sklearn.metrics.log_loss(columns["label"], probability))
        shown = sum(bin["predicted"] * bin["examples"] for bin in found["reliability"]) / metrics["examples"]
        assert shown == pytest.approx(probability.mean())
        assert found["slices"]["C9"].keys() == metrics["slices"]["C9"].keys()
    assert 0.001 < np.abs(before - after).max() < 0.2


@pytest.fixture(scope="module")
def scored(run):
    version = run / "out" / "models" / "ctr"
    assert call("score", "--model", version, "--input", run / "log.tsv", "--output", run / "scores")[0] == 0
    return pq.read_table(run / "scores", columns=["ctr"])["ctr"].to_numpy()


@pytest.mark.slow
def test_an_explained_row_has_the_probability_that_is_served(run, scored):
    asked = ("explain", run / "out", "--row", f"{run / 'log.tsv'}:12", "--baseline", "missing", "--method", "both")
    code, output = call(*asked, "--output", run / "explained")
    assert code == 0 and "before its calibration" in output, output
    found = json.loads((run / "explained" / "row.json").read_text())
    assert [found[name]["probability"] for name in ("gradients", "shapley")] == pytest.approx(
        [scored[11]] * 2, abs=1e-6
    )
    assert 1 / (1 + np.exp(-found["shapley"]["logit"])) == pytest.approx(scored[11], abs=1e-6)
    assert abs(1 / (1 + np.exp(-found["gradients"]["logit"])) - scored[11]) > 1e-3


@pytest.mark.slow
def test_scores_are_those_probabilities_too(run, scored):
    clicks = np.loadtxt(run / "log.tsv", usecols=0, delimiter="\t", dtype=str) == "1"
    odds = scored / (1 - scored)
    uncorrected = odds / SHARE / (1 + odds / SHARE)
    assert scored.mean() == pytest.approx(clicks.mean(), rel=0.15)
    assert uncorrected.mean() > 1.5 * clicks.mean()
