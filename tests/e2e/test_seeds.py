"""`ctrpipe run --seeds`: the other trainings equal runs with these seeds."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import sklearn.metrics
import yaml

import ctrpipe
from tests.e2e.small_run import SHORT_CONFIG, call

CONFIG = {
    **SHORT_CONFIG,
    "training": {"batch_size": 128, "epochs": 1, "learning_rate": 0.01},
    "evaluation": {"baseline": {"name": "fm", "embedding_dim": 4}},
    "calibration": {"method": "platt"},
    "gates": {"rig": None, "max_drop": {}},
}


@pytest.mark.slow
def test_each_seed_of_both_sides_is_trained_as_a_run_with_this_seed_would(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    assert call("generate", "--rows", 1000, "--seed", 5, "--output", tmp_path / "log.tsv")[0] == 0
    output = tmp_path / "out"
    command = ("run", tmp_path / "config.yaml", "--data", tmp_path / "log.tsv", "--output", output)
    code, text = call(*command, "--seeds", 2)
    assert code == 0, text
    assert "seed 2 of 2: mlp ..." in text and "seed 2 of 2: fm (baseline) ..." in text
    assert "over rows and seeds (2 and 2)" in " ".join(text.split())
    assert "over rows and seeds (2 and 2)" in (output / "report.html").read_text()
    seeds = json.loads((output / "seeds.json").read_text())
    metrics = json.loads((output / "metrics.json").read_text())
    assert yaml.safe_load((output / "report_data" / "config.yaml").read_text())["evaluation"]["seeds"] == 2

    # 1. Every training has its predictions, and their metrics.
    probabilities = {}
    for side in ("model", "baseline"):
        for training in seeds[side]["trainings"]:
            table = pq.read_table(output / training["scores"])
            probabilities[side, training["seed"]] = table["probability"].to_numpy()
            auc = sklearn.metrics.roc_auc_score(table["label"], table["probability"])
            assert training["metrics"]["auc"] == pytest.approx(auc)
    assert probabilities.keys() == {(side, seed) for side in ("model", "baseline") for seed in (1, 2)}
    own = [seeds[side]["trainings"][0]["metrics"]["auc"] for side in ("model", "baseline")]
    assert own == pytest.approx([metrics["auc"], metrics["baseline"]["auc"]])

    # 2. `ctrpipe compare` gives the same difference.
    files = {side: [output / one["scores"] for one in seeds[side]["trainings"]] for side in ("model", "baseline")}
    compared = ctrpipe.compare(files["baseline"], files["model"]).slices[0]["differences"]
    [by_metric] = compared.values()
    assert seeds["difference"]["auc"]["interval"] == pytest.approx(by_metric["auc"]["interval"])
    assert seeds["difference"]["auc"]["seeds_error"] > 0

    # 3. The run with the other seed has the same models, and forgets the seeds of the run before.
    code, text = call(*command, "--set", "seed=2")
    assert code == 0 and "over these trainings' rows alone" in " ".join(text.split()), text
    table = pq.read_table(output / "report_data" / "predictions.parquet")
    for side, column in (("model", "probability"), ("baseline", "baseline_probability")):
        np.testing.assert_allclose(table[column].to_numpy(), probabilities[side, 2], atol=1e-6)
        assert np.abs(probabilities[side, 1] - probabilities[side, 2]).max() > 1e-3
    assert not (output / "seeds.json").exists()
