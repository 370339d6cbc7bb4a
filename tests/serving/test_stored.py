"""Models in stores: pushed whole, fetched, and followed by a server that serves on while the store is away."""

import contextlib
import errno
import os
import shutil
import threading
import time

import httpx
import numpy as np
import pytest

from benchmarks.harness.store_servers import Rule, faulty
from ctrpipe.common import store_folders, store_names, stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.store_folders import MANIFEST, one_writer
from ctrpipe.common.stores import StoreError
from ctrpipe.serving import stored
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.server.options import parse_flags, with_found_folder
from ctrpipe.serving.server.run import running_server
from ctrpipe.serving.server.versions import Policy
from ctrpipe.serving.stored import (
    Mirror,
    fetch_model,
    fetch_newest,
    is_awaited,
    newest_stored,
    push_version,
    split_version,
    versions_at,
)
from tests.contract import models
from tests.e2e.small_run import call, one_line

pytestmark = pytest.mark.slow  # a server starts in seconds


@pytest.fixture(autouse=True)
def impatient(monkeypatch, tmp_path):
    monkeypatch.setenv(stores.RETRY_SECONDS, "1")
    monkeypatch.setenv(store_names.CACHE, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Versions 1 and 2 of a model."""
    base = tmp_path_factory.mktemp("saved")
    models.save(base / "1")
    shutil.copytree(base / "1", base / "2")
    return base


def small(base, number, text="graph"):
    """A folder that stands for a version where nothing loads it."""
    (base / str(number)).mkdir(parents=True)
    (base / str(number) / "saved_model.pb").write_text(text)
    return base / str(number)


@contextlib.contextmanager
def served(url):
    flags = [f"--model_base_path={url}", "--model_name=m", "--file_system_poll_wait_seconds=0.2"]
    with running_server(parse_flags(flags)) as addresses:
        yield f"{addresses.rest}/v1/models/m"


@pytest.mark.large(like="tests/serving/test_stored.py::test_a_server_follows_a_bucket_and_serves_on_while_it_is_away")
def test_a_start_from_the_copies_answers_over_both_protocols_and_swaps_when_the_store_is_back(s3, saved, monkeypatch):
    url = f"{s3.url}/models/m"
    flags = [f"--model_base_path={url}", "--model_name=m", "--file_system_poll_wait_seconds=0.2"]
    with faulty(s3.port, Rule()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        push_version(saved / "1", url)
        with served(url) as address:
            expected = ask(address).json()
        push_version(saved / "2", url)
        proxy.follow(Rule("error"))
        with running_server(parse_flags(flags)) as addresses, GrpcClient(addresses.grpc, "m") as grpc:
            address = f"{addresses.rest}/v1/models/m"
            answers, ended = [], threading.Event()

            def load():
                while not ended.is_set():
                    answers.append((ask(address).json(), grpc.ask({"x": np.float32([1])}, "serving_default").version))

            thread = threading.Thread(target=load)
            thread.start()
            wait_for(lambda: len(answers) > 20)
            assert {version for _, version in answers} == {1}  # the store is away
            proxy.follow(Rule())
            wait_for(lambda: answers[-1][1] == 2)
            ended.set()
            thread.join()
            assert all(answer == expected for answer, _ in answers)


def version_of(address):
    states = httpx.get(address, trust_env=False).json()["model_version_status"]
    return [int(each["version"]) for each in states if each["state"] == "AVAILABLE"]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def ask(address):
    body = {"signature_name": "serving_default", "instances": [{"x": 1.0}]}
    return httpx.post(f"{address}:predict", json=body, trust_env=False)


def test_a_server_follows_a_bucket_and_serves_on_while_it_is_away(s3, saved, monkeypatch):
    url = f"{s3.url}/models/m"
    with faulty(s3.port, Rule()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        push_version(saved / "1", url)
        with served(url) as address:
            assert version_of(address) == [1]
            expected = ask(address).json()
            assert ask(address).status_code == 200
            answers, ended = [], threading.Event()

            def load():
                with httpx.Client(trust_env=False) as client:
                    body = {"signature_name": "serving_default", "instances": [{"x": 1.0}]}
                    while not ended.is_set():
                        answers.append(client.post(f"{address}:predict", json=body).status_code)

            threads = [threading.Thread(target=load) for _ in range(2)]
            for thread in threads:
                thread.start()
            proxy.follow(Rule("slow_down", share=0.2))
            monkeypatch.setenv(stores.RETRY_SECONDS, "20")
            push_version(saved / "2", url)
            wait_for(lambda: version_of(address) == [2])
            ended.set()
            for thread in threads:
                thread.join()
            assert set(answers) == {200} and len(answers) > 20

            proxy.follow(Rule())
            stores.write_bytes(f"{url}/3/saved_model.pb", b"half a version")
            time.sleep(1)
            assert version_of(address) == [2]
            proxy.follow(Rule("error"))  # the store is away
            time.sleep(1)
            assert version_of(address) == [2] and ask(address).json() == expected
        with served(url) as address:  # starts from what was copied
            assert version_of(address) == [2] and ask(address).json() == expected
            proxy.follow(Rule())
            stores.delete(f"{url}/2/{MANIFEST}")  # taken back: the version before is served again
            for each, _ in list(stores.objects_below(f"{url}/2")):
                stores.delete(each)
            wait_for(lambda: version_of(address) == [1])


def model_config(url):
    return f'model_config_list {{ config {{ name: "m" base_path: "{url}" model_platform: "tensorflow" }} }}'.encode()


@contextlib.contextmanager
def served_by_file(url):
    flags = [f"--model_config_file={url}", "--model_config_file_poll_wait_seconds=0.2"]
    with running_server(parse_flags([*flags, "--file_system_poll_wait_seconds=0.2"])) as addresses:
        yield addresses


def test_labels_move_in_a_config_file_of_a_bucket(s3, saved, monkeypatch, caplog):
    """`canary` writes the object, the server looks at it, and both go on when the store comes back."""
    base, file = f"{s3.url}/models/m", f"{s3.url}/config/models.config"
    canary = ["canary", "m", "--model_config_file", file]
    one_line(*call(*canary), f"{file}: no such file; check the path")
    with pytest.raises(InputError, match=f"^{file}: no such file; check the path"), served_by_file(file):
        pass
    with faulty(s3.port, Rule()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        stores.write_bytes(file, b"model_config_list { confg {} }")
        one_line(*call(*canary), f"{file}: Error parsing text-format tensorflow.serving.ModelServerConfig: line 1")
        for number in (1, 2):
            push_version(saved / str(number), base)
        stores.write_bytes(file, model_config(base))
        with served_by_file(file) as addresses:
            url = f"{addresses.rest}/v1/models/m"
            assert version_of(url) == [2]
            code, output = call(*canary, "stable=1", "canary=2", "--url", addresses.rest)
            assert code == 0 and output.startswith("canary\t2\tAVAILABLE\nstable\t1\tAVAILABLE"), output
            assert ask(f"{url}/labels/stable").status_code == 200
            one_line(*call(*canary, "canary=3"), f"{base}: version 3 of model m is not here; it has 1, 2")
            with one_writer(f"{s3.url}/config"):
                one_line(*call(*canary, "canary=1"), "another process writes here")
            proxy.follow(Rule("error"))
            wait_for(lambda: f"{file}: the store is away, and the config in use stays" in caplog.text)
            assert ask(f"{url}/labels/stable").status_code == 200
            proxy.follow(Rule())
            code, output = call(*canary, "--rollback", "--url", addresses.rest)
            assert code == 0 and output.startswith("no labels"), output
            wait_for(lambda: ask(f"{url}/labels/stable").status_code != 200)
        assert stores.is_file(f"{file}.previous") and not stores.is_file(f"{file}.begun")
        proxy.follow(Rule("error"))
        with served_by_file(file) as addresses:  # starts from what was copied
            assert version_of(f"{addresses.rest}/v1/models/m") == [2]
        assert f"the model config file is read as it was copied before: {file}" in caplog.text


def test_a_server_whose_store_was_never_reached_says_so_in_a_line(s3):
    with pytest.raises(InputError, match="no such bucket; check the name"), served(f"{s3.url}-none/models/m"):
        pass


def test_a_model_is_fetched_by_the_url_of_its_versions_or_of_one(store, tmp_path):
    base = f"{store.url}/models/ctr"
    push_version(small(tmp_path / "a", 3, "three"), base)
    push_version(small(tmp_path / "a", 12, "twelve"), base)
    stores.write_bytes(f"{base}/20/saved_model.pb", b"half")
    assert newest_stored(base) == 12
    assert (fetch_model(base) / "saved_model.pb").read_text() == "twelve"
    assert (fetch_model(f"{base}/3/") / "saved_model.pb").read_text() == "three"
    assert fetch_model(base).name == "12" and fetch_model("a/b").parts == ("a", "b")
    with pytest.raises(StoreError, match="no complete run or model version here"):
        fetch_model(f"{base}/20")
    fetch_newest(base, tmp_path / "local")
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["12"]


def test_a_run_is_fetched_with_the_newest_version_that_it_pushed(store, tmp_path):
    """The manifest of a run does not name the versions, which have their own."""
    run = f"{store.url}/run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.json").write_text("{}")
    store_folders.upload(tmp_path / "run", run)
    with pytest.raises(InputError, match="this run pushed no model"):
        find_version(fetch_model(run))
    for number, text in ((3, "three"), (12, "twelve")):
        push_version(small(tmp_path / "a", number, text), f"{run}/models/ctr")
    stores.write_bytes(f"{run}/models/ctr/20/saved_model.pb", b"half")
    version = find_version(fetch_model(run))
    assert version.name == "12" and (version / "saved_model.pb").read_text() == "twelve"
    assert [path.name for path in version.parent.iterdir()] == ["12"]


def test_a_version_that_is_there_is_not_pushed_over(s3, tmp_path):
    base = f"{s3.url}/models/ctr"
    version = small(tmp_path / "a", 3)
    push_version(version, base)
    push_version(version, base)  # again: nothing to do
    with pytest.raises(StoreError, match="another run pushed this version"):
        push_version(small(tmp_path / "b", 3, "of another run"), base)
    push_version(small(tmp_path / "b", 5), base)
    with pytest.raises(StoreError, match="another run pushed version 5 while this one trained"):
        push_version(small(tmp_path / "b", 4), base)
    push_version(version, base)
    with one_writer(base), pytest.raises(StoreError, match="another process writes here"):
        push_version(small(tmp_path / "b", 6), base)
    assert newest_stored(base) == 5


def test_many_versions_without_manifest_are_one_listing(s3, tmp_path, monkeypatch):
    url = f"{s3.url}/models/many"
    for number in range(1, 41):
        stores.write_bytes(f"{url}/{number}/saved_model.pb", b"half")
    push_version(small(tmp_path, 50), f"{s3.url}/other/ctr")
    with faulty(s3.port, Rule()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        mirror = Mirror(url)
        for _ in range(2):
            proxy.follow(Rule())
            mirror.follow(Policy().wanted)
            assert newest_stored(url) is None and mirror.is_empty()
            assert len(proxy.requests()) < 20  # not one of each version
        store_folders.upload(small(tmp_path / "late", 7), f"{url}/7")
        assert newest_stored(url) == 7
        mirror.follow(Policy().wanted)
        assert [path.name for path in mirror.folder.iterdir()] == ["7"]
        proxy.follow(Rule())
        mirror.follow(Policy(all=True).wanted)
        assert len(proxy.requests()) < 20


def test_a_version_is_written_beside_the_newest_of_a_store(s3, tmp_path):
    url = f"{s3.url}/indexed/ctr"
    push_version(small(tmp_path, 3), url)
    with versions_at(url) as place:
        assert [path.name for path in place.folder.iterdir()] == ["3"]
        small(place.folder, 4, "with an index")
    assert newest_stored(url) == 4 and stores.read_bytes(f"{url}/4/saved_model.pb") == b"with an index"
    with versions_at(url):
        pass  # nothing new: nothing is pushed
    with versions_at(tmp_path / "here") as place:
        assert place.folder == tmp_path / "here"


def test_a_server_is_given_a_run_of_a_store_and_a_url_with_nothing_below_is_said(s3, tmp_path, monkeypatch):
    def found(url, *flags):
        return with_found_folder(parse_flags([f"--model_base_path={url}", *flags])).model_base_path

    run = f"{s3.url}/run"
    with pytest.raises(InputError, match=f"^{run}: nothing is there; give a run, or RUN/models/<name>, or --wait"):
        found(run)
    assert found(run, "--wait") == run and is_awaited(run)
    stores.write_bytes(f"{run}/.ctrpipe_claims/a", b"")
    assert is_awaited(run)
    stores.write_bytes(f"{run}/metrics.json", b"{}")
    with pytest.raises(InputError, match="this run pushed no model"):
        found(run)
    push_version(small(tmp_path / "a", 3), f"{run}/models/ctr")
    assert not is_awaited(run) and not is_awaited(f"{run}/models/ctr") and not is_awaited(f"{run}/models/ctr/3")
    assert found(run) == found(f"{run}/models/ctr/") == f"{run}/models/ctr"
    models, version = f"{run}/models/ctr", f"{run}/models/ctr/3"
    assert found(f"{version}/") == version
    assert split_version(f"{version}/") == (models, 3) and split_version(models) == (models, None)
    Mirror(models).follow(dict)
    monkeypatch.setattr(stores, "objects_below", None)  # the store is away
    monkeypatch.setattr(stores, "is_file", None)
    assert found(run) == found(models) == models
    assert found(version) == version and split_version(version) == (models, 3) and split_version(models)[1] is None


def test_a_run_of_a_store_with_two_models_asks_which_one(s3, tmp_path):
    for name in ("a", "b"):
        push_version(small(tmp_path / name, 3), f"{s3.url}/run/models/{name}")
    stores.write_bytes(f"{s3.url}/run/metrics.json", b"{}")
    with pytest.raises(InputError, match="models of several names, a, b; give s3://.*/run/models/<name>$"):
        with_found_folder(parse_flags([f"--model_base_path={s3.url}/run"]))


def test_a_full_disk_is_said_once_and_the_copies_stay(s3, tmp_path, monkeypatch, caplog):
    base = f"{s3.url}/models/ctr"
    push_version(small(tmp_path / "a", 3), base)
    mirror = Mirror(base)
    mirror.follow(dict)
    push_version(small(tmp_path / "a", 4), base)

    def full(url, folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stored, "download", full)
    mirror.try_to_follow(dict)
    mirror.try_to_follow(dict)
    [said] = [record.getMessage() for record in caplog.records if "cannot be copied" in record.getMessage()]
    assert said.startswith(f"{base}: cannot be copied to {mirror.folder} (No space left on device)")
    assert [path.name for path in mirror.folder.iterdir()] == ["3"]


def test_a_copy_of_another_version_of_the_same_number_is_noticed_and_replaced(s3, tmp_path, caplog):
    base = f"{s3.url}/models/ctr"
    push_version(small(tmp_path / "a", 3), base)
    Mirror(base).follow(dict)
    for each, _ in list(stores.objects_below(base)):
        stores.delete(each)
    push_version(small(tmp_path / "b", 3, "another"), base)
    mirror = Mirror(base)  # of a server that starts again
    mirror.follow(dict)
    mirror.follow(dict)
    assert (mirror.folder / "3" / "saved_model.pb").read_text() == "another"
    [said] = [record.getMessage() for record in caplog.records if "differs from what was copied" in record.getMessage()]
    assert said.startswith(f"{base}/3: ")
