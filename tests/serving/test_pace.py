"""Short requests run on the event loop's thread; a slow signature delays no other request."""

import contextlib
import http.client
import json
import threading
import time
import urllib.parse

import pytest

from ctrpipe.serving.server import ServerOptions, pace, parse_flags, running_server
from ctrpipe.serving.server.http_request import Request
from ctrpipe.serving.server.metrics import METRICS_PATH, Metrics
from ctrpipe.serving.server.pace import FIRST_RUNS, SHORT_SECONDS, Pace, Paces
from ctrpipe.serving.server.rest import RestApi
from ctrpipe.serving.server.served import ServedVersion
from tests.contract import models

MOST_ASKED = 3000


def paced(seconds, size=100, runs=FIRST_RUNS):
    pace = Pace()
    for _ in range(runs):
        pace.record(size, seconds)
    return pace


def test_the_first_runs_are_not_short_whatever_they_take():
    assert not paced(1e-6, runs=FIRST_RUNS - 1).is_short(100)
    assert paced(1e-6).is_short(100)


def test_a_larger_request_takes_longer():
    pace = paced(SHORT_SECONDS / 10)
    assert pace.is_short(900) and not pace.is_short(1100)
    assert pace.is_short(1) and not paced(2 * SHORT_SECONDS).is_short(1)


def test_a_slow_run_counts_at_once_and_is_forgotten_by_and_by():
    pace = paced(SHORT_SECONDS / 10)
    pace.record(100, 10 * SHORT_SECONDS)
    slow = 0
    while not pace.is_short(100):
        pace.record(100, SHORT_SECONDS / 10)
        slow += 1
    assert 10 < slow < 50


def test_a_run_that_was_disturbed_counts_with_the_next_one():
    pace = paced(SHORT_SECONDS / 10)
    pace.record(100, 2 * SHORT_SECONDS)
    assert pace.is_short(100)
    pace.record(100, 2 * SHORT_SECONDS)
    assert not pace.is_short(100)


def test_runs_that_are_often_slow_are_not_taken_for_disturbed_ones():
    pace = paced(SHORT_SECONDS / 10)
    for _ in range(20):
        pace.record(100, SHORT_SECONDS / 10)
        pace.record(100, 3 * SHORT_SECONDS)
    assert not pace.is_short(100)


class Servable:
    """A loaded version."""


def test_kinds_of_requests_have_paces_of_their_own():
    paces, servable = Paces(), Servable()
    for kind, seconds in (("a", 1e-4), ("b", 2 * SHORT_SECONDS)):
        for _ in range(FIRST_RUNS):
            paces.record(kind, servable, 100, seconds)
    assert paces.is_short("a", 100) and not paces.is_short("b", 100) and not paces.is_short("c", 100)


def test_another_version_starts_anew():
    paces, first, second = Paces(), Servable(), Servable()
    for _ in range(FIRST_RUNS):
        paces.record("a", first, 100, 1e-4)
    paces.record("a", second, 100, 1e-4)
    assert not paces.is_short("a", 100)


def test_kinds_that_clients_make_up_take_no_memory(monkeypatch):
    monkeypatch.setattr(pace, "_MOST_KINDS", 10)
    paces, servable = Paces(), Servable()
    for number in range(100):
        paces.record(number, servable, 100, 1e-4)
    assert len(paces._paces) <= 10


@pytest.fixture(scope="module")
def base_path(tmp_path_factory):
    base = tmp_path_factory.mktemp("pace") / models.NAME
    models.save(base / "1")
    return base


