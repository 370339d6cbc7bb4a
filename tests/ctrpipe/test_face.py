"""The Python face, on two tiny runs: what it returns, how that shows itself, and what it refuses."""

import io
import json
import os
import shutil
import subprocess
import sys

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

import ctrpipe
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import read_yaml
from ctrpipe.pipeline.config.load import check_config
from ctrpipe.result import Result
from ctrpipe.runs import folder_of, versions_of
from ctrpipe.serving.scoring.folder import DATA
from tests.ctrpipe.small_log import CONFIG, frame
from tests.e2e.small_run import ROOT, call, one_line

slow = pytest.mark.slow
SMALL = {"training__epochs": 1, "evaluation__baseline": None, "evaluation__slices": []}
COLUMNS = {
    "user": ["u1", None, "u3"],
    "film": ["f1", "f2", ""],
    "year": [1963.0, None, 1969.0],
    "age": [30.0, 31.0, None],
    "seen": ["f1|f2", "", "f3"],
    "when": ["2026-11-01 00:00:00", "2026-11-02 10:00:00", ""],
}
NUMBERS = {**COLUMNS, "user": [1, 20.0, None], "film": [3, 2**40, 7]}  # of columns of texts
FACE = ("run", "init", "check", "explain", "drift", "tune", "sweep", "compare", "replay", "ranking", "retrieve")


def shows_itself(result: Result, *texts: str) -> None:
    """Its table has the texts, on the terminal and in a notebook."""
    for text in texts:
        assert text in repr(result) and text in result._repr_html_(), (text, repr(result))


def png(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=30)
    assert figure._repr_png_()[:4] == buffer.getvalue()[:4] == b"\x89PNG"
    return buffer.getvalue()


def test_importing_it_loads_no_library():
    code = "import json, sys, ctrpipe; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stdout))
    libraries = {"numpy", "pandas", "polars", "pyarrow", "pydantic", "matplotlib", "IPython", "tensorflow", "tfx"}
    assert libraries.isdisjoint(loaded) and {name for name in loaded if name.startswith("ctrpipe.pipeline")} == set()
    assert set(ctrpipe.__all__) == set(dir(ctrpipe)) and all(hasattr(ctrpipe, name) for name in ctrpipe.__all__)
    assert {*FACE, "serve", "load", "score"} <= set(ctrpipe.__all__) and not hasattr(ctrpipe, "absent")


@slow
def test_a_run_has_what_the_command_leaves(run):
    assert run.metrics == json.loads((run.output / "metrics.json").read_text())
    assert run.blessed and run.report.exists() and run.model == run.output / "models" / "ctr"
    history = json.loads((run.output / "report_data" / "history.json").read_text())
    assert len(run.history) == len(history["evaluations"]) == 2  # the override
    expected = [row["validation_auc"] for row in history["evaluations"]]
    assert run.history["validation_auc"].tolist() == expected
    assert run.history["best"].tolist().index(True) == history["best"]
    rows = run.to_pandas().set_index(["rows", "model"])
    assert rows.loc[("all", "model"), "auc"] == run.metrics["auc"]
    assert rows.loc[("all", "baseline"), "auc"] == run.metrics["baseline"]["auc"]
    assert rows.loc[("user = u1", "model"), "log_loss"] == run.metrics["slices"]["user"]["u1"]["log_loss"]
    shows_itself(run, f"{run.metrics['auc']:.4f}")
    assert len(run.plot().axes) == 7 and png(run.plot())


def test_a_blocked_run_says_which_gate_blocked_it(tmp_path):
    gates = [{"metric": "rig", "reason": "-0.14 is not at least 0", "passed": False}, {"metric": "auc", "passed": True}]
    (tmp_path / "report_data").mkdir()
    (tmp_path / "report_data" / "gates.json").write_text(json.dumps(gates))
    metrics = {"auc": 0.61, "log_loss": 0.68, "rig": -0.14, "calibration": 1.7, "blessed": False, "model_version": None}
    run = ctrpipe.Run(tmp_path, tmp_path / "models" / "ctr", metrics)
    shows_itself(run, "The model is blocked by 1 gate of 2 and not pushed (rig: -0.14 is not at least 0).")


