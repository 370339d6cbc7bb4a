"""The Prometheus page (X1-X5)."""

import http.client
import json
import re
import urllib.parse

import httpx
import numpy as np
import pytest
from tensorflow_serving.apis import inference_pb2, predict_pb2, regression_pb2

from tests.contract import servers
from tests.contract.conftest import MODEL, caller
from tests.contract.models import FOLDER, METRICS_PATH, NAME
from tests.contract.rpc import POLL, Rpc, add_version, examples, refusal, request, wait_for

_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')


@pytest.fixture
def page(base_url):
    """page() -> {(name, labels): value}, and the lines that say the types."""

    def page():
        answer = httpx.get(base_url + METRICS_PATH, trust_env=False)
        if servers.URL and answer.status_code == 404:
            pytest.skip("the page is off")
        assert answer.status_code == 200
        samples, types = {}, {}
        for line in answer.text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                types[name] = kind
            else:
                name, labels, value = _SAMPLE.fullmatch(line).groups()
                samples[name, labels] = float(value)
        return samples, types

    return page


def test_X1_the_page_is_plain_text_and_off_by_default(base_url, model_folder):
    netloc = urllib.parse.urlsplit(base_url).netloc
    connection = http.client.HTTPConnection(netloc)
    connection.request("GET", METRICS_PATH)
    assert connection.getresponse().headers["Content-Type"].startswith("text/plain")
    connection.close()
    with servers.start([f"--model_base_path={model_folder}", f"--model_name={NAME}"]) as addresses:
        call, client = caller(addresses.rest)
        with client:
            assert call("GET", METRICS_PATH)[0] == 404


def test_X1_the_page_takes_no_query(call):
    expected = f"Unexpected path: {METRICS_PATH}?a=1. Should be {METRICS_PATH}"
    assert call("GET", f"{METRICS_PATH}?a=1") == (400, expected)


def test_X2_names_labels_and_buckets(predict, page):
    predict({"instances": [1.0]})
    samples, types = page()
    assert types[":tensorflow:serving:request_count"] == "counter"
    assert types[":tensorflow:serving:request_latency"] == "histogram"
    labels = f'model_name="{NAME}",API="predict",entrypoint="REST"'
    name = ":tensorflow:serving:request_latency"
    buckets = [
        (found[1].rpartition("le=")[2].strip('"'), value)
        for found, value in samples.items()
        if found[0] == f"{name}_bucket" and found[1].startswith(labels)
    ]
    assert len(buckets) == 34 and buckets[-1][0] == "+Inf"
    assert [float(limit) for limit, _ in buckets[:-1]] == pytest.approx([10 * 1.8**k for k in range(33)], rel=1e-4)
    counts = [count for _, count in buckets]
    assert counts == sorted(counts) and counts[-1] == samples[f"{name}_count", labels] >= 1
    # microseconds: a request takes longer than 10 of them and less than a minute
    assert 10 < samples[f"{name}_sum", labels] / counts[-1] < 60e6


def test_X3_successes_have_a_latency_and_all_requests_a_status(predict, page):
    def counts(samples):
        found = {}
        for status in ("OK", "INVALID_ARGUMENT"):
            key = (":tensorflow:serving:request_count", f'model_name="{NAME}",status="{status}"')
            found[status] = samples.get(key, 0)
        key = (":tensorflow:serving:request_latency_count", f'model_name="{NAME}",API="predict",entrypoint="REST"')
        return found, samples.get(key, 0)

    before, timed_before = counts(page()[0])
    predict({"instances": [1.0]})
    predict({"instances": []})
    predict("{")
    after, timed_after = counts(page()[0])
    assert after["OK"] - before["OK"] == 1 and after["INVALID_ARGUMENT"] - before["INVALID_ARGUMENT"] == 2
    assert timed_after - timed_before == 1


@pytest.mark.parametrize(("method", "api"), [("predict", "Predict"), ("regress", "Regress"), ("classify", "Classify")])
def test_X2_time_in_tensorflow_is_part_of_the_request(call, page, method, api):
    bodies = {"predict": {"instances": [1.0]}}
    body = json.dumps(bodies.get(method, {"signature_name": method, "examples": [{"x": 0.5}]}))
    key = (":tensorflow:serving:runtime_latency_sum", f'model_name="{NAME}",API="{api}",runtime="TF1"')
    whole = (":tensorflow:serving:request_latency_sum", f'model_name="{NAME}",API="{method}",entrypoint="REST"')
    before = page()[0]
    assert call("POST", f"{MODEL}:{method}", body)[0] == 200
    after = page()[0]
    in_tensorflow, in_all = (after[name] - before.get(name, 0) for name in (key, whole))
    assert 0 < in_tensorflow < in_all


@pytest.fixture
def counted(page):
    """counted(call) -> what the call has added to TF Serving's counters and its histograms' counts.

    TensorFlow's own, as direct_session_runs, are on the page of a binary too.
    """

    def counted(call, *arguments, **options):
        before = page()[0]
        call(*arguments, **options)
        found = {}
        for (name, labels), value in page()[0].items():
            if not name.startswith(":tensorflow:serving:") or name.endswith(("_bucket", "_sum")):
                continue
            if value != before.get((name, labels), 0):
                found[name.rpartition(":")[2], labels] = value - before.get((name, labels), 0)
        return found

    return counted


