"""One step by itself: what it refuses, how it ends, what it leaves."""

import errno
import json
import os
import pathlib
import shutil

from click.testing import CliRunner
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.types import standard_artifacts
from tfx.utils import json_utils

from ctrpipe.common.code_version import code_version
from ctrpipe.pipeline.components.log_example_gen import ExampleGenSettings
from ctrpipe.pipeline.config import check_config
from ctrpipe.pipeline.kubeflow.step import main
from tests.e2e.small_run import SHORT_CONFIG, one_line

MODEL = "model=tfx.types.standard_artifacts.Model"
LAST = ("LastBlessedModel", "ctrpipe.pipeline.components.last_blessed_model.LastBlessedModel_Executor", MODEL)


class Seen(BaseExecutor):
    """Writes where its artifacts are."""

    def Do(self, input_dict, output_dict, exec_properties):
        [examples], [model] = input_dict["examples"], output_dict["model"]
        places = {"examples": examples.uri, "model": model.uri, "rows": pathlib.Path(examples.uri, "rows").read_text()}
        pathlib.Path(model.uri, "places.json").write_text(json.dumps(places))


def step(folder, stage, arguments, executor=None, output=None, version=None, inputs=None):
    """Exit code and output of a step, and the ExecutorOutput that it wrote."""
    name = output.partition("=")[0] if output else ""
    artifact = {"type": {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"}, "uri": str(folder / name)}
    # Kubeflow's launcher adds this one, and has opened its file before the step starts.
    (folder / "executor-logs-0").touch()
    logs = {"type": {"schemaTitle": "system.Artifact"}, "uri": str(folder / "executor-logs-0")}
    declared = {name: {"artifacts": [artifact]}} if output else {}
    given = {
        "inputs": {"parameterValues": {"arguments": arguments}, "artifacts": inputs or {}},
        "outputs": {
            "outputFile": str(folder / "out" / "output.json"),
            "artifacts": {**declared, "executor-logs": {"artifacts": [logs]}},
        },
    }
    command = ["--stage", stage, "--code_version", version or code_version(), "--executor_input", json.dumps(given)]
    command += ["--executor", executor, "--output", output] if executor else []
    result = CliRunner().invoke(main, command)
    written = folder / "out" / "output.json"
    return result, json.loads(written.read_text()) if written.exists() else None


def test_a_blocked_model_fails_the_run_with_the_gate_that_did_it(tmp_path):
    result, _ = step(tmp_path, "Verdict", "blocked by a gate, not pushed: auc 0.5000 is not at least 0.6")
    assert result.exit_code == 1
    assert result.output == "ctrpipe: blocked by a gate, not pushed: auc 0.5000 is not at least 0.6\n"
    result, written = step(tmp_path, "Verdict", "")
    assert result.exit_code == 0 and written == {"parameterValues": {}, "artifacts": {}}


def test_an_image_with_other_code_than_the_pipeline_is_refused(tmp_path):
    result, written = step(tmp_path, "Verdict", "", version="another")
    one_line(result.exit_code, result.output, "the pipeline another; build the image, compile again")
    assert written is None


def test_a_volume_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    def refuse(task):
        raise OSError(errno.EROFS, "Read-only file system", "/data/runs/demo")

    monkeypatch.setattr("ctrpipe.pipeline.kubeflow.work.report", refuse)
    result, _ = step(tmp_path, "Report", "{}")
    one_line(result.exit_code, result.output, "/data/runs/demo: the file system is read-only; choose another")


def test_an_object_store_gets_copies_of_what_links_lead_to(tmp_path):
    pushed = tmp_path / "models" / "ctr" / "7"
    pushed.mkdir(parents=True)
    (pushed / "saved_model.pb").write_text("a model")
    properties = {"push_folder": str(pushed.parent), "version": "7"}
    result, written = step(tmp_path, LAST[0], json.dumps({"exec_properties": properties, "beam_args": []}), *LAST[1:])
    assert result.exit_code == 0, result.exception
    serving = tmp_path / "model" / "Format-Serving"
    assert not serving.is_symlink() and (serving / "saved_model.pb").read_text() == "a model"
    [artifact] = written["artifacts"]["model"]["artifacts"]
    assert artifact["uri"] == str(tmp_path / "model") and "Model" in artifact["metadata"]["tfx"]
    assert set(written["artifacts"]) == {"model"} and (tmp_path / "executor-logs-0").read_bytes() == b""


def test_what_a_step_writes_is_not_for_others_to_change(tmp_path, monkeypatch):
    """Argo starts a step with the umask 000; one that takes more away stays as it is."""

    def write(task):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "folder" / "file").write_text("a run's")

    monkeypatch.setattr("ctrpipe.pipeline.kubeflow.step.verdict", write)
    before = os.umask(0)
    try:
        for umask, modes in ((0o000, (0o755, 0o644)), (0o027, (0o750, 0o640))):
            shutil.rmtree(tmp_path / "folder", ignore_errors=True)
            os.umask(umask)
            assert step(tmp_path, "Verdict", "")[0].exit_code == 0
            paths = (tmp_path / "folder", tmp_path / "folder" / "file")
            assert tuple(path.stat().st_mode & 0o777 for path in paths) == modes
    finally:
        os.umask(before)


def test_beams_workers_see_the_artifacts_of_a_step_in_the_volume(tmp_path):
    examples, volume = tmp_path / "bucket" / "examples", tmp_path / "volume" / "tfx"
    examples.mkdir(parents=True)
    (examples / "rows").write_text("some rows")
    artifact = {"uri": str(examples), "metadata": {"tfx": json_utils.dumps(standard_artifacts.Examples())}}
    inputs = {"examples": {"artifacts": [artifact]}}

    def seen(**more):
        arguments = json.dumps({"exec_properties": {}, "beam_args": [], **more})
        result, written = step(tmp_path, "Seen", arguments, "tests.kubeflow.test_step.Seen", MODEL, inputs=inputs)
        assert result.exit_code == 0, result.exception
        [model] = written["artifacts"]["model"]["artifacts"]
        assert model["uri"] == str(tmp_path / "model")
        return json.loads((tmp_path / "model" / "places.json").read_text())

    assert seen() == {"examples": str(examples), "model": str(tmp_path / "model"), "rows": "some rows"}
    found = seen(shared=str(volume))
    assert found["rows"] == "some rows"
    assert all(pathlib.Path(found[name]).is_relative_to(volume) for name in ("examples", "model"))
    assert volume.is_dir() and not list(volume.iterdir())


def test_a_users_mistake_within_a_step_is_one_line_and_others_keep_their_traceback(tmp_path):
    (tmp_path / "log.tsv").write_text("not a click log\n" * 10)
    config = check_config({**SHORT_CONFIG}, (), "config")
    settings = ExampleGenSettings(
        spec=config.log_spec,
        files=[str(tmp_path / "log.tsv")],
        data_fingerprint="f",
        states=None,
        seed=0,
        dead_letter=tmp_path / "dead_letter",
    )
    properties = {
        "settings": settings.model_dump_json(),
        "code_version": "c",
        "workers": config.workers_for().to_json(),
    }
    reader = "ctrpipe.pipeline.components.log_example_gen.LogExampleGen_Executor"
    examples = "examples=tfx.types.standard_artifacts.Examples"

    arguments = json.dumps({"exec_properties": properties, "beam_args": []})
    found, _ = step(tmp_path, "LogExampleGen", arguments, reader, examples)
    one_line(found.exit_code, found.output, "above data.max_bad_row_rate")
    assert (tmp_path / "dead_letter" / "rejects.jsonl").exists()
    arguments = json.dumps({"exec_properties": {"push_folder": "x", "version": 3}, "beam_args": []})
    found, _ = step(tmp_path, LAST[0], arguments, *LAST[1:])
    assert isinstance(found.exception, TypeError)
