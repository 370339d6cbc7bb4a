"""The Python face, on one tiny run: what it returns, how that shows itself, and what it refuses."""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

import ctrpipe
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.transforms.generate import generate
from tests.e2e.small_run import ROOT, SHORT_CONFIG

pytestmark = pytest.mark.slow
COLUMNS = {"I2": [3.0, None, 1.0], "C9": ["a73ee510", "", "7cc72ec2"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("face")
    generate("criteo", 2000, 1, folder / "log.tsv")
    (folder / "config.yaml").write_text(yaml.safe_dump({**SHORT_CONFIG, "evaluation": {"baseline": {"name": "lr"}}}))
    return folder


@pytest.fixture(scope="module")
def run(folder) -> ctrpipe.Run:
    return ctrpipe.run(folder / "config.yaml", folder / "log.tsv", folder / "run", training__epochs=1)


def test_importing_it_loads_no_library():
    code = "import json, sys, ctrpipe; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"numpy", "pyarrow", "pydantic", "tensorflow", "pipeline"}.isdisjoint(json.loads(result.stdout))
    assert set(ctrpipe.__all__) == set(dir(ctrpipe)) and all(hasattr(ctrpipe, name) for name in ctrpipe.__all__)
    assert not hasattr(ctrpipe, "explain")


def test_a_run_has_what_the_command_leaves(run):
    assert run.metrics == json.loads((run.output / "metrics.json").read_text())
    assert run.blessed and run.report.exists() and run.model == run.output / "models" / "ctr"
    history = json.loads((run.output / "report_data" / "history.json").read_text())
    assert len(history["evaluations"]) == 1  # the override
    assert f"{run.metrics['auc']:.4f}" in repr(run) and f"<td>{run.metrics['auc']:.4f}</td>" in run._repr_html_()


def test_rows_of_every_kind_and_a_server_have_the_same_answer(run):
    table = pa.table({"I2": pa.array(COLUMNS["I2"], pa.float32()), "C9": COLUMNS["C9"], "label": [0, 1, 0]})
    listed = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
    del listed[1]["I2"]
    with ctrpipe.load(run.model) as model:
        kinds = (COLUMNS, listed, table, table.to_pandas(), table.to_batches()[0])
        answers = [model.predict(rows)["ctr"] for rows in kinds]
    with running_server(ServerOptions(run.model, "ctr")) as addresses:
        with ctrpipe.load(f"{addresses.rest}/v1/models/ctr") as model:
            answers.append(model.predict(COLUMNS)["ctr"])
    assert answers[0].shape == (3,) and (0 < answers[0]).all() and (answers[0] < 1).all()
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-6)


ON_JAX = """
import pathlib, sys
import numpy as np
import ctrpipe
folder = pathlib.Path(sys.argv[1])
logits = np.asarray(ctrpipe.load(sys.argv[2]).keras(dict(np.load(folder / "packed.npz"))))
assert "tensorflow" not in sys.modules
np.save(folder / "logits.npy", logits)
"""


def test_the_keras_model_of_a_run_and_of_its_pushed_version_answers_what_is_served(run, tmp_path):
    with ctrpipe.load(run.model) as model:
        served = model.predict(COLUMNS)["ctr"]
        packed = dict(model._servable.run("transform_raw", {k: v for k, v in _arrays().items()}))
    logits = np.log(served / (1 - served))
    for source in (run, run.output, run.model, next(run.model.iterdir())):
        network = ctrpipe.load(source).keras
        np.testing.assert_allclose(np.asarray(network(packed))[:, 0], logits, atol=1e-5)
    assert [field.name for field in ctrpipe.load(run).feature_map.fields] == ["I2", "C9"]
    np.savez(tmp_path / "packed.npz", **packed)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ON_JAX, str(tmp_path), str(run.output)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy")[:, 0], logits, atol=1e-5)


def _arrays() -> dict[str, np.ndarray]:
    numbers = np.array([np.nan if value is None else value for value in COLUMNS["I2"]], np.float32)
    return {"I2": numbers, "C9": np.array([value.encode() for value in COLUMNS["C9"]], object)}


def test_a_version_without_its_run_has_no_weights(run, tmp_path):
    shutil.copytree(next(run.model.iterdir()), tmp_path / "models" / "ctr" / "1")
    with ctrpipe.load(tmp_path / "models" / "ctr") as model:
        assert len(model.predict(COLUMNS)) == 3
        with pytest.raises(ctrpipe.InputError, match="load the run's folder"):
            model.keras  # noqa: B018


def test_columns_without_a_value_are_missing_in_every_row(run):
    with ctrpipe.load(run.model) as model:
        expected = model.predict({"I2": [float("nan")] * 2, "C9": ["", ""]})["ctr"]
        arrow = pa.table({"I2": pa.nulls(2), "C9": pa.nulls(2), "unread": pa.nulls(2)})
        read_by_pandas = pd.read_csv(io.StringIO("I2,C9\n,\n,\n"))
        rows = [{"I2": None, "C9": None}, {}]
        for none in ({"I2": [None] * 2, "C9": [None] * 2}, rows, arrow, arrow.to_pandas(), read_by_pandas):
            np.testing.assert_array_equal(model.predict(none)["ctr"], expected)
        with pytest.raises(ctrpipe.InputError, match="column 'C9': expected text"):
            model.predict({"I2": [1.0, 2.0], "C9": [float("nan"), 1.0]})


def test_predictions_show_their_first_rows():
    predictions = ctrpipe.Predictions({"ctr": np.full(11, 0.25, np.float32), "a<b": np.zeros(11, np.float32)})
    assert len(predictions) == 11 and repr(predictions).splitlines()[1] == "0    0.2500  0.0000"
    assert repr(predictions).endswith("\n... 11 rows")
    page = predictions._repr_html_()
    assert page.count("<tr>") == 11 and "<th>a&lt;b</th>" in page and "11 rows" in page


def test_a_model_refuses_what_it_cannot_read(run, tmp_path):
    with ctrpipe.load(run.model) as model:
        with pytest.raises(ctrpipe.InputError, match="also reads C9; give each column"):
            model.predict({"I2": [1.0]})
        with pytest.raises(ctrpipe.InputError, match="column 'C9': expected text"):
            model.predict({"I2": [1.0], "C9": [1.0]})
        with pytest.raises(ctrpipe.InputError, match="expected a dict of columns"):
            model.predict("rows")
        with pytest.raises(ctrpipe.InputError):
            model.predict(pd.DataFrame())
    with pytest.raises(ctrpipe.InputError, match="absent"):
        ctrpipe.load(tmp_path / "absent")


def test_a_log_is_scored(run, folder):
    scoring = ctrpipe.score(run.model, folder / "log.tsv", folder / "scores")
    assert (scoring.rows, scoring.scored, scoring.rejected) == (2000, 2000, 0)
    assert scoring.model_version == run.metrics["model_version"]
    assert "2,000" in repr(scoring) and "<td>2,000</td>" in scoring._repr_html_()
    scores = pa.parquet.read_table(folder / "scores")["ctr"].to_numpy()
    assert len(scores) == 2000


def test_runs_are_compared(run, folder):
    other = folder / "other" / "report_data"
    other.mkdir(parents=True)
    (other / "predictions.parquet").write_bytes((run.output / "report_data" / "predictions.parquet").read_bytes())
    comparison = ctrpipe.compare(run.output, folder / "other")
    assert comparison.models == ("run", "other") and comparison.task == "ctr"
    [whole] = comparison.slices
    assert whole["metrics"]["run"]["auc"] == pytest.approx(run.metrics["auc"], abs=1e-6)
    assert whole["differences"]["other"]["auc"]["difference"] == 0
    assert "0.0000" in repr(comparison).splitlines()[2] and "<td>other</td>" in comparison._repr_html_()
