"""One step by itself: what it refuses, how it ends, what it leaves."""

import json

from click.testing import CliRunner

from pipeline.config import check_config
from pipeline.kubeflow.step import main
from pipeline.runner import code_version
from tests.e2e.small_run import SHORT_CONFIG, one_line

MODEL = "model=tfx.types.standard_artifacts.Model"
LAST = ("LastBlessedModel", "pipeline.components.last_blessed_model.LastBlessedModel_Executor", MODEL)


def step(folder, stage, arguments, executor=None, output=None, version=None):
    """Exit code and output of a step, and the ExecutorOutput that it wrote."""
    name = output.partition("=")[0] if output else ""
    artifact = {"type": {"schemaTitle": "system.Artifact", "schemaVersion": "0.0.1"}, "uri": str(folder / name)}
    given = {
        "inputs": {"parameterValues": {"arguments": arguments}},
        "outputs": {
            "outputFile": str(folder / "out" / "output.json"),
            "artifacts": {name: {"artifacts": [artifact]}} if output else {},
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


def test_a_users_mistake_within_a_step_is_one_line_and_others_keep_their_traceback(tmp_path):
    (tmp_path / "log.tsv").write_text("not a click log\n" * 10)
    config = check_config({**SHORT_CONFIG}, (), "config")
    properties = {
        "spec": config.log_spec.model_dump_json(),
        "files": json.dumps([str(tmp_path / "log.tsv")]),
        "data_fingerprint": "f",
        "seed": 0,
        "dead_letter": str(tmp_path / "dead_letter"),
        "workers": config.crew().to_json(),
    }
    reader = "pipeline.components.log_example_gen.LogExampleGen_Executor"
    examples = "examples=tfx.types.standard_artifacts.Examples"

    arguments = json.dumps({"exec_properties": properties, "beam_args": []})
    found, _ = step(tmp_path, "LogExampleGen", arguments, reader, examples)
    one_line(found.exit_code, found.output, "above data.max_bad_row_rate")
    assert (tmp_path / "dead_letter" / "rejects.jsonl").exists()
    arguments = json.dumps({"exec_properties": {"push_folder": "x", "version": 3}, "beam_args": []})
    found, _ = step(tmp_path, LAST[0], arguments, *LAST[1:])
    assert isinstance(found.exception, TypeError)
