"""A new version while clients ask, and versions that must never be asked."""

import shutil
import time

import httpx
import pytest

from tests.fuzz.servable import NAME, record_warmup, save
from tests.fuzz.server import started, wait_for_version
from tests.fuzz.swap_load import NOISE_SECONDS, SLOWER, SwapLoad

BEFORE_SECONDS = 0.5


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


def _push(source, models, number):
    shutil.copytree(source, models / NAME / f".{number}")
    (models / NAME / f".{number}").rename(models / NAME / str(number))


def _states(server):
    rows = httpx.get(f"{server.url}/v1/models/{NAME}", trust_env=False).json()["model_version_status"]
    return {row["version"]: row["state"] for row in rows}


@pytest.mark.slow
def test_a_swap_under_load_fails_no_request_and_delays_few(versions, models, capsys):
    with started(models, ["--file_system_poll_wait_seconds=0.2"]) as server, SwapLoad(server) as load:
        time.sleep(0.2)
        began = time.perf_counter()
        time.sleep(BEFORE_SECONDS)
        pushed = time.perf_counter()
        _push(versions / "2", models, 2)
        wait_for_version(server, 2)
        time.sleep(0.3)  # the old version goes
        ended = time.perf_counter()
        assert _states(server) == {"2": "AVAILABLE", "1": "END"}
    before, during = load.seconds(began, pushed, 99), load.seconds(pushed, ended, 99)
    with capsys.disabled():
        print(
            f"\np99 before the swap {before * 1e3:.1f} ms, during it {during * 1e3:.1f} ms, {len(load.answers)} answers"
        )
    assert {status for _, _, status, _ in load.answers} == {200}
    assert {tuple(found) for *_, found in load.answers} == {(3.0, 4.0), (4.0, 5.0)}
    assert during <= SLOWER * max(before, NOISE_SECONDS)


@pytest.mark.large(like="tests/contract/test_versions.py::test_V3_a_version_that_cannot_load_takes_no_other_one_down")
@pytest.mark.slow
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
    with started(models, flags) as server, SwapLoad(server) as load:
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