def ok(api, entrypoint, model=NAME):
    """What a success adds."""
    return {
        ("request_count", f'model_name="{model}",status="OK"'): 1,
        ("request_latency_count", f'model_name="{model}",API="{api}",entrypoint="{entrypoint}"'): 1,
    }


def failed(status, model=NAME):
    return {("request_count", f'model_name="{model}",status="{status}"'): 1}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", MODEL, ok("", "REST")),
        ("GET", f"{MODEL}/metadata", ok("", "REST")),
        ("GET", f"{MODEL}/versions/7", failed("NOT_FOUND")),
        ("POST", f"{MODEL}/versions/{2**63}:predict", failed("INVALID_ARGUMENT")),
        ("GET", "/v1/nothing", failed("INVALID_ARGUMENT", "")),
        ("DELETE", MODEL, failed("INVALID_ARGUMENT", "")),
        ("OPTIONS", MODEL, failed("FAILED_PRECONDITION", "")),
        ("GET", "/other", {}),
        ("GET", METRICS_PATH, {}),
    ],
)
def test_X3_every_request_below_v1_is_counted(call, counted, method, path, expected):
    assert counted(call, method, path) == expected


@servers.ours_alone("TensorFlow Serving counts every name that it is asked for")
def test_a_model_that_is_not_served_has_no_series_of_its_own(call, counted):
    body = '{"instances": [1.0]}'
    assert counted(call, "POST", "/v1/models/invented:predict", body) == failed("NOT_FOUND", "")
    assert counted(call, "GET", "/v1/models/invented") == failed("NOT_FOUND", "")


def test_X3_a_preflight_is_a_success_of_no_model(call, counted):
    assert counted(call, "OPTIONS", MODEL, origin="http://x") == ok("", "REST", "")


@pytest.fixture
def rpc(addresses):
    if addresses.grpc is None:
        pytest.skip("no gRPC address was given")
    with Rpc(addresses.grpc) as rpc:
        yield rpc


def test_X3_of_grpc_the_methods_that_run_one_signature_are_counted(rpc, counted):
    runtime = {("runtime_latency_count", f'model_name="{NAME}",API="Predict",runtime="TF1"'): 1}
    assert counted(rpc.predict, {"x": np.float32([1])}) == ok("Predict", "GRPC") | runtime
    found = counted(refusal, rpc.prediction.Predict, request({"x": np.float32([1])}, signature="none"))
    assert found == failed("FAILED_PRECONDITION")
    assert counted(refusal, rpc.prediction.Predict, predict_pb2.PredictRequest()) == failed("INVALID_ARGUMENT", "")
    assert counted(rpc.states) == {}


def test_X3_only_multi_inference_counts_its_examples(rpc, counted):
    spec = {"name": NAME, "signature_name": "regress"}
    sent = examples({"x": 1.5}, {"x": 2.5}, {})
    one = regression_pb2.RegressionRequest(model_spec=spec, input=sent)
    runtime = {("runtime_latency_count", f'model_name="{NAME}",API="Regress",runtime="TF1"'): 1}
    assert counted(rpc.prediction.Regress, one) == ok("Regress", "GRPC") | runtime
    several = inference_pb2.MultiInferenceRequest(input=sent)
    several.tasks.add(model_spec=spec, method_name="tensorflow/serving/regress")
    found = counted(rpc.prediction.MultiInference, several)
    label = f'model="{NAME}"'
    assert found == {("request_example_count_total", label): 3, ("request_example_counts_count", label): 1}


def test_X5_loads_are_counted_by_folder(page, tmp_path, model_folder):
    base, monitoring = tmp_path / NAME, tmp_path / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    version = add_version(model_folder / FOLDER, base, 1)
    (version / "assets.extra").mkdir()
    flags = [f"--model_base_path={base}", f"--model_name={NAME}", f"--monitoring_config_file={monitoring}", POLL]
    with servers.start([*flags, "--max_num_load_retries=1", "--load_retry_interval_micros=0"]) as addresses:
        broken = add_version(version, base, "new")
        (broken / "saved_model.pb").write_bytes(b"no graph")
        broken.rename(base / "2")
        with Rpc(addresses.grpc) as rpc:
            wait_for(lambda: rpc.states(NAME).get(2) == "END")
        text = httpx.get(addresses.rest + METRICS_PATH, trust_env=False).text
    lines = [line for line in text.splitlines() if line.startswith(":tensorflow:cc:saved_model:load_attempt_count{")]
    assert lines == [
        f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{base}/1",status="success"}} 1',
        f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{base}/2",status="fail"}} 2',
    ]


@servers.ours_alone("what another server writes is not seen here")
def test_X4_requests_are_not_written_anywhere(predict, tmp_path, capfd):
    predict({"signature_name": "text", "inputs": ["a value of a user"]})
    captured = capfd.readouterr()
    assert "a value of a user" not in captured.out + captured.err
