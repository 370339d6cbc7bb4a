"""Prometheus fires each alert of serving/deploy/monitoring/rules.yaml for a server with that fault, once."""

import concurrent.futures
import contextlib
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator

import httpx
import pytest

from ctrpipe.serving.server import running_server
from tests.fuzz.servable import save
from tests.serving.deploy_files import flags, options
from tests.serving.prometheus_server import PROMETHEUS, prometheus, quick_rules, write_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed (Debian: apt-get install prometheus)"),
]
WINDOW = 4  # seconds in the place of 5 and 10 minutes
ROWS = 8192  # of a request: eight batches of batching.config, of which 4 run and 64 wait
FLOOD = 24  # requests at once
THREADS = "--rest_api_num_threads=16"  # as on the container's four cores: on two, 8 requests never fill the queue


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A server with compose's flags on four cores: its model's address, the folder of its versions, its Prometheus."""
    folder = tmp_path_factory.mktemp("alerts")
    save(folder / "ctr" / "1")
    with running_server(options([*flags()["compose"], THREADS], folder)) as server:
        target = urllib.parse.urlsplit(server.rest).netloc
        with prometheus(write_config(folder, target, quick_rules(folder, WINDOW))) as ask:
            yield f"{server.rest}/v1/models/ctr:predict", folder / "ctr", ask


def firing(ask) -> set[tuple[str, str]]:
    """The alerts that fire, each with the model, folder or server that it is about."""
    found = [alert["labels"] for alert in ask("alerts").get("alerts", []) if alert["state"] == "firing"]
    names = ("model_name", "model_path", "instance")
    return {(labels["alertname"], next(labels[name] for name in names if name in labels)) for labels in found}


def alerts_during(ask, work, expected: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Repeats some work until these alerts have fired, for a minute at most; returns all that have."""
    found, end = set(), time.monotonic() + 60
    while not expected <= found and time.monotonic() < end:
        work()
        found |= firing(ask)
    return found


def post(url: str, body: dict) -> int:
    return httpx.post(url, json=body, trust_env=False, timeout=60).status_code


def slow(seconds: float) -> dict:
    return {"signature_name": "slow", "inputs": [seconds] * ROWS}


@contextlib.contextmanager
def flood(url: str, body: dict) -> Iterator[set[int]]:
    """Keeps FLOOD requests pending at the server; yields the statuses seen so far."""
    statuses: set[int] = set()
    content, over = json.dumps(body).encode(), threading.Event()

    def ask_again():
        while not over.is_set():
            status = client.post(url, content=content).status_code
            statuses.add(status)
            if status == 503:
                over.wait(0.5)

    with (
        httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=FLOOD)) as client,
        concurrent.futures.ThreadPoolExecutor(FLOOD) as pool,
    ):
        clients = [pool.submit(ask_again) for _ in range(FLOOD)]
        try:
            yield statuses
        finally:
            over.set()
    for each in clients:
        each.result()


def test_a_server_that_answers_fires_none(watched):
    url, _, ask = watched
    end = time.monotonic() + 2 * WINDOW
    while time.monotonic() < end or not ask("query", query="up == 1").get("result"):
        assert post(url, {"inputs": [1.0]}) == 200
        assert firing(ask) == set()
        time.sleep(0.05)


def test_requests_that_do_not_fit_the_model(watched):
    url, _, ask = watched

    def wrong():
        assert post(url, {"inputs": ["a"]}) == 400
        time.sleep(0.05)

    expected = {("CtrServingBadRequests", "ctr")}
    assert alerts_during(ask, wrong, expected) == expected


def test_more_than_it_can_answer_is_slow_waits_for_a_batch_and_is_refused(watched):
    url, _, ask = watched
    server = urllib.parse.urlsplit(url).netloc
    expected = {("CtrServingSlow", "ctr"), ("CtrServingQueues", server), ("CtrServingErrors", "ctr")}
    with flood(url, slow(0.2)) as statuses:
        assert expected <= alerts_during(ask, lambda: time.sleep(0.2), expected)
    assert statuses == {200, 503}


def test_a_version_that_does_not_load(watched):
    _, versions, ask = watched
    (versions / "2").mkdir()
    (versions / "2" / "saved_model.pb").write_bytes(b"broken")
    expected = {("CtrServingLoadFailed", str(versions / "2"))}
    assert expected <= alerts_during(ask, lambda: time.sleep(0.2), expected)


def test_a_server_that_is_gone(tmp_path):
    save(tmp_path / "ctr" / "1")
    with running_server(options(flags()["compose"], tmp_path)) as server:
        target = urllib.parse.urlsplit(server.rest).netloc
    with prometheus(write_config(tmp_path, target, quick_rules(tmp_path, WINDOW))) as ask:
        expected = {("CtrServingDown", target)}
        assert alerts_during(ask, lambda: time.sleep(0.2), expected) == expected