def test_a_run_and_a_sweep_in_groups_show_gauc(tmp_path):
    metrics = {"auc": 0.61, "gauc": 0.5432, "log_loss": 0.68, "rig": 0.1, "calibration": 1.7}
    metrics |= {"blessed": True, "model_version": 1, "examples": 9}
    run = ctrpipe.Run(tmp_path, tmp_path / "models" / "ctr", metrics)
    shows_itself(run, "gauc", "0.5432")
    assert run.to_pandas()["gauc"].tolist() == [0.5432]
    names = ("auc", "gauc", "log_loss", "validation_auc", "validation_gauc", "validation_log_loss")
    for value, shown in ((0.5432, True), (None, False)):
        means = {name: {"mean": value if "gauc" in name else 0.7, "std": None} for name in names}
        report = {"points": [{"name": "small", "metrics": means}], "best": "small", "monitor": "validation_auc"}
        sweep = ctrpipe.Sweep(tmp_path, report)
        assert ("gauc" in repr(sweep)) == ("0.5432" in repr(sweep)) == shown


@pytest.mark.large(like="tests/e2e/test_pipeline.py::test_a_second_run_comes_from_the_cache_and_a_failed_gate_blocks")
@slow
def test_the_same_frame_again_is_taken_from_the_cache(tmp_path, capfd):
    first = ctrpipe.run(CONFIG, frame(300), tmp_path / "run", **SMALL)
    assert "Trainer: from cache" not in capfd.readouterr().err
    again = ctrpipe.run(CONFIG, frame(300), tmp_path / "run", **SMALL)
    assert "Trainer: from cache" in capfd.readouterr().err
    assert again.metrics["model_version"] == first.metrics["model_version"]
    assert len(list((tmp_path / "run" / "data").iterdir())) == 1


def test_a_draft_is_what_the_command_writes_and_a_configuration(tmp_path):
    draft = ctrpipe.init(frame(), label="click")
    pq.write_table(pa.Table.from_pandas(frame()), tmp_path / "log.parquet")
    assert call("init", tmp_path / "log.parquet", "--output", tmp_path / "log.yaml")[0] == 0
    written = read_yaml((tmp_path / "log.yaml").read_text())
    assert written["data"].pop("paths") == [str(tmp_path / "log.parquet")]
    assert draft.config == written and draft.path is None and draft.data is not None
    kinds = draft.to_pandas().set_index("column")["kind"]
    assert kinds["user"] == "categorical" and kinds["when"] == "time"
    shows_itself(draft, "user", "categorical")
    kept = ctrpipe.init(tmp_path / "log.parquet", tmp_path / "kept.yaml")
    assert kept.path == tmp_path / "kept.yaml" and kept.path.read_text() == kept.text
    with pytest.raises(ctrpipe.InputError, match="the file exists"):
        ctrpipe.init(frame(), tmp_path / "kept.yaml")


def test_a_check_finds_what_the_command_finds(tmp_path):
    wrong = frame().assign(click=True, age=None)
    pq.write_table(pa.Table.from_pandas(wrong), tmp_path / "log.parquet")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    _, output = call("check", tmp_path / "config.yaml", "--data", tmp_path / "log.parquet")
    found = ctrpipe.check(CONFIG, wrong)
    assert [f"Error: {text}" for text in found.errors] == [
        line for line in output.splitlines() if line.startswith("Error")
    ]
    one = ctrpipe.Check(9, 0, ("age: missing in all rows",), (), {}, "all 9 rows read")
    assert repr(one).endswith("all 9 rows read; 1 error, 0 notes")
    assert not found.passed and found.rows == 1200 and ctrpipe.check(CONFIG, frame()).passed
    assert found.to_pandas()["kind"].tolist() == ["error"] * len(found.errors) + ["note"] * len(found.notes)
    shows_itself(found, "all 1,200 rows read, 0 malformed")


