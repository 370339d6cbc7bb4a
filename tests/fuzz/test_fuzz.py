"""A hundred or more fuzzed requests in every run of the tests; `make fuzz` sends many thousand."""

import pytest

from tests.fuzz.attacks import gzip_bombs
from tests.fuzz.connection import Fault, judge
from tests.fuzz.grpc_calls import grpc_round
from tests.fuzz.rest import rest_round
from tests.fuzz.rest_requests import Script, Sent, request, scripts
from tests.fuzz.rounds import run_round
from tests.fuzz.servable import NAME, record_warmup, save
from tests.fuzz.server import started

SEED = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    record_warmup(save(models / NAME / "1"))
    with started(models) as running:
        yield running


@pytest.mark.slow
def test_fuzzed_rest_requests_are_answered_and_leave_the_server_as_it_was(server):
    outcome = rest_round(server.rest, SEED, 50)
    assert not outcome.fault
    assert outcome.requests > 100 and outcome.answers[200] and outcome.answers[400]
    server.check()


@pytest.mark.slow
def test_fuzzed_grpc_calls_are_answered_and_leave_the_server_as_it_was(server):
    outcome = grpc_round(server.grpc, SEED, 100)
    assert not outcome.fault
    assert outcome.requests >= 100 and outcome.answers["OK"] and outcome.answers["INVALID_ARGUMENT"]
    server.check()


def test_gzip_bombs_are_refused_and_take_no_memory(server):
    before = server.usage()
    gzip_bombs(server.rest, count=8, at_once=4)
    assert server.usage().megabytes < before.megabytes + 40


@pytest.mark.slow
def test_a_fault_is_reported_with_the_smallest_example_that_shows_it():
    def judge_script(script: Script) -> list[int]:
        if any(b"instances" in sent.data for sent in script.sent):
            raise Fault("it says instances")
        return [200]

    fault = run_round(SEED, 200, scripts(), judge_script).fault
    # Hypothesis draws constants of the modules that this process has loaded, too: with some a second request stays.
    assert fault.startswith("it says instances") and 1 <= fault.count("bytes b'") <= 2
    assert fault.endswith("share=0.0)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (500, b'{"error": "x"}', None),
        (200, b"no JSON", None),
        (400, b'{"predictions": [1]}', None),
        (200, b'{"predictions": [1]}', {"predictions": [2]}),
        (400, b'{"error": "x"}', {"predictions": [2]}),
    ],
)
def test_a_wrong_answer_is_a_fault(status, body, expected):
    with pytest.raises(Fault):
        judge(Sent(request(b"{}"), expected), status, {"content-type": "application/json"}, body)
