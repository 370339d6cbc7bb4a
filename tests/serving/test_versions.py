import shutil
import socket
import threading
import time

import httpx
import pytest

from serving.server import ServerOptions, running_server, serve
from tests.contract.conftest import save
from transforms.errors import InputError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source") / "1"
    save(folder)
    return folder


def states(url):
    answer = httpx.get(url + "/v1/models/m", trust_env=False).json()
    return {row["version"]: row["state"] for row in answer.get("model_version_status", [])}


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_a_new_version_takes_over_without_a_failed_request(model, tmp_path):
    shutil.copytree(model, tmp_path / "1")
    with running_server(ServerOptions(tmp_path, "m", file_system_poll_wait_seconds=0.1)) as server:
        failed, stop = [], threading.Event()

        def load():
            with httpx.Client(trust_env=False) as client:
                while not stop.is_set():
                    answer = client.post(server.rest + "/v1/models/m:predict", content='{"instances": [1.0]}')
                    if answer.status_code != 200:
                        failed.append(answer.text)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        shutil.copytree(model, tmp_path / ".2")
        (tmp_path / ".2").rename(tmp_path / "2")
        wait_for(lambda: states(server.rest) == {"2": "AVAILABLE", "1": "END"})
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed


def test_a_broken_version_never_replaces_a_good_one(model, tmp_path):
    shutil.copytree(model, tmp_path / "1")
    (tmp_path / "2" / "assets.extra").mkdir(parents=True)
    shutil.copytree(model, tmp_path / "2", dirs_exist_ok=True)
    warmup = tmp_path / "2" / "assets.extra" / "tf_serving_warmup_requests"
    warmup.write_bytes(b"this is no TFRecord file, whatever its name says")
    with running_server(ServerOptions(tmp_path, "m", file_system_poll_wait_seconds=0.1)) as server:
        assert states(server.rest) == {"2": "END"}
        shutil.rmtree(tmp_path / "2")
        wait_for(lambda: states(server.rest).get("1") == "AVAILABLE")
        shutil.copytree(model, tmp_path / "3", ignore=shutil.ignore_patterns("saved_model.pb"))
        wait_for(lambda: states(server.rest).get("3") == "END")
        assert states(server.rest)["1"] == "AVAILABLE"


def test_an_empty_base_path_waits_for_a_version(model, tmp_path):
    with running_server(ServerOptions(tmp_path, "m", file_system_poll_wait_seconds=0.1)) as server:
        assert states(server.rest) == {}
        shutil.copytree(model, tmp_path / ".5")
        (tmp_path / ".5").rename(tmp_path / "5")
        wait_for(lambda: states(server.rest) == {"5": "AVAILABLE"})


def test_a_port_in_use_and_a_missing_folder_are_one_line(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(InputError, match="choose another --rest_api_port"):
            serve(ServerOptions(tmp_path, "m", rest_api_port=other.getsockname()[1]))
    with pytest.raises(InputError, match="no such folder"):
        serve(ServerOptions(tmp_path / "absent", "m"))