@contextlib.contextmanager
def serving(base_path, *flags):
    """ask(signature, columnar inputs) -> the answer, on one connection; and HOST, PORT for more."""
    options = parse_flags([f"--model_base_path={base_path}", f"--model_name={models.NAME}", *flags])
    with running_server(options) as addresses:
        place = urllib.parse.urlsplit(addresses.rest)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)

        def ask(signature, inputs):
            body = json.dumps({"signature_name": signature, "inputs": inputs})
            connection.request("POST", f"/v1/models/{models.NAME}:predict", body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        with contextlib.closing(connection):
            yield ask, (place.hostname, place.port)


@pytest.fixture
def threads(monkeypatch):
    """For each run of a model whether it was in a thread of the pool."""
    pooled, run = [], ServedVersion.run

    def noted(self, *arguments, **options):
        pooled.append(threading.current_thread().name.startswith("rest_"))
        return run(self, *arguments, **options)

    monkeypatch.setattr(ServedVersion, "run", noted)
    return pooled


@pytest.mark.slow
def test_answers_are_the_same_on_the_loops_thread_and_in_another(base_path, threads):
    with serving(base_path) as (ask, _):
        right = [ask("half_plus_two", [1.0, 2.0]) for _ in range(FIRST_RUNS)]
        # A busy machine's slow answers are to be forgotten first.
        while all(threads) and len(right) < MOST_ASKED:
            right.append(ask("half_plus_two", [1.0, 2.0]))
        on_the_loops_thread = not threads[-1]
        wrong = [ask("failing", [-1.0]) for _ in range(2)] + [ask("half_plus_two", ["a"]) for _ in range(2)]
    assert right == [(200, {"outputs": [2.5, 3.0]})] * len(right)
    assert all(threads[:FIRST_RUNS]) and on_the_loops_thread
    assert {status for status, _ in wrong} == {400} and wrong[2] == wrong[3]


def test_requests_are_counted_once(base_path, tmp_path):
    file = tmp_path / "monitoring"
    file.write_text("prometheus_config { enable: true }")
    with serving(base_path, f"--monitoring_config_file={file}") as (ask, place):
        for _ in range(FIRST_RUNS + 5):
            ask("half_plus_two", [1.0])
        with contextlib.closing(http.client.HTTPConnection(*place, timeout=30)) as other:
            other.request("GET", "/monitoring/prometheus/metrics")
            page = other.getresponse().read().decode()
    [line] = [line for line in page.splitlines() if "request_count{" in line]
    assert line == f':tensorflow:serving:request_count{{model_name="{models.NAME}",status="OK"}} {FIRST_RUNS + 5}'


@pytest.mark.parametrize("before", [0.0, 2 * SHORT_SECONDS])
@pytest.mark.slow
def test_the_status_is_told_while_a_slow_signature_runs(base_path, before):
    with (
        serving(base_path) as (ask, place),
        contextlib.closing(http.client.HTTPConnection(*place, timeout=30)) as other,
    ):
        for _ in range(FIRST_RUNS + 5):
            ask("slow", [before])
        ask("slow", [5 * SHORT_SECONDS])  # what was short until now
        slow = threading.Thread(target=ask, args=("slow", [1.5]))
        slow.start()
        time.sleep(0.2)
        began = time.perf_counter()
        other.request("GET", f"/v1/models/{models.NAME}")
        assert other.getresponse().status == 200
        assert slow.is_alive() and time.perf_counter() - began < 1
        slow.join()


def test_a_slow_page_of_the_metrics_leaves_the_event_loop(tmp_path, monkeypatch):
    file = tmp_path / "monitoring"
    file.write_text("prometheus_config { enable: true }")
    metrics, options = Metrics(), ServerOptions(tmp_path, monitoring_config_file=file)
    api = RestApi(None, options, metrics)
    page = Request("GET", METRICS_PATH, {}, b"")
    assert not api.is_short(page)
    monkeypatch.setattr(metrics, "page", bytes)
    for _ in range(FIRST_RUNS):
        assert api.answer(page).status == 200
    assert api.is_short(page)
    monkeypatch.setattr(metrics, "page", lambda: bytes(int(time.sleep(5 * SHORT_SECONDS) or 1)))
    assert api.answer(page).status == 200 and not api.is_short(page)


def test_a_signature_that_waits_for_a_batch_never_runs_on_the_loops_thread(base_path, tmp_path, threads):
    file = tmp_path / "batching"
    file.write_text("batch_timeout_micros { value: 100 }")
    with serving(base_path, "--enable_batching", f"--batching_parameters_file={file}") as (ask, _):
        for _ in range(3 * FIRST_RUNS):
            assert ask("half_plus_two", [1.0]) == (200, {"outputs": [2.5]})
    assert all(threads)