@slow
def test_rows_of_every_kind_a_server_and_a_scoring_have_the_same_answer(run, tmp_path):
    types = {"year": pa.float32(), "age": pa.float32()}
    table = pa.table({name: pa.array(values, types.get(name)) for name, values in COLUMNS.items()})
    listed = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
    del listed[1]["year"]
    with ctrpipe.load(run) as model:
        kinds = (COLUMNS, listed, table, table.to_pandas(), table.to_batches()[0])
        answers = [model.predict(rows)["ctr"] for rows in kinds]
        whole = model.predict(frame())["ctr"]
        part = frame()[5:300:7]
        own = frame().assign(ctr=model.predict(part).to_pandas()["ctr"])["ctr"]
        numbers = model.predict(NUMBERS)["ctr"]
    assert answers[0].shape == (3,) and (0 < answers[0]).all() and (answers[0] < 1).all()
    with ctrpipe.serve(str(run.output), name="clicks", enable_batching=True) as server:
        assert server.url == f"{server.rest}/v1/models/clicks"
        answers.append(server.predict(COLUMNS).to_pandas()["ctr"].to_numpy())
        with_lists = server.predict(frame()[:900])["ctr"]
        with ctrpipe.load(server.url) as model:
            answers.append(model.predict(table)["ctr"])
            served = [model.predict(NUMBERS)["ctr"], model.predict(pd.DataFrame(NUMBERS))["ctr"]]
            with pytest.raises(
                ctrpipe.InputError, match="column 'seen': lists, and the model at http.* join each list"
            ):
                model.predict(frame(9))
            with pytest.raises(
                ctrpipe.InputError, match="column 'film': booleans, and only the files of the model at h"
            ):
                model.predict({**COLUMNS, "film": [True, False, None]})
        shows_itself(server, server.url, server.grpc)
    np.testing.assert_allclose(with_lists, whole[:900], rtol=1e-6)
    server.close()  # it has ended with its block
    with pytest.raises(ctrpipe.InputError, match="no answer|refused|reach"):
        server.predict(COLUMNS)
    np.testing.assert_allclose(served, [numbers, numbers], rtol=1e-6)
    np.testing.assert_allclose(own[part.index], whole[5:300:7], rtol=1e-6)
    assert own.notna().sum() == len(part)
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-6)
    scoring = ctrpipe.score(run, frame(), tmp_path / "scores")
    np.testing.assert_allclose(scoring.to_pandas()["ctr"], whole, rtol=1e-6)
    assert (scoring.rows, scoring.scored, scoring.rejected) == (1200, 1200, 0)
    assert scoring.model_version == run.metrics["model_version"] and scoring.drift["columns"]
    shows_itself(scoring, "1,200", f"{whole.mean():.4f}")
    assert png(scoring.plot()) and len(pq.read_table(tmp_path / "scores")) == 1200
    for model in (run.model, str(run.output)):
        scores = ctrpipe.score(model, part.head(10)).to_pandas()
        assert scores.index.tolist() == part.index[:10].tolist()
        np.testing.assert_allclose(scores["ctr"], own[scores.index], rtol=1e-6)


@slow
def test_a_refused_scoring_leaves_no_rows_of_its_own(run, tmp_path):
    out, log = tmp_path / "scores", tmp_path / "log.csv"
    ctrpipe.score(run, frame(50), out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    frame(60).to_csv(log, index=False)
    query = f"duckdb:select * from '{log}' order by user"
    for other in (frame(60), query):
        with pytest.raises(ctrpipe.InputError, match="holds the result of another scoring"):
            ctrpipe.score(run, other, out)
    done = CliRunner().invoke(main, ["score", "--model", str(run.output), "--input", query, "--output", str(out)])
    assert "holds the result of another scoring" in done.output
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert len(list((out / DATA).iterdir())) == 1


@slow
def test_a_version_is_served_alone(run, tmp_path):
    version = next(run.model.iterdir())
    own = tmp_path / "ctr" / version.name
    shutil.copytree(version, own)
    shutil.copytree(version, tmp_path / "ctr" / str(int(version.name) + 1))
    with ctrpipe.serve(own) as server:
        answered = httpx.get(server.url).json()["model_version_status"]
        assert [(one["version"], one["state"]) for one in answered] == [(version.name, "AVAILABLE")]
        assert server.predict(frame().head(2))["ctr"].shape == (2,)


@slow
def test_a_server_refuses_wrong_flags_and_folders(run):
    with pytest.raises(ctrpipe.InputError, match="no such flag of the server; did you mean enable_batching"):
        ctrpipe.serve(run, enable_batchin=True)
    with pytest.raises(ctrpipe.InputError, match="no model version here"):
        ctrpipe.serve(run.output / "tfx")


ON_JAX = """
import pathlib, sys
import numpy as np
import ctrpipe
folder = pathlib.Path(sys.argv[1])
logits = np.asarray(ctrpipe.load(sys.argv[2]).keras(dict(np.load(folder / "packed.npz"))))
assert "tensorflow" not in sys.modules
np.save(folder / "logits.npy", logits)
"""


@slow
def test_the_keras_model_of_a_run_and_of_its_pushed_version_answers_what_is_served(run):
    with ctrpipe.load(run.model) as model:
        served = model.predict(COLUMNS)["ctr"]
        packed = dict(model._servable.run("transform_raw", _arrays()))
    logits = np.log(served / (1 - served))
    for source in (run, run.output, run.model, next(run.model.iterdir())):
        network = ctrpipe.load(source).keras
        np.testing.assert_allclose(np.asarray(network(packed))[:, 0], logits, atol=1e-5)
    assert {"user", "film", "year"} <= {field.name for field in ctrpipe.load(run).feature_map.fields} | {"year"}


@pytest.mark.large(like="tests/models/test_models.py::test_a_kept_model_is_loaded_on_jax_without_tensorflow")
@slow
def test_the_keras_model_of_a_run_answers_on_jax_what_is_served(run, tmp_path):
    with ctrpipe.load(run.model) as model:
        served = model.predict(COLUMNS)["ctr"]
        packed = dict(model._servable.run("transform_raw", _arrays()))
    np.savez(tmp_path / "packed.npz", **packed)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ON_JAX, str(tmp_path), str(run.output)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    logits = np.load(tmp_path / "logits.npy")[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), served, atol=1e-5)


