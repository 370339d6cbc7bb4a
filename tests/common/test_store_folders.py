"""Folders in stores: whole or not there, fetched and checked, with one writer at a time."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.harness.store_servers import KEYS, Rule, faulty, free_port, running
from ctrpipe.common import store_folders, store_names, stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.store_folders import (
    MANIFEST,
    download,
    local_copy,
    one_writer,
    read_manifest,
    results_at,
    upload,
    written_file,
    written_output,
)
from ctrpipe.common.stores import StoreError
from tests.stores import command_environment

pytestmark = pytest.mark.slow  # a server starts in seconds


@pytest.fixture(autouse=True)
def impatient(monkeypatch, tmp_path):
    monkeypatch.setenv(stores.RETRY_SECONDS, "10")
    monkeypatch.setenv(store_names.CACHE, str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "made"
    for name in ("saved_model.pb", "variables/variables.index", "assets/words.txt", "empty"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(name.encode() * (name != "empty"))
    return made


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


def test_a_folder_comes_back_as_it_was(store, folder, tmp_path):
    url = f"{store.url}/models/ctr/1"
    upload(folder, url)
    download(url, tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)
    assert read_manifest(url)["saved_model.pb"].bytes == len("saved_model.pb")


def test_a_folder_without_manifest_is_not_there(store, folder, tmp_path):
    url = f"{store.url}/1"
    upload(folder, url)
    stores.delete(f"{url}/{MANIFEST}")
    with pytest.raises(FileNotFoundError):
        download(url, tmp_path / "copy")
    assert not (tmp_path / "copy").exists() and list(tmp_path.glob(".copy*")) == []


@pytest.mark.parametrize("change", ["other bytes", "missing"])
def test_a_file_that_differs_from_the_manifest_is_noticed_and_the_copy_stays(s3, folder, tmp_path, change):
    url, copy = f"{s3.url}/1", tmp_path / "copy"
    upload(folder, url)
    download(url, copy)
    before = contents(copy)
    (folder / "new").write_bytes(b"12345")
    upload(folder, url)
    if change == "missing":
        stores.delete(f"{url}/new")
    else:
        stores.write_bytes(f"{url}/new", b"1234!")
    with pytest.raises(StoreError, match="manifest"):
        download(url, copy)
    assert contents(copy) == before


def test_what_is_alike_is_not_written_or_fetched_again(s3, folder, tmp_path, monkeypatch):
    url, copy = f"{s3.url}/1", tmp_path / "copy"
    upload(folder, url)
    download(url, copy)
    with faulty(s3.port, Rule()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        upload(folder, url)
        download(url, copy)
        assert not [each for each in proxy.requests() if each.startswith("PUT") or "variables" in each]


def test_a_manifest_that_names_files_elsewhere_is_refused(s3, tmp_path):
    stores.write_bytes(f"{s3.url}/1/{MANIFEST}", json.dumps({"files": {"../x": {"bytes": 1, "sha256": ""}}}).encode())
    with pytest.raises(StoreError, match="names a file outside of its folder"):
        download(f"{s3.url}/1", tmp_path / "copy")
    stores.write_bytes(f"{s3.url}/1/{MANIFEST}", b"{")
    with pytest.raises(StoreError, match="damaged; push the folder again"):
        download(f"{s3.url}/1", tmp_path / "copy")


def test_the_second_writer_is_told_of_the_first(store):
    url = f"{store.url}/runs/a"
    with one_writer(url):
        with pytest.raises(StoreError, match=r"another process writes here \(.*\); wait until it"):
            with one_writer(url):
                pass
        with one_writer(f"{store.url}/runs/b"):
            pass
    with one_writer(url):
        pass


def test_a_bucket_that_is_not_there_is_named_by_the_folder_that_was_given(store):
    with pytest.raises(StoreError) as error, one_writer(f"{store.url}-none/scores"):
        pass
    assert str(error.value) == f"{store.url}-none/scores: no such bucket; check the name in the URL"


HOLD = """
import sys, time
from ctrpipe.common.store_folders import one_writer
with one_writer(sys.argv[1]):
    print("in", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_gives_way_at_once_on_its_machine(s3):
    url = f"{s3.url}/runs/a"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, url], env=command_environment(s3), stdout=subprocess.PIPE, cwd="/"
    )
    assert process.stdout.readline() == b"in\n"
    with pytest.raises(StoreError, match="another process writes here"), one_writer(url):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with one_writer(url):
        pass


def test_a_claim_from_elsewhere_counts_until_it_is_old(s3, monkeypatch):
    stores.write_bytes(f"{s3.url}/a/.ctrpipe_claims/elsewhere-7-0123abcd.json", b"{}")
    with pytest.raises(StoreError, match=r"another process writes here \(elsewhere-7\)"), one_writer(f"{s3.url}/a"):
        pass
    monkeypatch.setattr(store_folders, "_DEAD_SECONDS", 1.0)
    time.sleep(2.5)  # the store's times are whole seconds
    with one_writer(f"{s3.url}/a"):
        pass


UPLOAD = """
import pathlib, sys
from ctrpipe.common.store_folders import upload
upload(pathlib.Path(sys.argv[1]), sys.argv[2])
"""


