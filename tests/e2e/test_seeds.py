"""`ctrpipe run --seeds`: the other trainings equal runs with these seeds."""

import json
import pathlib
import shutil

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


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[pathlib.Path, str]:
    """The folder of a run with two seeds, in `out`, and what the run said."""
    folder = tmp_path_factory.mktemp("seeds")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    assert call("generate", "--rows", 1000, "--seed", 5, "--output", folder / "log.tsv")[0] == 0
    code, text = call(*command(folder), "--seeds", 2)
    assert code == 0, text
    return folder, text


def command(folder: pathlib.Path) -> tuple:
    return ("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", folder / "out")


def probabilities_of(output: pathlib.Path) -> dict[tuple[str, int], np.ndarray]:
    """By side and seed."""
    seeds = json.loads((output / "seeds.json").read_text())
    return {
        (side, training["seed"]): pq.read_table(output / training["scores"])["probability"].to_numpy()
        for side in ("model", "baseline")
        for training in seeds[side]["trainings"]
    }


@pytest.mark.slow
def test_every_training_of_both_sides_is_measured_and_compared(done):
    folder, text = done
    output = folder / "out"
    assert "seed 2 of 2: mlp ..." in text and "seed 2 of 2: fm (baseline) ..." in text
    assert "over rows and seeds (2 and 2)" in " ".join(text.split())
    assert "over rows and seeds (2 and 2)" in (output / "report.html").read_text()
    seeds = json.loads((output / "seeds.json").read_text())
    metrics = json.loads((output / "metrics.json").read_text())
    assert yaml.safe_load((output / "report_data" / "config.yaml").read_text())["evaluation"]["seeds"] == 2
    for side in ("model", "baseline"):
        for training in seeds[side]["trainings"]:
            table = pq.read_table(output / training["scores"])
            auc = sklearn.metrics.roc_auc_score(table["label"], table["probability"])
            assert training["metrics"]["auc"] == pytest.approx(auc)
    found = probabilities_of(output)
    assert found.keys() == {(side, seed) for side in ("model", "baseline") for seed in (1, 2)}
    assert all(np.abs(found[side, 1] - found[side, 2]).max() > 1e-3 for side in ("model", "baseline"))
    own = [seeds[side]["trainings"][0]["metrics"]["auc"] for side in ("model", "baseline")]
    assert own == pytest.approx([metrics["auc"], metrics["baseline"]["auc"]])
    # `ctrpipe compare` gives the same difference.
    files = {side: [output / one["scores"] for one in seeds[side]["trainings"]] for side in ("model", "baseline")}
    compared = ctrpipe.compare(files["baseline"], files["model"]).slices[0]["differences"]
    [by_metric] = compared.values()
    assert seeds["difference"]["auc"]["interval"] == pytest.approx(by_metric["auc"]["interval"])
    assert seeds["difference"]["auc"]["seeds_error"] > 0


@pytest.mark.large(
    like="tests/pipeline/test_seed_trainings.py::test_one_seed_leaves_the_graph_as_it_is_and_more_add_one_node"
)
@pytest.mark.slow
def test_each_seed_of_both_sides_is_trained_as_a_run_with_this_seed_would(done, tmp_path):
    """The run with the other seed has the same models, and forgets the seeds of the run before."""
    folder = shutil.copytree(done[0], tmp_path / "again")
    probabilities = probabilities_of(folder / "out")
    code, text = call(*command(folder), "--set", "seed=2")
    assert code == 0 and "over the rows of these training runs alone" in " ".join(text.split()), text
    table = pq.read_table(folder / "out" / "report_data" / "predictions.parquet")
    for side, column in (("model", "probability"), ("baseline", "baseline_probability")):
        np.testing.assert_allclose(table[column].to_numpy(), probabilities[side, 2], atol=1e-6)
    assert not (folder / "out" / "seeds.json").exists()