def _arrays() -> dict[str, np.ndarray]:
    arrays = {}
    for name, values in COLUMNS.items():
        if name in ("year", "age"):
            arrays[name] = np.array([np.nan if value is None else value for value in values], np.float32)
        else:
            arrays[name] = np.array([(value or "").encode() for value in values], object)
    return arrays


@slow
def test_a_version_without_its_run_has_no_weights(run, tmp_path):
    shutil.copytree(next(run.model.iterdir()), tmp_path / "models" / "ctr" / "1")
    with ctrpipe.load(tmp_path / "models" / "ctr") as model:
        assert len(model.predict(COLUMNS)) == 3
        with pytest.raises(ctrpipe.InputError, match="load the run's folder"):
            model.keras  # noqa: B018


@slow
def test_columns_without_a_value_are_missing_in_every_row(run):
    with ctrpipe.load(run.model) as model:
        texts = {name: ["", ""] for name in COLUMNS}
        expected = model.predict({**texts, "year": [float("nan")] * 2, "age": [float("nan")] * 2})["ctr"]
        arrow = pa.table({name: pa.nulls(2) for name in (*COLUMNS, "unread")})
        read_by_pandas = pd.read_csv(io.StringIO(f"{','.join(COLUMNS)}\n,,,,,\n,,,,,\n"))
        rows = [dict.fromkeys(COLUMNS), {}]
        for none in ({name: [None] * 2 for name in COLUMNS}, rows, arrow, arrow.to_pandas(), read_by_pandas):
            np.testing.assert_array_equal(model.predict(none)["ctr"], expected)


@slow
def test_rows_that_are_no_table_are_one_line_that_says_what_is(run):
    part = frame(3)
    with ctrpipe.load(run.model) as model:
        for rows, says in (
            (part.iloc[0], r"a Series, .* give a DataFrame, such as frame.iloc\[\[0\]\]"),
            (part.iloc[0].to_dict(), "click is a single value, not a column; give a single row as a list"),
            ("log.parquet", "ctrpipe.score takes files"),
            (part.rename(columns={"film": "Film"}), "it also reads film, where Film is given; give all columns"),
        ):
            with pytest.raises(ctrpipe.InputError, match=says):
                model.predict(rows)
        with pytest.raises(ctrpipe.InputError, match="no task cvr is predicted, but ctr; did you mean ctr"):
            model.predict(part)["cvr"]


@slow
def test_a_loaded_model_is_taken_where_its_run_is(run):
    with ctrpipe.load(run) as model:
        assert folder_of(model) == run.output and versions_of(model) == run.model
    with pytest.raises(ctrpipe.InputError, match="its folder is needed; give that, or the run"):
        folder_of(ctrpipe.load("http://127.0.0.1:1/v1/models/ctr"))


