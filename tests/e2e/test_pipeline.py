"""The whole way on a small generated log: one run, then everything that hangs on its result."""

import collections
import json
import pathlib
import shlex
import shutil
import urllib.request

import numpy as np
import pyarrow.parquet
import pytest
import yaml

from tests.e2e.small_run import CONFIG, ROWS, call, one_line

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("e2e")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    assert call("generate", "--rows", ROWS, "--output", folder / "log.tsv")[0] == 0
    code, output = call("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", folder / "out")
    assert code == 0, output
    # TensorFlow keeps the memory of a training, which the baseline's would then have beside its own.
    assert 0 < output.index("] Trainer.baseline ...") < output.index("] Trainer ...")
    [line] = [line for line in output.splitlines() if line.startswith("Time:")]
    assert all(f"{phase} " in line for phase in ("Trainer", "Trainer's export", "GatedEvaluator")), line
    commands = output.partition("Next:\n")[2].replace(" \\\n", "").splitlines()
    words = [shlex.split(command)[1:] for command in commands]
    assert [command[0] for command in words] == ["serve", "-d", "predict", "explain", "score", "report"]
    assert words[1][1] == f"@{folder}/out/request.json" and words[4][4] == str(folder / "log.tsv")
    return folder


@pytest.fixture(scope="module")
def version(done) -> pathlib.Path:
    [found] = (done / "out" / "models" / "ctr").iterdir()
    return found


def test_the_result_has_the_promised_layout(done, version):
    metrics = json.loads((done / "out" / "metrics.json").read_text())
    assert metrics["blessed"] and metrics["model_version"] == version.name and metrics["examples"] == ROWS * 0.2
    assert {"auc", "log_loss", "rig", "calibration", "ece", "slices", "tasks"} <= set(metrics)
    assert metrics["tasks"]["ctr"]["auc"] == metrics["auc"] and metrics["slices"]["C9"]
    assert metrics["baseline"]["name"] == "lr"
    report = (done / "out" / "report.html").read_text()
    assert '<th scope="row">Trainer&#39;s export</th>' in report  # of where the time went
    statistics = json.loads((done / "out" / "report_data" / "statistics.json").read_text())
    assert statistics["counted_rows"] == statistics["splits"]["train"]["rows"] and len(report) < 2_000_000
    assert "<svg" in report and "http://" not in report and "https://" not in report
    assert (version / "saved_model.pb").exists() and (done / "out" / "tfx" / "metadata.sqlite").exists()


