"""Metadata over REST (M1-M3)."""

import httpx
import pytest

from tests.contract.conftest import MODEL


@pytest.mark.slow
def test_M1_the_signatures_in_full(call):
    for path in (MODEL, f"{MODEL}/versions/123"):
        status, answer = call("GET", f"{path}/metadata")
        assert status == 200 and answer["model_spec"] == {"name": "m", "signature_name": "", "version": "123"}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert "__saved_model_init_op" in signatures
    mixed = signatures["mixed"]
    assert mixed["method_name"] == "tensorflow/serving/predict"
    assert set(mixed["inputs"]) == {"f", "i", "s", "b"} and set(mixed["outputs"]) == {"sum", "s_bytes", "text", "flag"}
    name = mixed["inputs"]["f"].pop("name")
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert name.endswith(":0") and mixed["inputs"]["f"] == {"dtype": "DT_FLOAT", "tensor_shape": shape}
    assert [mixed["inputs"][key]["dtype"] for key in "isb"] == ["DT_INT32", "DT_STRING", "DT_BOOL"]
    assert signatures["matrix"]["inputs"]["x"]["tensor_shape"]["dim"][1] == {"size": "2", "name": ""}
    assert signatures["any_shape"]["inputs"]["x"]["tensor_shape"] == {"dim": [], "unknown_rank": True}


def test_M2_unknown_models_and_labels(call):
    expected = (404, {"error": "Servable not found for request: Latest(x)"})
    assert call("GET", "/v1/models/x/metadata") == expected
    expected = (400, {"error": "Unrecognized servable version label: x"})
    assert call("GET", f"{MODEL}/labels/x/metadata") == expected


def test_M3_only_versions_that_are_available(call):
    expected = (404, {"error": "Servable not found for request: Specific(m, 7)"})
    assert call("GET", f"{MODEL}/versions/7/metadata") == expected


def test_M1_lines_and_spaces(base_url):
    text = httpx.get(f"{base_url}{MODEL}/metadata", trust_env=False).text
    assert text.startswith(
        '{\n"model_spec":{\n "name": "m",\n "version": "123",\n "signature_name": ""\n}\n,\n'
        '"metadata": {"signature_def": {\n "signature_def": {\n  "'
    )
    assert text.endswith(" }\n}\n}\n}\n")


def test_M1_fields_are_in_the_order_of_their_numbers(base_url):
    """Also those without a value, which come last in Python's own form of a proto."""
    signatures = httpx.get(f"{base_url}{MODEL}/metadata", trust_env=False).json()["metadata"]["signature_def"]
    orders = {tuple(definition) for definition in signatures["signature_def"].values()}
    assert orders == {("inputs", "outputs", "method_name", "defaults")}
    infos = [info for definition in signatures["signature_def"].values() for info in definition["inputs"].values()]
    assert {tuple(info) for info in infos} == {("name", "dtype", "tensor_shape")}
    assert {tuple(info["tensor_shape"]) for info in infos} == {("dim", "unknown_rank")}
    [default] = signatures["signature_def"]["with_default"]["defaults"].values()
    assert list(default)[:4] == ["dtype", "tensor_shape", "version_number", "tensor_content"]