def test_predictions_show_their_first_rows():
    predictions = ctrpipe.Predictions({"ctr": np.full(11, 0.25, np.float32), "a<b": np.zeros(11, np.float32)})
    assert np.asarray(predictions).tolist() == [row.tolist() for row in predictions] == [[0.25, 0.0]] * 11
    one = ctrpipe.Predictions({"ctr": np.arange(3, dtype=np.float32)})
    assert np.asarray(one).dtype == np.float32 and np.asarray(one, float).tolist() == list(one) == [0.0, 1.0, 2.0]
    assert len(predictions) == 11 and repr(predictions).splitlines()[1] == "0    0.2500  0.0000"
    assert repr(predictions).endswith("\n... 11 rows") and predictions.to_pandas()["ctr"].tolist() == [0.25] * 11
    page = predictions._repr_html_()
    assert page.count("<tr>") == 11 and "<th>a&lt;b</th>" in page and "11 rows" in page


def test_a_model_shows_its_name_its_task_and_what_it_reads_without_being_loaded(tmp_path):
    version = tmp_path / "ctr" / "7"
    (version / "assets.extra").mkdir(parents=True)
    (version / "saved_model.pb").touch()
    bare = ctrpipe.load(tmp_path / "ctr")
    assert repr(bare).splitlines()[1:] == [f"loaded from  {version}"]
    spec = check_config(CONFIG, (), tmp_path).log_spec
    for name, text in {
        "log_spec": spec.model_dump_json(),
        "training": json.dumps({"model": {"name": "a<b"}}),
        "training_statistics": json.dumps({"rows": 1200, "rate": 1.0}),
    }.items():
        (version / "assets.extra" / f"{name}.json").write_text(text)
    lines = repr(model := ctrpipe.load(version)).splitlines()
    assert lines[0].split() == ["model", "a<b"] and lines[2].split() == ["training", "rows", "1,200"]
    assert lines[3].split() == ["predicts", "ctr"]
    kinds = {line.split()[1]: line.split(maxsplit=2)[2] for line in lines[4:]}
    assert (
        kinds == {feature.kind: ", ".join(spec.columns_of(feature.kind)) for feature in spec.inputs.values()}
        and len(kinds) > 2
    )
    assert "<th>a&lt;b</th>" in model._repr_html_() and "tensorflow" not in repr(model)
    served = ctrpipe.load("http://127.0.0.1:1/v1/models/ctr")  # it is not asked
    assert repr(served).split() == ["served", "at", "http://127.0.0.1:1/v1/models/ctr"]


@slow
def test_a_model_refuses_what_it_cannot_read(run, tmp_path):
    with ctrpipe.load(run.model) as model:
        with pytest.raises(ctrpipe.InputError, match="also reads age, film, seen, when, year; give all columns"):
            model.predict({"user": ["u1"]})
        with pytest.raises(ctrpipe.InputError, match="column 'age': expected numbers"):
            model.predict({name: ["1"] for name in COLUMNS} | {"year": [1.0]})
        with pytest.raises(ctrpipe.InputError, match="expected a dict of columns"):
            model.predict("rows")
        with pytest.raises(ctrpipe.InputError):
            model.predict(pd.DataFrame())
        with pytest.raises(
            ctrpipe.InputError, match="the DataFrame, row 1: seen: an element of the list has the separator"
        ):
            model.predict(frame(3).assign(seen=[["f1"], ["f|2"], []]))
    with pytest.raises(ctrpipe.InputError, match="absent"):
        ctrpipe.load(tmp_path / "absent")


@slow
def test_drift_is_what_the_command_finds(tmp_path):
    today, yesterday = frame(600).assign(age=20), frame(600, seed=2)
    for name, log in {"today": today, "yesterday": yesterday}.items():
        pq.write_table(pa.Table.from_pandas(log), tmp_path / f"{name}.parquet")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    logs = ("--data", tmp_path / "today.parquet", "--against", tmp_path / "yesterday.parquet")
    assert call("drift", tmp_path / "config.yaml", *logs, "--output", tmp_path / "command")[0] == 1
    found = ctrpipe.drift(CONFIG, today, yesterday, output=tmp_path / "face")
    expected = json.loads((tmp_path / "command" / "drift.json").read_text())
    assert found.report == expected == json.loads((tmp_path / "face" / "drift.json").read_text())
    assert found.breached and "age" in found.to_pandas().query("breached")["column"].tolist()
    assert not ctrpipe.drift(CONFIG, today, tmp_path / "today.parquet").breached
    shows_itself(found, "age")
    assert png(found.plot())


