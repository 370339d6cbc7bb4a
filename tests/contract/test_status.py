"""Model status over REST (S1-S4)."""

import httpx

from tests.contract import models, servers
from tests.contract.conftest import MODEL, caller
from tests.contract.rpc import model_config, wait_for

AVAILABLE = {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}


def test_S1_states_of_versions(call):
    assert call("GET", MODEL) == (200, {"model_version_status": [AVAILABLE]})
    assert call("GET", f"{MODEL}/versions/123") == (200, {"model_version_status": [AVAILABLE]})


def test_S1_lines_and_spaces(base_url):
    lines = [
        "{",
        ' "model_version_status": [',
        "  {",
        '   "version": "123",',
        '   "state": "AVAILABLE",',
        '   "status": {',
        '    "error_code": "OK",',
        '    "error_message": ""',
        "   }",
        "  }",
        " ]",
        "}",
    ]
    assert httpx.get(base_url + MODEL, trust_env=False).text == "\n".join(lines) + "\n"


def test_S2_a_version_that_cannot_load_ends_with_its_error(model_folder, tmp_path):
    base = tmp_path / models.NAME
    base.mkdir()
    (base / "5").symlink_to(model_folder / models.FOLDER)
    (base / "7").mkdir()
    (base / "7" / "saved_model.pb").write_bytes(b"no SavedModel")
    config = tmp_path / "models.config"
    config.write_text(model_config(m=(base, "model_version_policy { specific { versions: 5 } }")))
    flags = [f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1", "--max_num_load_retries=0"]
    with servers.start(flags) as addresses:
        config.write_text(model_config(m=(base, "model_version_policy { all {} }")))
        call, client = caller(addresses.rest)
        with client:
            wait_for(lambda: [row["state"] for row in call("GET", MODEL)[1]["model_version_status"]][0] == "END")
            status, answer = call("GET", MODEL)
    failed = answer["model_version_status"][0]
    assert status == 200 and (failed["version"], failed["state"]) == ("7", "END")
    assert failed["status"]["error_code"] != "OK" and failed["status"]["error_message"]


def test_S2_a_model_taken_out_of_the_config_keeps_its_versions(model_folder, tmp_path):
    """server_core_test.cc, ReloadConfigUnloadsModels and ReloadConfigHandlesLoadingAPreviouslyUnloadedModel."""
    config = tmp_path / "models.config"
    config.write_text(model_config(m=(model_folder,), other=(model_folder,)))
    flags = [f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1"]
    with servers.start(flags) as addresses:
        call, client = caller(addresses.rest)
        with client:
            for entries, state in (({}, "END"), ({"m": (model_folder,)}, "AVAILABLE")):
                config.write_text(model_config(other=(model_folder,), **entries))
                wait_for(lambda state=state: call("GET", MODEL)[1]["model_version_status"][0]["state"] == state)
                assert call("GET", MODEL) == (200, {"model_version_status": [{**AVAILABLE, "state": state}]})
                answered = call("POST", MODEL + ":predict", '{"instances": [1.0]}')[0]
                assert answered == (200 if state == "AVAILABLE" else 404)


def test_S3_unknown_models_and_versions(call):
    assert call("GET", "/v1/models/x") == (404, {"error": "Could not find any versions of model x"})
    assert call("GET", f"{MODEL}/versions/7") == (404, {"error": "Could not find version 7 of model m"})


def test_S4_labels_are_ignored(call):
    assert call("GET", f"{MODEL}/labels/unknown") == (200, {"model_version_status": [AVAILABLE]})