def test_a_folder_whose_writer_is_killed_is_not_there_and_can_be_written_again(s3, folder, tmp_path):
    url = f"{s3.url}/2"
    with faulty(s3.port, Rule("slow", part="words.txt", seconds=30)) as proxy:
        environment = command_environment(s3) | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        process = subprocess.Popen([sys.executable, "-c", UPLOAD, str(folder), url], env=environment, cwd="/")
        end = time.monotonic() + 30
        while not any("words.txt" in each for each in proxy.requests()) and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with pytest.raises(FileNotFoundError):
        download(url, tmp_path / "copy")
    upload(folder, url)
    download(url, tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(folder)


def test_what_a_killed_process_has_fetched_in_part_is_removed_and_what_another_fetches_stays(s3, folder, tmp_path):
    url = f"{s3.url}/3"
    upload(folder, url)
    left, held = tmp_path / ".copy-00000000", tmp_path / ".copy-11111111"
    for each in (left, held):
        (each / "variables").mkdir(parents=True)
    other = os.open(held, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert download(url, tmp_path / "copy") and not download(url, tmp_path / "copy")
    assert not left.exists() and held.exists()
    os.close(other)


def write(place, **files):
    for name, text in files.items():
        path = place.folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names_at(url):
    return sorted(each.removeprefix(f"{url}/") for each, _ in stores.objects_below(url))


def test_what_a_command_writes_is_at_its_url_and_nothing_of_the_time_before(store):
    url = f"{store.url}/joined"
    for files in ({"a": "1", "b": "1"}, {"a": "2", "c": "1"}):
        with written_output(f"{url}/", leave_out=["tfx"]) as place:
            for old in place.folder.glob("*.txt"):
                old.unlink()
            write(place, **files)
            (place.folder / "tfx").mkdir(exist_ok=True)
            (place.folder / "tfx" / "large").write_text("stays here")
            (place.folder / ".lock").touch()
        assert place.shown(f"in {place.folder}/a.txt") == f"in {url}/a.txt"
        assert names_at(url) == [*(f"{name}.txt" for name in files), MANIFEST]
    assert stores.read_bytes(f"{url}/a.txt") == b"2"


def test_an_output_that_fails_writes_nothing_and_keeps_what_it_has_on_this_machine(s3):
    url = f"{s3.url}/joined"
    with pytest.raises(InputError), written_output(url) as place:
        write(place, part="half")
        raise InputError("the log ends")
    assert names_at(url) == []
    with written_output(url) as place:
        assert (place.folder / "part.txt").read_text() == "half"
    assert names_at(url) == [MANIFEST, "part.txt"]


def test_files_of_others_are_neither_mixed_nor_removed(s3):
    stores.write_bytes(f"{s3.url}/joined/log/part-7.parquet", b"theirs")
    with pytest.raises(StoreError, match=r"joined: contains files that were .*, such as log/part-7.parquet; choose"):
        with written_output(f"{s3.url}/joined"):
            pytest.fail("it began")
    assert names_at(f"{s3.url}/joined") == ["log/part-7.parquet"]


def test_results_replace_those_of_their_names_and_others_stay(store):
    stores.write_bytes(f"{store.url}/drift/drift.json", b"old")
    stores.write_bytes(f"{store.url}/drift/notes.txt", b"kept")
    with results_at(f"{store.url}/drift") as place:
        (place.folder / "drift.json").write_text("new")
    assert not place.folder.exists()
    assert stores.read_bytes(f"{store.url}/drift/drift.json") == b"new"
    assert names_at(f"{store.url}/drift") == ["drift.json", "notes.txt"]


def test_a_file_is_written_with_those_beside_it(s3, tmp_path):
    for output in (f"{s3.url}/out/both.json", tmp_path / "out" / "both.json"):
        with written_file(output) as place:
            place.folder.mkdir(exist_ok=True)
            (place.folder / "both.json").write_text("{}")
            (place.folder / "both.svg").write_text("<svg/>")
    assert names_at(f"{s3.url}/out") == ["both.json", "both.svg"]
    assert (tmp_path / "out" / "both.svg").exists()
    with pytest.raises(StoreError, match="a bucket; name a file in it"), written_file(s3.url):
        pytest.fail("it began")


def test_a_url_has_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    one = local_copy("s3://bucket/models/ctr")
    assert one == tmp_path / "cache" / "copies" / "s3" / "bucket" / "models" / "ctr"
    assert local_copy("s3://bucket/models/ctr/7") == one / "7"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert local_copy("s3://bucket/models/ctr") != one
    monkeypatch.delenv(store_names.CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert local_copy("gs://b/k").parts[:4] == ("/", "x", "ctrpipe", "copies")
    with pytest.raises(StoreError, match="has an empty name"):
        local_copy("s3://bucket/../x")


FULL = """
import sys
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import main
store = s3_backends[DEFAULT_ACCOUNT_ID]["global"]
store.create_bucket("full", "us-east-1")
for number in range(int(sys.argv[2])):
    store.put_object("full", f"logs/{number}.csv", b"")
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""


def test_a_listing_of_several_pages_is_whole(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    port, objects = free_port(), 2_100  # a page has 1,000
    with running([sys.executable, "-c", FULL, str(port), str(objects)], port):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        found = stores.matching("s3://full/logs/*.csv")
    assert found == [f"s3://full/logs/{number}.csv" for number in range(objects)]


def test_what_a_summary_names_is_at_the_url(s3):
    url = f"{s3.url}/prepared"
    with written_output(url) as place:
        (place.folder / "log").mkdir(parents=True)
        (place.folder / "log" / "a.json").write_text(f"{place.folder}/log")  # of a log, whose bytes are its own
        (place.folder / "summary.json").write_text(json.dumps({"log": f"{place.folder}/log/*.parquet"}))
    assert json.loads(stores.read_bytes(f"{url}/summary.json")) == {"log": f"{url}/log/*.parquet"}
    assert stores.read_bytes(f"{url}/log/a.json").decode() == f"{place.folder}/log"
    assert read_manifest(url)["summary.json"].bytes == stores.state_of(f"{url}/summary.json")[0]
    assert json.loads((place.folder / "summary.json").read_text())["log"].startswith(str(place.folder))