@slow
def test_runs_are_compared(run, runs, tmp_path):
    comparison = ctrpipe.compare(run, runs / "other", output=tmp_path / "compared.json")
    assert comparison.models == ("run", "other") and comparison.task == "ctr"
    assert json.loads(json.dumps(comparison.report)) == json.loads((tmp_path / "compared.json").read_text())
    whole, *slices = comparison.slices
    assert whole["metrics"]["run"]["auc"] == pytest.approx(run.metrics["auc"], abs=1e-6) and len(slices) == 10
    rows = comparison.to_pandas()
    assert len(rows) == 22 and pd.isna(rows.loc[0, "auc_difference"])
    assert rows.loc[1, "auc_difference"] == pytest.approx(rows.loc[1, "auc"] - rows.loc[0, "auc"], abs=1e-9)
    shows_itself(comparison, "other", f"{rows.loc[1, 'auc_difference']:.4f}")
    assert png(comparison.plot())
    with pytest.raises(ctrpipe.InputError, match="two models or more"):
        ctrpipe.compare(run)


@slow
def test_an_explanation_shows_what_its_report_has(run):
    found = ctrpipe.explain(run, frame().tail(120), rows=100, repeats=1, pairs=1)
    rows, columns = found.to_pandas(), found.report["columns"]
    assert rows["column"].tolist() == [one["name"] for one in columns] and set(rows["column"]) <= set(COLUMNS)
    assert rows.loc[0, "auc_low"] == columns[0]["auc"]["interval"][0]
    assert set(found.pairs["first"]) <= set(COLUMNS) and "interplay_bits" in found.pairs
    shows_itself(found, rows.loc[0, "column"])


@pytest.mark.large(like="tests/ctrpipe/test_face.py::test_an_explanation_shows_what_its_report_has")
@slow
def test_an_explanation_is_what_the_command_finds(run, tmp_path):
    options = ("--rows", 200, "--repeats", 1, "--pairs", 1, "--output", tmp_path / "command")
    test_rows = frame().tail(240)
    pq.write_table(pa.Table.from_pandas(test_rows, preserve_index=False), tmp_path / "test.parquet")
    assert call("explain", run.output, "--data", tmp_path / "test.parquet", *options)[0] == 0
    found = ctrpipe.explain(run, test_rows, rows=200, repeats=1, pairs=1)
    expected = json.loads((tmp_path / "command" / "explanation.json").read_text())
    report = json.loads(json.dumps(found.report))
    stored, expected_stored = report.pop("stored_rows"), expected.pop("stored_rows")
    assert report == expected
    assert len(stored) == len(expected_stored) == 10  # five are the most certain, five the most wrong
    for row, expected_row in zip(stored, expected_stored, strict=True):
        parts, expected_parts = row.pop("columns"), expected_row.pop("columns")
        assert [part["name"] for part in parts] == [part["name"] for part in expected_parts]
        # Threads add gradients in whatever order they end.
        assert [part["logit"] for part in parts] == pytest.approx([part["logit"] for part in expected_parts], abs=1e-5)
        assert row.pop("jumps") == pytest.approx(expected_row.pop("jumps"), abs=1e-5)
        assert row == expected_row
    rows = found.to_pandas()
    assert rows["column"].tolist() == [one["name"] for one in expected["columns"]]
    assert rows.loc[0, "auc_low"] == expected["columns"][0]["auc"]["interval"][0]
    assert set(found.pairs["first"]) <= set(COLUMNS) and "interplay_bits" in found.pairs
    shows_itself(found, rows.loc[0, "column"])
    assert len(found.plot().axes) == 2 and png(found.plot())


