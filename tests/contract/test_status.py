"""Model status over REST (S1-S4)."""

import pytest

from tests.contract import models, servers
from tests.contract.conftest import MODEL, caller

AVAILABLE = {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}


def test_S1_states_of_versions(call):
    assert call("GET", MODEL) == (200, {"model_version_status": [AVAILABLE]})
    assert call("GET", f"{MODEL}/versions/123") == (200, {"model_version_status": [AVAILABLE]})


def test_S2_a_version_that_cannot_load_ends_with_its_error(model_folder, tmp_path):
    base = tmp_path / models.NAME
    base.mkdir()
    (base / "5").symlink_to(model_folder / models.FOLDER)
    (base / "7").mkdir()
    (base / "7" / "saved_model.pb").write_bytes(b"no SavedModel")
    flags = [f"--model_base_path={base}", f"--model_name={models.NAME}", "--max_num_load_retries=0"]
    if not servers.IS_OURS:
        pytest.skip("a binary does not listen before its models are there")
    with servers.start(flags) as addresses:
        call, client = caller(addresses.rest)
        with client:
            status, answer = call("GET", MODEL)
    failed = answer["model_version_status"][0]
    assert status == 200 and (failed["version"], failed["state"]) == ("7", "END")
    assert failed["status"]["error_code"] != "OK" and failed["status"]["error_message"]


def test_S3_unknown_models_and_versions(call):
    assert call("GET", "/v1/models/x") == (404, {"error": "Could not find any versions of model x"})
    assert call("GET", f"{MODEL}/versions/7") == (404, {"error": "Could not find version 7 of model m"})


def test_S4_labels_are_ignored(call):
    assert call("GET", f"{MODEL}/labels/unknown") == (200, {"model_version_status": [AVAILABLE]})
