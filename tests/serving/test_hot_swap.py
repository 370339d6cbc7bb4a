"""A new version while clients ask, and versions that must never be asked."""

import contextlib
import http.client
import json
import shutil
import threading
import time

import httpx
import numpy as np
import pytest

from tests.fuzz.servable import NAME, record_warmup, save
from tests.fuzz.server import started, wait_for_version

CLIENTS = 8
BEFORE_SECONDS = 2.0
SLOWER = 5
# A clock tick of a busy machine is no part of the swap.
NOISE_SECONDS = 0.005


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Version 1 answers x / 2 + 2, version 2 x / 2 + 3; both are warmed up."""
    folder = tmp_path_factory.mktemp("versions")
    for number, bias in ((1, 2.0), (2, 3.0)):
        record_warmup(save(folder / str(number), bias))
    return folder


@pytest.fixture
def models(versions, tmp_path):
    shutil.copytree(versions / "1", tmp_path / NAME / "1")
    return tmp_path


class _Load:
    """Clients that ask without a pause; every answer with the time at which it was asked for."""

    def __init__(self, server):
        self.answers: list[tuple[float, float, int, list[float]]] = []  # asked at, seconds, status, predictions
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def _ask(self):
        with contextlib.closing(http.client.HTTPConnection(*self._server.rest, timeout=30)) as connection:
            while not self._stop.is_set():
                asked = time.perf_counter()
                try:
                    connection.request("POST", f"/v1/models/{NAME}:predict", b'{"instances": [2, 4]}')
                    response = connection.getresponse()
                    status, found = response.status, json.loads(response.read()).get("predictions")
                except (OSError, http.client.HTTPException) as error:
                    status, found = 0, [str(error)]
                self.answers.append((asked, time.perf_counter() - asked, status, found))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def p99(self, since, until):
        return float(np.percentile([seconds for asked, seconds, *_ in self.answers if since <= asked < until], 99))


def _push(source, models, number):
    shutil.copytree(source, models / NAME / f".{number}")
    (models / NAME / f".{number}").rename(models / NAME / str(number))


def _states(server):
    rows = httpx.get(f"{server.url}/v1/models/{NAME}", trust_env=False).json()["model_version_status"]
    return {row["version"]: row["state"] for row in rows}


def test_a_swap_under_load_fails_no_request_and_delays_few(versions, models, capsys):
    with started(models, ["--file_system_poll_wait_seconds=0.2"]) as server, _Load(server) as load:
        time.sleep(0.5)
        began = time.perf_counter()
        time.sleep(BEFORE_SECONDS)
        pushed = time.perf_counter()
        _push(versions / "2", models, 2)
        wait_for_version(server, 2)
        time.sleep(1)  # the old version goes
        ended = time.perf_counter()
        assert _states(server) == {"2": "AVAILABLE", "1": "END"}
    before, during = load.p99(began, pushed), load.p99(pushed, ended)
    with capsys.disabled():
        print(
            f"\np99 before the swap {before * 1e3:.1f} ms, during it {during * 1e3:.1f} ms, {len(load.answers)} answers"
        )
    assert {status for _, _, status, _ in load.answers} == {200}
    assert {tuple(found) for *_, found in load.answers} == {(3.0, 4.0), (4.0, 5.0)}
    assert during <= SLOWER * max(before, NOISE_SECONDS)


@pytest.mark.parametrize("fault", ["no graph", "no variables", "wrong warm-up", "no TFRecord"])
def test_a_version_that_does_not_load_never_becomes_available(versions, models, tmp_path, fault):
    broken = shutil.copytree(versions / "2", tmp_path / "broken")
    if fault == "no graph":
        (broken / "saved_model.pb").write_bytes(b"\x0a\x00no graph")
    elif fault == "no variables":
        shutil.rmtree(broken / "variables")
    elif fault == "wrong warm-up":
        record_warmup(broken, input_name="absent")
    else:
        (broken / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"no TFRecord, " * 10)
    flags = ["--file_system_poll_wait_seconds=0.2", "--max_num_load_retries=1", "--load_retry_interval_micros=100000"]
    with started(models, flags) as server, _Load(server) as load:
        _push(broken, models, 2)
        end = time.monotonic() + 30
        while _states(server).get("2") != "END":
            assert time.monotonic() < end, "it is still being loaded"
            time.sleep(0.05)
        time.sleep(0.5)
        rows = httpx.get(f"{server.url}/v1/models/{NAME}/versions/2", trust_env=False).json()["model_version_status"]
        assert rows[0]["status"]["error_code"] != "OK" and rows[0]["status"]["error_message"]
        assert _states(server)["1"] == "AVAILABLE"
        asked = httpx.post(f"{server.url}/v1/models/{NAME}/versions/2:predict", content="{}", trust_env=False)
        assert asked.status_code in (400, 404)
    assert {(status, tuple(found)) for _, _, status, found in load.answers} == {(200, (3.0, 4.0))}
