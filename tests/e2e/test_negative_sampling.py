"""A run on a share of the negatives: what is pushed answers the probabilities of all rows."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from tests.e2e.small_run import ROWS, SHORT_CONFIG, call

SHARE = 0.2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("negatives")
    data = {**SHORT_CONFIG["data"], "negative_sampling": SHARE}
    (folder / "config.yaml").write_text(yaml.safe_dump({**SHORT_CONFIG, "data": data}))
    assert call("generate", "--rows", ROWS, "--seed", 5, "--output", folder / "log.tsv")[0] == 0
    code, output = call("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", folder / "out")
    assert code == 0, output
    return folder


@pytest.mark.slow
def test_the_served_model_is_calibrated_on_rows_that_are_not_sampled(run):
    metrics = json.loads((run / "out" / "metrics.json").read_text())  # of the SavedModel
    assert metrics["examples"] == pytest.approx(0.2 * ROWS, rel=0.1)
    assert metrics["calibration"] == pytest.approx(1, abs=0.15)


@pytest.mark.slow
def test_scores_are_those_probabilities_too(run):
    version = run / "out" / "models" / "ctr"
    assert call("score", "--model", version, "--input", run / "log.tsv", "--output", run / "scores")[0] == 0
    scored = pq.read_table(run / "scores", columns=["ctr"])["ctr"].to_numpy()
    clicks = np.loadtxt(run / "log.tsv", usecols=0, delimiter="\t", dtype=str) == "1"
    odds = scored / (1 - scored)
    uncorrected = odds / SHARE / (1 + odds / SHARE)
    assert scored.mean() == pytest.approx(clicks.mean(), rel=0.15)
    assert uncorrected.mean() > 1.5 * clicks.mean()
