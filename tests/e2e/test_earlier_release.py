"""A run of ctrpipe 0.2.0, with the rows that it was asked and its scores of them, is read by today's code.

run_of_0_2_0.tar.xz holds the folder that `ctrpipe run` of 0.2.0 wrote. The paths that are recorded in it lead nowhere.
"""

import json
import pathlib
import shutil
import tarfile

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import ctrpipe
from tests.e2e.small_run import call

ARCHIVE = pathlib.Path(__file__).with_name("run_of_0_2_0.tar.xz")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "run_of_0_2_0"


@pytest.fixture(scope="module")
def scores(earlier) -> np.ndarray:
    return pq.read_table(earlier / "asked" / "scores.parquet").column("ctr").to_numpy()


def rows_of(earlier: pathlib.Path) -> pd.DataFrame:
    return pd.read_csv(earlier / "asked" / "rows.csv")


def test_its_model_predicts_what_it_predicted(earlier, scores):
    np.testing.assert_allclose(ctrpipe.load(earlier).predict(rows_of(earlier)), scores, atol=1e-6)


def test_its_pushed_version_scores_a_log_alike(earlier, scores, tmp_path):
    code, output = call(
        "score", "--model", earlier / "models" / "ctr", "--input", earlier / "asked" / "rows.csv", "--output", tmp_path
    )
    assert code == 0, output
    (part,) = tmp_path.glob("*.parquet")
    np.testing.assert_allclose(pq.read_table(part).column("ctr").to_numpy(), scores, atol=1e-6)


def test_it_is_explained_and_compared(earlier, tmp_path):
    importance = ctrpipe.explain(earlier).to_pandas()
    assert {"site", "tags", "hour", "price"} == set(importance["column"])
    shutil.copytree(earlier, tmp_path / "copy")
    compared = ctrpipe.compare(earlier, tmp_path / "copy").to_pandas()
    said = json.loads((earlier / "metrics.json").read_text())
    assert compared["auc"][0] == compared["auc"][1] == pytest.approx(said["auc"], abs=1e-9)


@pytest.mark.slow
def test_a_training_starts_from_its_weights(earlier, scores, tmp_path):
    """With a learning rate of next to nothing the new model is the earlier one."""
    config = {
        "name": "old",
        "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}, "split": {"by": "order"}},
        "features": [
            {"columns": ["hour", "price"], "kind": "numeric", "transform": "log_bucketize"},
            {"columns": ["site"], "kind": "categorical", "transform": "vocabulary", "top_k": 100, "min_count": 2},
            {"columns": ["tags"], "kind": "multivalent", "max_length": 3, "top_k": 100, "min_count": 2},
        ],
        "model": {"name": "fm", "embedding_dim": 4},
        "training": {"epochs": 1, "learning_rate": 1e-9, "warm_start": str(earlier)},
        "gates": {"rig": None},
        "evaluation": {"baseline": None},
    }
    path = tmp_path / "warm.yaml"
    path.write_text(yaml.safe_dump(config))
    code, output = call("run", path, "--data", earlier / "asked" / "rows.csv", "--output", tmp_path / "run")
    assert code == 0, output
    new = ctrpipe.load(tmp_path / "run").predict(rows_of(earlier))
    np.testing.assert_allclose(new, scores, atol=1e-4)