@slow
def test_a_row_is_explained_by_its_values(run):
    row = {name: values[0] for name, values in COLUMNS.items()}
    other = pa.table({name: [values[2]] for name, values in COLUMNS.items()})
    found = ctrpipe.explain(run, row=row, baseline=other, method="both", orders=20)
    with ctrpipe.load(run) as model:
        assert found.probability == pytest.approx(model.predict([row])["ctr"][0], abs=1e-6)
    for method in ("gradients", "shapley"):
        of = found.by_method[method]
        assert sum(one["logit"] for one in of["columns"]) == pytest.approx(of["logit"] - of["baseline"], abs=1e-3)
    rows = found.to_pandas()
    assert len(rows) == 2 * len(COLUMNS) and rows.query("column == 'film'")["value"].tolist() == ["f1", "f1"]
    shows_itself(found, f"probability {found.probability:.4f}", "shapley")
    assert len(found.plot().axes) == 2 and png(found.plot())
    with pytest.raises(ctrpipe.InputError, match="the header lacks age, film"):
        ctrpipe.explain(run, row={"user": "u1", "seen": "", "when": "", "year": 1.0})


@slow
def test_lists_are_ranked(run, tmp_path):
    code, output = call("ranking", run.output, "--k", 5, "--k", 2, "--output", tmp_path)
    assert code == 0, output
    found = ctrpipe.ranking(run, k=[5, 2])
    expected = json.loads((tmp_path / "ranking.json").read_text())
    assert json.loads(json.dumps(found.report)) == expected
    assert found.to_pandas()[["order", "k"]].values.tolist() == [
        [order, k] for order in ("model", "popularity") for k in (2, 5)
    ]
    of_frame = ctrpipe.ranking(run, frame().tail(240), k=2)
    assert of_frame.report["sides"]["model"]["at"]["2"] == expected["sides"]["model"]["at"]["2"]
    shows_itself(found, "popularity", f"{expected['lists']:,} lists")
    assert png(found.plot())


@slow
def test_items_are_retrieved(run, tmp_path):
    films, users = frame().drop_duplicates("film"), frame(20)
    found = ctrpipe.retrieve(run, films, queries=users, output=tmp_path / "indexed" / "ctr", top=3)
    assert (found.items, found.rows, found.malformed, found.recall) == (12, 20, 0, None)
    answers = pq.read_table(found.answers).to_pylist()
    rows = found.to_pandas()
    assert len(rows) == 60 and rows["item"].tolist()[:3] == [item.decode() for item in answers[0]["items"]]
    assert rows["place"].tolist() == [1, 2, 3] * 20 and (rows.groupby("line")["score"].diff().dropna() <= 0).all()
    shows_itself(found, str(found.version))
    assert png(found.plot())
    by_index = ctrpipe.retrieve(tmp_path / "indexed" / "ctr", queries=users, answers=tmp_path / "best.parquet")
    assert by_index.items is None and pq.read_table(tmp_path / "best.parquet")["items"].to_pylist() == [
        answer["items"] for answer in answers
    ]
    with pytest.raises(ctrpipe.InputError, match="--output is missing"):
        ctrpipe.retrieve(run, films)


@pytest.mark.large(like="tests/ctrpipe/test_face.py::test_a_run_has_what_the_command_leaves")
@slow
def test_a_study_and_a_sweep_of_a_frame_are_what_their_files_say(tmp_path):
    search = {"model.embedding_dim": [2, 4], "training.learning_rate": {"log": [0.001, 0.1]}}
    tuning = ctrpipe.tune({**CONFIG, "search": search}, frame(), tmp_path / "tune", trials=2, **SMALL)
    report = json.loads((tmp_path / "tune" / "tune.json").read_text())
    assert tuning.report == report and tuning.best.exists() and tuning.page.exists()
    rows = tuning.to_pandas()
    assert rows["value"].tolist() == [trial["value"] for trial in report["trials"]]
    assert rows["model.embedding_dim"].tolist() == [t["settings"]["model.embedding_dim"] for t in report["trials"]]
    assert len(tuning.history) == sum(len(trial["curve"]) for trial in report["trials"])
    shows_itself(tuning, "training.learning_rate", f"{report['best']['value']:.4f}")
    assert png(tuning.plot())

    grid = {"model__embedding_dim": [2, 4]}
    sweep = ctrpipe.sweep(CONFIG, frame(), tmp_path / "sweep", grid=grid, seeds=2, **SMALL)
    written = pd.read_csv(tmp_path / "sweep" / "sweep.csv")
    pd.testing.assert_frame_equal(sweep.to_pandas().dropna(axis=1), written.dropna(axis=1), check_dtype=False)
    assert sweep.history.groupby(["point", "seed"]).size().tolist() == [1, 1, 1, 1]
    shows_itself(sweep, "embedding_dim=4", f"{sweep.report['points'][1]['metrics']['auc']['mean']:.4f}")
    assert sweep.best in repr(sweep) and png(sweep.plot())
    assert ctrpipe.compare(sweep).models == ("embedding_dim=2", "embedding_dim=4")


