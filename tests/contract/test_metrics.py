"""The Prometheus page (X1-X4)."""

import http.client
import json
import re
import urllib.parse

import httpx
import pytest

from tests.contract import servers
from tests.contract.conftest import MODEL, caller
from tests.contract.models import METRICS_PATH, NAME

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


def test_X3_examples_are_counted(call, page):
    body = json.dumps({"signature_name": "regress", "examples": [{"x": 1.5}] * 3})
    key = (":tensorflow:serving:request_example_count_total", f'model="{NAME}"')
    before = page()[0].get(key, 0)
    assert call("POST", f"{MODEL}:regress", body)[0] == 200
    assert page()[0][key] - before == 3


def test_X4_requests_are_not_written_anywhere(predict, tmp_path, capfd):
    if not servers.IS_OURS:
        pytest.skip("what another server writes is not seen here")
    predict({"signature_name": "text", "inputs": ["a value of a user"]})
    captured = capfd.readouterr()
    assert "a value of a user" not in captured.out + captured.err