def test_the_transform_has_learned_from_the_training_rows_alone(done, version):
    from ctrpipe.serving.assets import read_log_spec
    from ctrpipe.serving.layout import Asset, asset_path
    from ctrpipe.transforms.features.vocabulary_files import read_vocabularies

    lines = [line.split("\t") for line in (done / "log.tsv").read_text().splitlines()]
    trained = lines[: ROWS * 7 // 10]
    values = np.array([float(line[5]) for line in trained if line[5]], np.float32).astype(np.float64)
    of_all = np.array([float(line[5]) for line in lines if line[5]])
    mean, variance = json.loads(asset_path(version, Asset.NUMBERS).read_text())["I5"]
    assert (mean, variance) == pytest.approx((values.mean(), values.var()), rel=1e-6)
    assert mean != pytest.approx(of_all.mean(), rel=1e-6)  # for the test to mean something
    width = np.ptp(values)
    limits = json.loads(asset_path(version, Asset.LIMITS).read_text())["I5"]
    assert limits == pytest.approx([values.min() - width, values.max() + width], rel=1e-6)
    counts = collections.Counter(line[19] for line in trained if line[19])
    learned = read_vocabularies(version / "assets", read_log_spec(version))["C6"].to_pylist()
    assert [counts[value.decode()] for value in learned] == sorted(counts.values(), reverse=True)[: len(learned)]


def test_every_way_to_a_probability_gives_the_same(done, version):
    from ctrpipe.pipeline.explain.explain import Settings, explain_line
    from ctrpipe.pipeline.run.trained_model import find_model
    from ctrpipe.serving.assets import read_log_spec
    from ctrpipe.serving.client import RestClient
    from ctrpipe.serving.client.predict_rows import predict_rows
    from ctrpipe.serving.explained import attributions
    from ctrpipe.serving.loader import Servable
    from ctrpipe.serving.server import ServerOptions, running_server
    from ctrpipe.serving.server.check import check_servable
    from ctrpipe.transforms.log.ingest import to_examples
    from ctrpipe.transforms.log.raw_arrays import raw_arrays
    from ctrpipe.transforms.log.readers import LogReader

    assert check_servable(version) <= 1e-6  # the C++ loader against Keras
    log = done / "odd.tsv"
    rows = [line.split("\t") for line in (done / "log.tsv").read_text().splitlines()[:200]]
    rows[0][1:] = [""] * 39  # everything missing
    rows[1][19] = "never-seen"
    rows[2][2] = rows[2][4] = "-3"
    rows[3][22] = "é ☃"
    log.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    spec = read_log_spec(version)
    [batch] = LogReader(spec).read(str(log))
    servable = Servable(version)
    raw = servable.run("serving_raw", raw_arrays(batch.rows, spec))["ctr"]
    examples = np.array(to_examples(batch.rows.select(spec.feature_columns)), object)
    found = {"serving_default": servable.run("serving_default", {"examples": examples})["ctr"]}
    found["regress"] = servable.run("regress", {"inputs": examples})["outputs"]
    packed = servable.run("transform_features", {"examples": examples})
    found["serving_packed"] = servable.run("serving_packed", packed)["ctr"]
    explained = servable.run("serving_explain", raw_arrays(batch.rows, spec))
    found["serving_explain"] = explained["ctr"]
    added = attributions(explained)
    np.testing.assert_allclose(sum(added.values()), explained["logit"] - explained["baseline_logit"], atol=1e-4)
    assert set(added) == set(spec.feature_columns)
    assert not any(values[0] for values in added.values())  # of a row without values
    [by_explain] = explain_line(find_model(done / "out"), f"{log}:5", [], Settings(), "missing", 2, "gradients")
    for column in by_explain.columns:
        assert added[column.name][4] == pytest.approx(column.logit, abs=0.02), column
    one = {name: value[:1] for name, value in raw_arrays(batch.rows, spec).items()}
    np.testing.assert_allclose(servable.run("serving_raw", one)["ctr"], raw[:1], atol=1e-6)
    servable.close()
    with running_server(ServerOptions(version.parent, "ctr")) as server:
        with RestClient(f"{server.rest}/v1/models/ctr") as client:
            found["REST"] = np.array([row.probability for row in predict_rows(client, log, 200)])
        with urllib.request.urlopen(
            f"{server.rest}/v1/models/ctr:predict", (done / "out" / "request.json").read_bytes()
        ) as answer:
            [asked] = json.load(answer)["outputs"]
        [first] = next(LogReader(spec, labels=False).read(str(done / "log.tsv"))).rows.slice(0, 1).to_pylist()
        requested = json.loads((done / "out" / "request.json").read_text())["inputs"]
        assert {name: values[0] for name, values in requested.items() if isinstance(values[0], str)} == {
            name: (first[name] or b"").decode() for name in spec.text_columns
        }
        assert 0 < asked < 1
        code, output = call("predict", "--url", f"{server.rest}/v1/models/ctr", "--input", log, "--rows", 3)
        assert code == 0 and len(output.splitlines()) == 3
    code, output = call("score", "--model", version.parent, "--input", log, "--output", done / "odd")
    assert code == 0 and "200 rows in, 200 scored, 0 malformed" in output
    found["score"] = pyarrow.parquet.read_table(done / "odd")["ctr"].to_numpy()
    for name, probabilities in found.items():
        np.testing.assert_allclose(probabilities, raw, atol=1e-6, err_msg=name)
    assert len(np.unique(raw)) > 50


def test_scoring_keeps_every_line(done, version):
    lines = (done / "log.tsv").read_text().splitlines()[:50]
    unlabelled = [line.split("\t", 1)[1] for line in lines]
    unlabelled[7] = "too\tfew"
    (done / "unlabelled.tsv").write_text("\n".join(unlabelled))
    code, output = call("score", "--model", version, "--input", done / "unlabelled.tsv", "--output", done / "scores")
    assert code == 0 and "50 rows in, 49 scored, 1 malformed" in output
    table = pyarrow.parquet.read_table(done / "scores" / "part-00000-of-00001.parquet")
    assert table["line"].to_pylist() == list(range(1, 51))
    assert [row for row, ctr in enumerate(table["ctr"].to_pylist()) if ctr is None] == [7]
    assert set(table["model_version"].to_pylist()) == {version.name}
    letter = json.loads((done / "scores" / "_dead_letter" / "part-00000-of-00001.jsonl").read_text())
    assert letter["line"] == 8
    again = call("score", "--model", version, "--input", done / "unlabelled.tsv", "--output", done / "scores")
    assert again[0] == 0 and "50 rows in, 49 scored, 1 malformed" in again[1]


def test_a_second_run_comes_from_the_cache_and_a_failed_gate_blocks(done, version, monkeypatch):
    config, log, out = done / "config.yaml", done / "log.tsv", done / "out"
    before = json.loads((out / "metrics.json").read_text())
    with monkeypatch.context() as patched:
        for loader in (
            "ctrpipe.serving.loader.Servable.__init__",
            "keras.saving.load_model",
            "tensorflow.saved_model.load",
        ):
            patched.setattr(loader, lambda *given, **options: pytest.fail("a model is loaded"))
        code, output = call("run", config, "--data", log, "--output", out)
    assert code == 0 and "Transform: from cache" in output and "AtomicPusher: from cache" in output
    assert "..." not in output.replace("Next", "")
    assert json.loads((out / "metrics.json").read_text()) == before
    code, output = call("run", config, "--data", log, "--output", out, "--set", "gates.auc.min=0.51")
    assert code == 0 and f"{version}: has this model already; not pushed again" in output
    assert json.loads((out / "metrics.json").read_text())["model_version"] == version.name
    slices = "gates.calibration={slices: [C9], max_error: 0.99, min_clicks: 1}"  # which TFMA knows nothing of
    lists = "gates.ecs={min: 100000, group: C9, item: C3, k: 2}"  # nor of this
    code, output = call("run", config, "--data", log, "--output", out, "--set", slices, "--set", lists)
    assert code == 1 and "Trainer: from cache" in output and "blocked by a gate" in output
    assert "Try:    columns that tell users apart" in output
    [look, page, lift] = output.partition("to push it anyway:\n")[2].replace(" \\\n", "").splitlines()
    assert shlex.split(look)[1:] == ["explain", str(out)]
    assert shlex.split(page)[1:] == ["report", str(out), "--open"]
    again = ["run", config, "--data", log, "--set", slices, "--set", lists, "--output", out]
    lifts = [word for word in shlex.split(lift)[1 + len(again) :] if word != "--set"]
    assert shlex.split(lift)[1 : 1 + len(again)] == list(map(str, again)) and lifts[0] == "gates.ecs=null"
    assert not json.loads((out / "metrics.json").read_text())["blessed"]
    rows = {(row["metric"], row["kind"]): row for row in json.loads((out / "report_data" / "gates.json").read_text())}
    assert not rows["ecs", "absolute"]["passed"] and rows["ecs", "absolute"]["value"] > 1
    assert rows["calibration", "slice"]["bound"].startswith("within 0.99 of 1 for each C9 of 1 clicks or more")
    assert list((out / "models" / "ctr").iterdir()) == [version]
    assert call("report", out)[0] == 0


def test_a_moved_run_takes_its_cache_and_pushes_no_second_version(done, version, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("out", "log.tsv", "config.yaml"):
        (shutil.copytree if name == "out" else shutil.copy)(done / name, moved / name)
    shutil.copytree(moved / "out", tmp_path / "again")
    for log, out in ((moved / "log.tsv", moved / "out"), (done / "log.tsv", tmp_path / "again")):
        code, output = call("run", moved / "config.yaml", "--data", log, "--output", out)
        assert code == 0 and output.count(": from cache") == 11 and " ..." not in output.replace("Next", ""), output
        assert [each.name for each in (out / "models" / "ctr").iterdir()] == [version.name]
        statistics = json.loads((out / "report_data" / "statistics.json").read_text())
        assert statistics["splits"]["test"]["span"] == [str(log), str(log)]
        lineage = json.loads((out / "report_data" / "lineage.json").read_text())
        assert lineage["model"].startswith(f"{out}/tfx/") and lineage["transform_graph"].startswith(f"{out}/tfx/")


@pytest.mark.large(like="tests/e2e/test_pipeline.py::test_a_moved_run_takes_its_cache_and_pushes_no_second_version")
def test_a_moved_run_knows_the_version_that_it_has_beaten(done, version, tmp_path):
    """The same rows, trained longer, in a folder that nobody writes to any more."""
    again = shutil.copytree(done / "out", tmp_path / "again")
    given = ("run", done / "config.yaml", "--data", done / "log.tsv", "--output", again)
    longer = ("--set", "training.epochs=5", "--set", "gates={rig: null}", "--set", "evaluation={}")
    code, output = call(*given, *longer)
    assert code == 0 and len(list((again / "models" / "ctr").iterdir())) == 2
    again.rename(tmp_path / "last")
    code, output = call(*given[:-1], tmp_path / "last", *longer)
    assert code == 0 and "..." not in output.replace("Next", ""), output
    [link] = [path for path in (tmp_path / "last" / "tfx").rglob("LastBlessedModel/model/*/*") if path.is_symlink()]
    assert link.resolve() == tmp_path / "last" / "models" / "ctr" / version.name
    assert len(list((tmp_path / "last" / "models" / "ctr").iterdir())) == 2


def test_the_next_day_begins_with_a_run_and_names_it(done, version, tmp_path):
    assert call("generate", "--rows", 1500, "--seed", 9, "--output", tmp_path / "log.tsv")[0] == 0
    given = ("run", done / "config.yaml", "--data", tmp_path / "log.tsv", "--output", tmp_path / "out")
    given += (
        "--warm-start",
        done / "out",
        "--set",
        "serving={}",
        "--set",
        "evaluation={}",
        "--set",
        "gates={rig: null}",
    )
    code, output = call(*given, "--set", "training.epochs=1", "--set", "training.warm_start={window: 3}")
    assert code == 0 and f"Warm start from {done / 'out'}: " in output, output
    assert "Warm start: the parent has no counts of values" in output
    [counts] = (tmp_path / "out" / "tfx").rglob("Format-Keras/counts.parquet")
    assert pyarrow.parquet.read_table(counts)["ago"].unique().to_pylist() == [0]
    parent = json.loads((tmp_path / "out" / "report_data" / "lineage.json").read_text())["parent"]
    assert parent["model"] == str(done / "out") and parent["optimizer"] and not parent["left"]
    assert parent["ids"]["C3"] == {"known": 102, "new": 0, "gone": 0}  # hashed
    assert str(done / "out") in (tmp_path / "out" / "report.html").read_text()
    spec = json.loads((version / "assets.extra" / "numbers.json").read_text())
    [own] = (tmp_path / "out" / "models" / "ctr").iterdir()
    assert json.loads((own / "assets.extra" / "numbers.json").read_text()) == spec  # the mean of I5 stays
    code, output = call(*given, "--set", "model.hidden_units=[9]")
    one_line(code, output, f"training.warm_start: {done / 'out'} has another architecture: tower.hidden.0.kernel")


def test_a_log_that_is_unlike_is_exit_code_1_and_with_block_a_gate(done, version, tmp_path):
    out = done / "out"
    lines = [line.split("\t") for line in (done / "log.tsv").read_text().splitlines()]
    (tmp_path / "alike.tsv").write_text("\n".join("\t".join(line[1:]) for line in lines[1000:]))
    (tmp_path / "other.tsv").write_text("\n".join("\t".join([*line[:22], "new", *line[23:]]) for line in lines))
    run = ("run", done / "config.yaml", "--data", done / "log.tsv", "--output", out)
    alike = f"monitoring.serving=[{tmp_path}/alike.tsv]"
    other = f"monitoring.previous=[{tmp_path}/other.tsv]"
    code, output = call(*run, "--set", alike)
    assert code == 0 and "DriftCheck ..." in output and "Trainer: from cache" in output
    assert "Drift and skew" in (out / "report.html").read_text() and "Drift:" not in output
    code, output = call(*run, "--set", alike, "--set", other)
    assert code == 1 and "Drift:  columns further from another log than their limit: C9" in output
    assert json.loads((out / "metrics.json").read_text())["model_version"] == version.name
    code, output = call(*run, "--set", other, "--set", "monitoring.block=true")
    metrics = json.loads((out / "metrics.json").read_text())
    assert code == 1 and metrics["drift_breached"] and not metrics["blessed"] and metrics["model_version"] is None
    gate = json.loads((out / "report_data" / "gates.json").read_text())[-1]
    assert gate["metric"] == "drift" and not gate["passed"] and gate["reason"].endswith(": C9")
    one_line(*call(*run, "--set", f"monitoring.previous=[{tmp_path / 'absent'}]"), "absent: no such file")


def test_mistakes_are_one_line_and_exit_code_2(done, tmp_path):
    config = done / "config.yaml"
    one_line(*call("run", tmp_path / "absent.yaml"), "cannot read the configuration")
    one_line(*call("run", config), "give --data PATH")
    one_line(*call("run", config, "--data", tmp_path / "absent", "--output", tmp_path / "o"), "no such file")
    one_line(*call("run", config, "--set", "training.speed=3"), "training.speed: unknown key")
    one_line(*call("run", config, "--data", config, "--set", "model.depth=3"), "no hyperparameter 'depth'")
    (tmp_path / "file").touch()
    one_line(*call("run", config, "--data", config, "--output", tmp_path / "file"), "a file is in the way")
    one_line(*call("report", tmp_path), "no finished run here")
    one_line(*call("serve", "--port", 0), "are both 0: give a port")
    one_line(*call("predict", "--url", "http://127.0.0.1:9/v1/models/m", "--input", config), "is the server running?")
    one_line(*call("score", "--model", tmp_path, "--input", config, "--output", tmp_path / "s"), "no model version")
    one_line(*call("generate", "--rows", 0, "--output", tmp_path / "g"), "rows")


def test_mistakes_that_show_inside_the_pipeline_are_one_line_too(done, tmp_path):
    lines = (done / "log.tsv").read_text().splitlines()
    config, out = done / "config.yaml", tmp_path / "out"
    (tmp_path / "one_class.tsv").write_text("\n".join("0" + line[1:] for line in lines[:500]))
    one_line(*call("run", config, "--data", tmp_path / "one_class.tsv", "--output", out), "label is 0 in all")
    (tmp_path / "bad.tsv").write_text("\n".join(["bad"] * 100 + lines[:500]))
    one_line(*call("run", config, "--data", tmp_path / "bad.tsv", "--output", out), "above data.max_bad_row_rate")
    assert len((out / "dead_letter" / "rejects.jsonl").read_text().splitlines()) == 100
    rare = {**CONFIG, "features": [{"kind": "categorical", "columns": ["C6"], "min_count": 100000}]}
    rare["evaluation"] = {}
    (tmp_path / "rare.yaml").write_text(yaml.safe_dump(rare))
    found = call("run", tmp_path / "rare.yaml", "--data", done / "log.tsv", "--output", tmp_path / "rare")
    one_line(*found, "the vocabulary of C6 has no entry")
    assert not (tmp_path / "rare" / "models").exists()


def test_a_run_is_explained(done, version):
    out, asked = done / "out", done / "explained"
    common = ["--rows", 300, "--repeats", 1, "--pairs", 2, "--output", asked]
    code, output = call("explain", out, *common)
    assert code == 0, output
    found = json.loads((asked / "explanation.json").read_text())
    assert {one["name"] for one in found["columns"]} == {"I2", "I4", "I5", "C6", "C9", "C14", "C3"}
    assert found["rows"] == 300 and found["counted_rows"] == ROWS * 0.2 and len(found["pairs"]) == 21
    assert found["scorings"] == 1 + 7 + 2 and sum(one["interaction"] is not None for one in found["pairs"]) == 2
    assert "C9" in output and "Pairs of columns by what they do together" in output
    [layer] = found["attention"]
    heads = np.array(layer["heads"])
    assert heads.shape == (2, 6, 6) and layer["tokens"] == ["I2", "I4", "C6", "C9", "C14", "C3"]
    np.testing.assert_allclose(heads.sum(axis=2), 1, atol=1e-5)
    assert np.sum(layer["picked"], axis=1).min() >= 3 - 1e-9  # top_k is 3, and ties with the third are picked too
    by_pair = {(one["first"], one["second"]): one["picked"] for one in found["pairs"]}
    assert by_pair["I2", "I5"] is None and 0 <= by_pair["I2", "I4"] <= 1  # I5 is dense: no field attends to it
    stored = found["stored_rows"]
    assert [one["why"] for one in stored] == ["most certain"] * 5 + ["most wrong"] * 5
    wrong = [abs(one["probability"] - one["label"]) for one in stored]
    assert wrong == sorted(wrong[:5]) + sorted(wrong[5:], reverse=True) and wrong[4] < 0.5 < wrong[9]
    for one in stored:
        added = sum(column["logit"] for column in one["columns"])
        assert added == pytest.approx(one["logit"] - one["baseline"], abs=1e-3) and one["method"] == "gradients"
    page = (out / "report.html").read_text()
    assert '<section id="importance">' in page and page.count("most wrong: probability") >= 5
    code, output = call("explain", version, "--data", done / "log.tsv", *common)
    assert code == 0 and json.loads((asked / "explanation.json").read_text())["counted_rows"] == ROWS
    assert (
        f"Page: {asked}/explanation.html" in output
        and '<section id="pairs">' in (asked / "explanation.html").read_text()
    )
    one_line(*call("explain", version), "give --data")


@pytest.mark.large(like="tests/e2e/test_pipeline.py::test_a_run_is_explained")
def test_the_explanations_of_two_logs_are_compared_by_the_graph_and_by_keras(done, version, tmp_path, monkeypatch):
    from ctrpipe.pipeline.config import Monitoring
    from ctrpipe.pipeline.explain.shares import compare_attributions
    from ctrpipe.pipeline.run.trained_model import find_model
    from ctrpipe.serving import explained

    log, today = done / "log.tsv", tmp_path / "today.tsv"
    rows = [line.split("\t") for line in log.read_text().splitlines()[:1500]]
    today.write_text("".join("\t".join([*row[:22], "", *row[23:]]) + "\n" for row in rows))  # without C9
    asked = ("--data", today, "--against", log, "--model", done / "out", "--output", tmp_path)
    code, output = call("drift", done / "config.yaml", *asked)
    assert code == 1, output
    found = json.loads((tmp_path / "drift.json").read_text())["attributions"]
    by_name = {one["column"]: one for one in found["columns"]}
    assert by_name["C9"]["share"] == 0 and by_name["C9"]["other"] > 0.05 and by_name["C9"]["breached"]
    assert sum(one["share"] for one in found["columns"]) == pytest.approx(1) and found["log"]["rows"] == 1500
    assert "1,500 rows of the new log" in (tmp_path / "drift.html").read_text() and "C9" in output
    monkeypatch.setattr(explained, "SIGNATURE", "absent")  # as of a version without it
    by_keras = compare_attributions(find_model(done / "out"), [str(today)], [str(log)], "drift", Monitoring(), 1)
    for one in by_keras["columns"]:
        assert one["share"] == pytest.approx(by_name[one["column"]]["share"], abs=1e-4)


def test_a_row_of_a_run_is_explained_by_gradients_and_by_shapley_values(done, version):
    log, asked = done / "log.tsv", done / "explained"
    line, other = f"{log}:12", f"{log}:30"
    code, output = call("explain", version, "--row", line, "--baseline", other, "--method", "both", "--output", asked)
    assert code == 0 and "integrated gradients" in output and "Shapley values" in output, output
    found = json.loads((asked / "row.json").read_text())
    for method in ("gradients", "shapley"):
        one = found[method]
        assert sum(column["logit"] for column in one["columns"]) == pytest.approx(
            one["logit"] - one["baseline"], abs=1e-3
        )
        assert one["logit"] == pytest.approx(found["shapley"]["logit"], abs=1e-4)
        assert one["baseline"] == pytest.approx(found["shapley"]["baseline"], abs=1e-4)
        assert len(one["columns"]) == 7
    code, output = call("explain", done / "out", "--row", line, "--rows", 50, "--output", asked)
    assert code == 0 and set(json.loads((asked / "row.json").read_text())) == {"row", "model", "gradients"}, output
    one_line(*call("explain", version, "--row", line, "--baseline", "x"), "--baseline x: expected FILE:LINE")
