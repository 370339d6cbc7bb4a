"""What TF Serving's own tests of REST's paths ask: http_rest_api_util_test.cc and http_rest_api_handler_test.cc.

The model has the name and the label of reserved characters with which those tests try the decoding of a path.
"""

import json

import httpx
import pytest

from tests.contract import reference_models, servers
from tests.contract.conftest import caller
from tests.contract.rpc import label, model_config

RESERVED = "!#$%&'()*+,/:;=?@[]"
ENCODED = "".join(f"%{ord(character):X}" for character in RESERVED)
MODEL = "/v1/models/test_model"
ODD = f"/v1/models/modelname{ENCODED}"
BODY = '{"instances": [1.0, 2.0]}'
ANSWER = (200, {"predictions": [2.5, 3.0]})


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Two models of half plus two, version 99; the labels are `latest` and one of reserved characters."""
    folder = tmp_path_factory.mktemp("rest")
    reference_models.save(reference_models.HalfPlusTwo(), folder / "m" / "99")
    labels = (label("latest", 99), label(f"latest{RESERVED}", 99))
    entries = {name: (folder / "m", *labels) for name in ("test_model", f"modelname{RESERVED}")}
    (folder / "models.config").write_text(model_config(**entries))
    flags = [f"--model_config_file={folder / 'models.config'}", "--allow_version_labels_for_unavailable_models"]
    with servers.start(flags) as addresses:
        yield addresses.rest


@pytest.fixture(scope="module")
def call(url):
    call, client = caller(url)
    with client:
        yield call


@pytest.mark.parametrize("model", [MODEL, ODD])
@pytest.mark.parametrize("choice", ["", "/versions/99", "/labels/latest", f"/labels/latest{ENCODED}"])
def test_R1_R2_R3_names_versions_and_labels(call, model, choice):
    """http_rest_api_util_test.cc: TestParseModelInfoForGet and TestParseModelInfoForPost, what is parsed."""
    assert call("POST", f"{model}{choice}:predict", BODY) == ANSWER
    status, answer = call("GET", model + choice)
    assert status == 200 and [row["version"] for row in answer["model_version_status"]] == ["99"]
    status, answer = call("GET", f"{model}{choice}/metadata")
    name = f"modelname{RESERVED}" if model == ODD else "test_model"
    assert status == 200 and answer["model_spec"] == {"name": name, "signature_name": "", "version": "99"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/foo"),
        ("GET", "/v1/models/foo:predict"),
        ("GET", "/v1/models/foo/version/50:predict"),
        ("GET", "/v1/models/debug/model_name"),
        ("POST", "/v1/foo"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/foo/version/50:predict"),
        ("POST", "/v1/models/foo/version/50:regress"),
        ("POST", "/v1/models/foo/versions/string:predict"),
        ("POST", "/v1/models/foo/versions/HELLO:regress"),
        ("POST", "/v1/models/foo/versions/some_label:regress"),
        ("POST", "/v1/models/foo/metadata"),
        ("POST", "/v1/models/foo/label/some_label:regress"),
        ("POST", "/v1/models/foo/versions/50/labels/some_label:regress"),
    ],
)
def test_R4_R13_what_is_malformed(call, method, path):
    """http_rest_api_util_test.cc: what both tests do not parse; http_rest_api_handler_test.cc: UnsupportedApiCalls."""
    assert call(method, path, "") == (400, {"error": f"Malformed request: {method} {path}"})


@pytest.mark.parametrize("method", ["predict", "regress"])
def test_R12_a_version_that_is_no_number_of_64_bits(call, method):
    """The same tests: "Failed to convert version", which does not reach the client."""
    assert call("POST", f"/v1/models/foo/versions/{2**64 - 1}:{method}", "") == (400, "")


def test_R5_R14_paths_of_the_handler(call):
    """http_rest_api_handler_test.cc: kPathRegex, and of UnsupportedApiCalls the list of models."""
    assert call("GET", "/v1/models") == (400, {"error": "Missing model name in request."})
    for path in ("/statuspage", "/index"):
        status, answer = call("GET", path)
        assert status == 404 and isinstance(answer, str)


@pytest.mark.parametrize("path", ["/v1/models/foo", "/v1/models/foo/versions/50", f"{MODEL}99", f"{MODEL}/versions/98"])
def test_P3_predict_model_name_version_errors(call, path):
    """http_rest_api_handler_test.cc: PredictModelNameVersionErrors."""
    assert call("POST", f"{path}:predict", '{ "instances": [1] }')[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (MODEL, "", "JSON Parse error: The document is empty"),
        (MODEL, "instances = [1, 2]", "JSON Parse error: Invalid value"),
        (MODEL, '{ "instances": ["x", "y"] }', "not of expected type: float"),
        (f"{MODEL}/labels/nonexistent", '{ "instances": ["x", "y"] }', "Unrecognized servable version label"),
        (MODEL, '{ "signature_name": 100 }', "'signature_name' key must be a string value."),
    ],
)
def test_J1_J2_J7_P4_P16_predict_request_errors(call, path, body, words):
    """http_rest_api_handler_test.cc: PredictRequestErrors."""
    status, answer = call("POST", f"{path}:predict", body)
    assert status == 400 and words in answer["error"]


@pytest.mark.parametrize("choice", ["", "/versions/99", "/labels/latest"])
@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [
        ("predict", {"instances": [[1.0, 2.0], [3.0, 4.0]]}, {"predictions": [[2.5, 3.0], [3.5, 4.0]]}),
        ("predict", {"instances": [1.0, 2.0]}, {"predictions": [2.5, 3.0]}),
        ("predict", {"signature_name": "serving_default", "instances": [3.0, 4.0]}, {"predictions": [3.5, 4.0]}),
        ("predict", {"signature_name": "serving_default", "inputs": [3.0, 4.0]}, {"outputs": [3.5, 4.0]}),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": 80.0}]}, {"results": [42]}),
        ("classify", {"signature_name": "classify_x_to_y", "examples": [{"x": 20.0}]}, {"results": [[["", 12]]]}),
        ("classify", {"signature_name": "classify_x_to_y", "examples": [{"x": 10.0}]}, {"results": [[["", 7]]]}),
    ],
)
def test_R1_R10_O1_C7_answers(url, choice, method, body, expected):
    """http_rest_api_handler_test.cc: Predict, Regress and Classify."""
    answer = httpx.post(f"{url}{MODEL}{choice}:{method}", content=json.dumps(body), trust_env=False)
    assert (answer.status_code, answer.json()) == (200, expected)
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("choice", ["", "/versions/99", "/labels/latest"])
def test_S1_S4_get_status(call, choice):
    """http_rest_api_handler_test.cc: GetStatus."""
    row = {"version": "99", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert call("GET", MODEL + choice) == (200, {"model_version_status": [row]})
