"""Which versions are served, and how one takes over from another (V1-V5, V10)."""

import contextlib
import shutil
import threading
import time

import grpc
import httpx
import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from tests.contract import models, servers
from tests.contract.rpc import POLL, Rpc, add_version, model_config, wait_for

SPECIFIC = "model_version_policy { specific { versions: 1 versions: 3 } }"
LATEST_TWO = "model_version_policy { latest { num_versions: 2 } }"
ALL = "model_version_policy { all {} }"
LOOKS = 0.5 if servers.IS_OURS else 3  # seconds in which the folder is looked at several times


@pytest.fixture
def source(model_folder):
    return model_folder / models.FOLDER


@contextlib.contextmanager
def serving(base, *flags):
    flags = [f"--model_base_path={base}", f"--model_name={models.NAME}", POLL, *flags]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        yield rpc, addresses


def break_version(base, number):
    """A version that cannot load."""
    (base / str(number)).mkdir()
    (base / str(number) / "saved_model.pb").write_bytes(b"no SavedModel")


def test_V1_names_are_numbers_of_64_bits_and_others_are_skipped(source, tmp_path):
    add_version(source, tmp_path, "0000012")
    for name in ("13x", "-1", str(2**63), "1.5", "v14", "1_3"):
        (tmp_path / name).mkdir()
    with serving(tmp_path) as (rpc, _):
        assert rpc.states() == {12: "AVAILABLE"}
        assert rpc.answering(version=12) == 12
        add_version(source, tmp_path, "+13")  # absl::SimpleAtoi takes a sign
        wait_for(lambda: rpc.answering() == 13)


def test_V1_a_negative_number_is_a_version(source, tmp_path):
    add_version(source, tmp_path, "-3")
    with serving(tmp_path) as (rpc, _):
        assert rpc.answering(version=-3) == -3


def test_V1_of_two_folders_of_one_number_one_is_served(source, tmp_path):
    add_version(source, tmp_path, "7")
    add_version(source, tmp_path, "007")
    with serving(tmp_path) as (rpc, _):
        assert rpc.states() == {7: "AVAILABLE"}


@pytest.mark.parametrize(("policy", "served"), [("", {3}), (LATEST_TWO, {2, 3}), (SPECIFIC, {1, 3}), (ALL, {1, 2, 3})])
def test_V2_policies(source, tmp_path, policy, served):
    base = tmp_path / "base"
    for number in (1, 2, 3):
        add_version(source, base, number)
    config = tmp_path / "models.config"
    config.write_text(model_config(m=(base, policy)))
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        wait_for(lambda: rpc.states() == dict.fromkeys(served, "AVAILABLE"))
        assert {version for version in (1, 2, 3) if rpc.answering(version=version) == version} == served
        assert rpc.answering() == 3


@pytest.mark.parametrize(("seconds", "found"), [(0, {1}), (1, {1, 2})])
def test_V2_the_file_system_is_polled_unless_told_otherwise(source, tmp_path, seconds, found):
    add_version(source, tmp_path, 1)
    with serving(tmp_path, f"--file_system_poll_wait_seconds={seconds}") as (rpc, _):
        add_version(source, tmp_path, 2)
        if seconds:
            wait_for(lambda: rpc.answering() == 2)
        else:
            time.sleep(0.5)
        assert set(rpc.states()) == found


def test_V3_a_new_version_takes_over_without_a_failed_request(source, tmp_path):
    add_version(source, tmp_path, 1)
    with serving(tmp_path) as (rpc, addresses):
        failed, stop = [], threading.Event()

        def load():
            with httpx.Client(trust_env=False) as client:
                while not stop.is_set():
                    answer = client.post(addresses.rest + "/v1/models/m:predict", content='{"instances": [1.0]}')
                    if answer.status_code != 200:
                        failed.append(answer.text)

        def call():
            with Rpc(addresses.grpc) as other:
                while not stop.is_set():
                    if not isinstance(found := other.answering(), int):
                        failed.append(found)

        threads = [threading.Thread(target=work) for work in (load, load, call, call)]
        for thread in threads:
            thread.start()
        add_version(source, tmp_path, 2)
        wait_for(lambda: rpc.states() == {2: "AVAILABLE", 1: "END"})
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed


@pytest.mark.slow
def test_V3_a_version_that_goes_answers_the_requests_that_it_has(source, tmp_path):
    """Whenever version 2 has loaded, one of two requests that take turns has more than a second to go."""
    add_version(source, tmp_path, 1)
    with serving(tmp_path) as (rpc, addresses):
        answers: list[int] = []
        refused: list[str] = []

        def ask(seconds_later):
            time.sleep(seconds_later)
            with Rpc(addresses.grpc) as other:
                while not refused:
                    try:
                        _, spec = other.predict({"seconds": np.float32([3])}, signature="slow", version=1)
                        answers.append(spec.version.value)
                    except grpc.RpcError as error:
                        refused.append(error.code().name)

        threads = [threading.Thread(target=ask, args=(later,)) for later in (0, 1.5)]
        for thread in threads:
            thread.start()
        time.sleep(1.8)
        add_version(source, tmp_path, 2)
        wait_for(lambda: rpc.states() == {2: "AVAILABLE", 1: "UNLOADING"})
        before = len(answers)
        assert rpc.answering(version=1) == ("NOT_FOUND", "Servable not found for request: Specific(m, 1)")
        for thread in threads:
            thread.join()
        assert len(answers) > before and set(answers) == {1} and set(refused) == {"NOT_FOUND"}
        wait_for(lambda: rpc.states() == {2: "AVAILABLE", 1: "END"})


def test_V3_a_version_that_cannot_load_takes_no_other_one_down(source, tmp_path):
    add_version(source, tmp_path, 1)
    with serving(tmp_path, "--max_num_load_retries=0") as (rpc, _):
        break_version(tmp_path, 2)
        wait_for(lambda: rpc.states() == {1: "AVAILABLE", 2: "END"})
        assert rpc.answering() == 1
        add_version(source, tmp_path, 3)
        wait_for(lambda: rpc.states() == {1: "END", 2: "END", 3: "AVAILABLE"})


def test_V3_the_one_before_comes_back_where_the_highest_is_deleted(source, tmp_path):
    for number in (1, 2):
        add_version(source, tmp_path, number)
    with serving(tmp_path) as (rpc, _):
        assert rpc.answering() == 2
        shutil.rmtree(tmp_path / "2")
        wait_for(lambda: rpc.states() == {1: "AVAILABLE", 2: "END"})
        assert rpc.answering() == 1
        add_version(source, tmp_path, 2)
        wait_for(lambda: rpc.answering() == 2)


@pytest.mark.parametrize("there", [True, False])
def test_V4_V12_a_base_path_without_a_version_is_waited_for(source, tmp_path, there):
    """load_servables_fast.cc waits for the first version of each model; only then do the ports open (server.cc)."""
    base = tmp_path / "base"
    if there:
        base.mkdir()

    def push():
        pushed.append(add_version(source, base, 5))

    pushed = []
    threading.Timer(1, push).start()
    with serving(base) as (rpc, _):
        assert pushed and rpc.answering() == 5


@servers.ours_alone("a binary ends with its own words")
@pytest.mark.parametrize("retries", [0, 2])
def test_V12_a_first_load_that_fails_for_good_ends_the_server(tmp_path, retries):
    """server_core_test.cc, ErroringModel."""
    break_version(tmp_path, 7)
    flags = [f"--max_num_load_retries={retries}", "--load_retry_interval_micros=-1"]
    with pytest.raises(InputError) as error, serving(tmp_path, *flags):
        pass
    assert str(error.value).startswith("1 servable(s) did not become available: {{{name: m version: 7} due to error: ")
    assert "\n" not in str(error.value)


@servers.ours_alone("a binary ends with its own words")
def test_V12_one_model_that_fails_ends_the_server_for_all(source, tmp_path):
    add_version(source, tmp_path / "good", 1)
    (tmp_path / "bad").mkdir()
    break_version(tmp_path / "bad", 2)
    config = tmp_path / "models.config"
    config.write_text(model_config(good=(tmp_path / "good",), bad=(tmp_path / "bad",)))
    with pytest.raises(InputError, match=r"1 servable\(s\) .*name: bad version: 2"):
        with servers.start([f"--model_config_file={config}", "--max_num_load_retries=0"]):
            pass


def test_V4_a_base_path_out_of_reach_holds_up_all_models(source, tmp_path):
    """PollFileSystemForConfig returns at the first base path that is not there."""
    for name in ("a", "b"):
        add_version(source, tmp_path / name, 1)
    config = tmp_path / "models.config"
    config.write_text(model_config(a=(tmp_path / "a",), b=(tmp_path / "b",)))
    with servers.start([f"--model_config_file={config}", POLL]) as addresses, Rpc(addresses.grpc) as rpc:
        (tmp_path / "b").rename(tmp_path / "elsewhere")
        add_version(source, tmp_path / "a", 2)
        time.sleep(0.5 if servers.IS_OURS else 2)
        assert rpc.answering("a") == 1
        (tmp_path / "elsewhere").rename(tmp_path / "b")
        wait_for(lambda: rpc.answering("a") == 2)