@pytest.mark.large(like="tests/ctrpipe/test_face.py::test_a_run_has_what_the_command_leaves")
@slow
def test_a_frame_is_replayed_day_by_day(tmp_path):
    log = frame().assign(date=lambda rows: rows["when"].dt.date)  # three days, of 480 rows at most
    settings = {**SMALL, "data__split__test": 0.05}
    replay = ctrpipe.replay(
        CONFIG, log, tmp_path / "replay", day="date", window=1, policies=["frozen"], warm_settings={}, **settings
    )
    report = json.loads((tmp_path / "replay" / "replay.json").read_text())
    assert replay.report == report
    assert replay.to_pandas()["day"].tolist() == ["2026-11-02", "2026-11-03"]
    assert replay.to_pandas()["auc"].tolist() == [result["auc"] for result in report["results"]]
    assert len(replay.history) == 1 and replay.history["training"].tolist() == ["first/2026-11-01"]
    shows_itself(replay, "frozen", f"{report['policies']['frozen']['auc']:.4f}")
    assert png(replay.plot())
    with pytest.raises(ctrpipe.InputError, match="expected some of retrain, warm, frozen"):
        ctrpipe.replay(CONFIG, log, tmp_path / "other", day="date", policies=["thaw"])


@pytest.mark.parametrize(
    ("call_it", "says"),
    [
        (lambda: ctrpipe.check(None), "a configuration of type NoneType: expected a YAML file or a dict"),
        (lambda: ctrpipe.check(frame(9)), "a configuration of type DataFrame: expected a YAML file or a dict"),
        (lambda: ctrpipe.drift(3, "a", "b"), "a configuration of type int: expected a YAML file or a dict"),
        (lambda: ctrpipe.compare(3, 4), "a model of type int: expected runs, sweeps, scorings or their folders"),
        (lambda: ctrpipe.load(None), "a model of type NoneType: expected a run or a folder"),
        (lambda: ctrpipe.serve(frame(9)), "a model of type DataFrame: expected a run or a folder"),
        (lambda: ctrpipe.check(CONFIG, []), "data: an empty list; give at least one file"),
        (lambda: ctrpipe.init([]), "data: an empty list; give at least one file"),
        (lambda: ctrpipe.init(None), "data: None; give a path"),
        (lambda: ctrpipe.init(frame(9), lable="click"), "init has no argument lable; did you mean label\\?"),
        (lambda: ctrpipe.load("m", qqq=1), "load has no argument qqq; it has source, trust"),
        (lambda: ctrpipe.run(CONFIG, outptu="a"), "outptu: no such key; did you mean output\\?"),
        (lambda: ctrpipe.run(CONFIG, setting={}), "setting: no such key; did you mean serving\\?"),
        (lambda: ctrpipe.compare("a", "b", model="c"), "compare has no argument model; it has task, shards, config"),
        (lambda: ctrpipe.Run(".", ".", {}).plot(shelf=1), "plot has no argument shelf; call it without keywords"),
        (lambda: ctrpipe.sweep(CONFIG, grid=["model__name"]), "grid=\\['model__name'\\]: no dict of keys and"),
        (
            lambda: ctrpipe.sweep(CONFIG, grid={"model__name": "lr"}),
            "model__name='lr': a single value in grid; give a list of values, such as \\['lr'\\]",
        ),
        (lambda: ctrpipe.check(CONFIG, {"train": [], "validation": "a", "test": "b"}), "data: an empty list"),
    ],
)
def test_an_argument_of_another_type_is_one_line(call_it, says):
    with pytest.raises(ctrpipe.InputError, match=f"^{says}"):
        call_it()


def test_a_mistake_is_the_line_that_the_command_prints(tmp_path):
    with pytest.raises(ctrpipe.InputError) as raised:
        ctrpipe.init(tmp_path / "absent.tsv")
    one_line(*call("init", tmp_path / "absent.tsv"), f"ctrpipe: {raised.value}")