def test_V4_a_base_path_out_of_reach_takes_no_version_down(source, tmp_path):
    base = tmp_path / "base"
    add_version(source, base, 1)
    with serving(base) as (rpc, _):
        base.rename(tmp_path / "elsewhere")
        time.sleep(0.5 if servers.IS_OURS else 2)
        assert rpc.answering() == 1 and rpc.states() == {1: "AVAILABLE"}
        (tmp_path / "elsewhere").rename(base)
        add_version(source, base, 2)
        wait_for(lambda: rpc.answering() == 2)


def test_V5_a_load_is_tried_again_and_a_repaired_version_becomes_available(source, tmp_path):
    add_version(source, tmp_path, 1)
    with serving(tmp_path, "--max_num_load_retries=1000", "--load_retry_interval_micros=100000") as (rpc, _):
        break_version(tmp_path, 2)
        wait_for(lambda: rpc.states() == {1: "AVAILABLE", 2: "LOADING"})
        shutil.copy(source / "saved_model.pb", tmp_path / "2" / "saved_model.pb")
        shutil.copytree(source / "variables", tmp_path / "2" / "variables")
        wait_for(lambda: rpc.states() == {1: "END", 2: "AVAILABLE"})


def test_V5_after_the_last_try_the_version_ends(tmp_path, source):
    add_version(source, tmp_path, 1)
    with serving(tmp_path, "--max_num_load_retries=2", "--load_retry_interval_micros=-1") as (rpc, addresses):
        break_version(tmp_path, 2)
        wait_for(lambda: rpc.states() == {1: "AVAILABLE", 2: "END"})
        found = httpx.get(f"{addresses.rest}/v1/models/m/versions/2", trust_env=False).json()
        [row] = found["model_version_status"]
        assert row["status"]["error_code"] not in ("OK", "") and row["status"]["error_message"]
        # While version 1 serves in its place, version 2 is the wanted one, whatever comes under its number.
        shutil.rmtree(tmp_path / "2")
        time.sleep(LOOKS)
        assert rpc.answering() == 1
        add_version(source, tmp_path, 2)
        time.sleep(LOOKS)
        assert rpc.states() == {1: "AVAILABLE", 2: "END"}
        add_version(source, tmp_path, 3)
        wait_for(lambda: rpc.states() == {1: "END", 2: "END", 3: "AVAILABLE"})


def test_V5_once_it_is_not_wanted_a_version_that_failed_is_tried_again(tmp_path, source):
    add_version(source, tmp_path, 1)
    with serving(tmp_path, "--max_num_load_retries=0") as (rpc, _):
        break_version(tmp_path, 2)
        wait_for(lambda: rpc.states() == {1: "AVAILABLE", 2: "END"})
        shutil.rmtree(tmp_path / "1")
        shutil.rmtree(tmp_path / "2")
        wait_for(lambda: rpc.states() == {1: "END", 2: "END"})
        add_version(source, tmp_path, 2)
        wait_for(lambda: rpc.states() == {1: "END", 2: "AVAILABLE"})


def test_V3_of_several_versions_that_go_the_highest_stays_until_a_new_one_serves(tmp_path, source):
    add_version(source, tmp_path / "base", 1)
    add_version(source, tmp_path / "base", 2)
    config = tmp_path / "models.config"
    config.write_text(model_config(m=(tmp_path / "base", ALL)))
    flags = [f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1", POLL]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        wait_for(lambda: rpc.states() == {1: "AVAILABLE", 2: "AVAILABLE"})
        # In a folder of its own: a load that has begun, as this one is tried again in a minute, holds up the other
        # actions of TF Serving.
        (tmp_path / "other").mkdir()
        break_version(tmp_path / "other", 3)
        config.write_text(model_config(m=(tmp_path / "other",)))
        wait_for(lambda: rpc.states() == {1: "END", 2: "AVAILABLE", 3: "LOADING"})
        assert rpc.answering() == 2


def test_V10_the_folders_of_the_pusher_are_servable(source, tmp_path):
    add_version(source, tmp_path, "1795262400")
    with serving(tmp_path) as (rpc, _):
        assert rpc.answering() == 1795262400
