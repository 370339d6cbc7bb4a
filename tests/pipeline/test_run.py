"""The parts of a run that need no TFX: its lock, its folder, what it compares with, what it says of code and data."""

import hashlib
import json
import pathlib
import signal
import subprocess
import sys

import pytest

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.pipeline.config import Monitoring, RunConfig
from ctrpipe.pipeline.run import inputs as run_inputs
from ctrpipe.pipeline.run import run
from ctrpipe.transforms.log import described_files

ROOT = pathlib.Path(__file__).parents[2]
HOLD = """
import pathlib, sys, time
from ctrpipe.common.output_folder import one_run_at_a_time
with one_run_at_a_time(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_run_at_a_time_also_after_a_kill(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout and process.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another run works in this folder"), one_run_at_a_time(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with one_run_at_a_time(tmp_path):
            pass
        with pytest.raises(ZeroDivisionError), one_run_at_a_time(tmp_path):
            raise ZeroDivisionError
        with one_run_at_a_time(tmp_path):  # a run that failed has let it go
            pass
    finally:
        process.kill()


def test_the_output_folder_is_made_with_its_parents(tmp_path):
    check_output(tmp_path / "a" / "b")
    check_output(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="a file is in the way"):
            check_output(output)
    with pytest.raises(InputError, match="cannot make the output folder"):
        check_output(tmp_path / ("x" * 300))


def test_the_version_to_beat_is_the_newest_that_another_training_made(tmp_path):
    for version, made_by in (("9", "other"), ("10", "mine"), ("11", "mine"), ("text", "other")):
        assets = tmp_path / version / "assets.extra"
        assets.mkdir(parents=True)
        (assets / "training_fingerprint").write_text(made_by)
    assert run_inputs.version_to_beat(tmp_path, "mine") == "9"
    assert run_inputs.version_to_beat(tmp_path, "other") == "11"
    (tmp_path / "12").mkdir()  # of somebody else: it does not say what made it
    assert run_inputs.version_to_beat(tmp_path, "mine") == "12"
    assert run_inputs.version_to_beat(tmp_path / "absent", "mine") == ""


def test_the_versions_retrained_have_the_configuration_of_the_version_to_beat(tmp_path):
    spec = {"data": {"labels": {"ctr": "click"}, "split": 1}, "features": ["a"]}
    made = {
        "1": ("first", {"lr": 1}, spec),
        "2": ("second", {"lr": 1}, spec | {"data": {"labels": {"ctr": "click"}, "split": 2}}),  # other rows
        "3": ("other", {"lr": 2}, spec),
        "4": ("other features", {"lr": 1}, spec | {"features": ["b"]}),
        "5": ("second", {"lr": 1}, spec),  # pushed again
        "6": ("mine", {"lr": 1}, spec),
        "10": ("last", {"lr": 1}, spec),
        "11": ("newer", {"lr": 1}, spec),
    }
    for version, (made_by, training, described) in made.items():
        assets = tmp_path / version / "assets.extra"
        assets.mkdir(parents=True)
        (assets / "training_fingerprint").write_text(made_by)
        (assets / "training.json").write_text(json.dumps(training))
        (assets / "log_spec.json").write_text(json.dumps(described))
    (tmp_path / "7").mkdir()  # of somebody else
    assert run_inputs.versions_retrained(tmp_path, "10", "mine") == ("5", "1")
    assert run_inputs.versions_retrained(tmp_path, "10", "a new one") == ("6", "5", "1")
    assert run_inputs.versions_retrained(tmp_path, "3", "mine") == ()
    assert run_inputs.versions_retrained(tmp_path, "7", "mine") == ()
    assert run_inputs.versions_retrained(tmp_path, "", "mine") == ()


def test_a_file_is_known_by_its_contents(tmp_path):
    (tmp_path / "log").write_bytes(b"a" * 3_000_000)
    found = described_files.describe_file(str(tmp_path / "log"))
    assert found["bytes"] == 3_000_000 and found["sha256"] == hashlib.sha256(b"a" * 3_000_000).hexdigest()
    assert found["stamp"] == str((tmp_path / "log").stat().st_mtime_ns)
    (tmp_path / "copy").write_bytes(b"a" * 3_000_000)
    same = described_files.describe_file(str(tmp_path / "copy"))
    assert described_files.fingerprint_files([found]) == described_files.fingerprint_files([same])
    (tmp_path / "copy").write_bytes(b"a" * 2_999_999 + b"b")
    other = described_files.describe_file(str(tmp_path / "copy"))
    assert described_files.fingerprint_files([found, other]) != described_files.fingerprint_files([other, found])
    with pytest.raises(InputError, match="cannot be read"):
        described_files.describe_file(str(tmp_path / "absent"))


def test_the_logs_to_compare_with_are_known_by_their_contents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.tsv", "b.tsv", "served.tsv"):
        (tmp_path / name).write_text(name)
    found = run_inputs.find_monitored(Monitoring(previous=["[ab].tsv"], serving=["served.tsv"]))
    assert found["monitoring"].previous == [str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")]
    assert found["monitoring"].serving == [str(tmp_path / "served.tsv")]
    (tmp_path / "b.tsv").write_text("changed")
    changed = run_inputs.find_monitored(Monitoring(previous=["[ab].tsv"], serving=["served.tsv"]))
    assert changed["monitored_fingerprint"] != found["monitored_fingerprint"]
    sizes = {path: state.size for path, state in changed["monitored_states"].items()}
    assert sizes == {str(tmp_path / name): size for name, size in (("a.tsv", 5), ("b.tsv", 7), ("served.tsv", 10))}
    nothing = {"monitoring": Monitoring(), "monitored_fingerprint": "", "monitored_states": {}}
    assert run_inputs.find_monitored(Monitoring()) == nothing
    with pytest.raises(InputError, match="no file matches"):
        run_inputs.find_monitored(Monitoring(serving=["absent*"]))


def prepared(folder: pathlib.Path, **options: object) -> int:
    """The number of workers that `run.prepare_process` wants for a log of 80 bytes."""
    (folder / "log.tsv").write_text("0\t1\n1\t2\n" * 10)
    data = {"columns": ["label", "n"], "labels": {"ctr": "label"}}
    values = {"name": "x", "data": data, "features": [{"kind": "numeric", "columns": ["n"]}], "model": {"name": "lr"}}
    return run.prepare_process(RunConfig.model_validate(values | options), [str(folder / "log.tsv")])


@pytest.fixture
def heaps(monkeypatch):
    """What the run sets of its process: the heaps. It has three cores, no TensorFlow and a large log."""
    given: list[int] = []
    monkeypatch.setattr(run, "share_heaps", given.append)
    monkeypatch.setattr(run, "cores", lambda: 3)
    monkeypatch.setattr(run, "SMALL_LOG_BYTES", 79)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    return given


def test_threads_of_a_run_share_as_many_heaps_as_there_are_cores(tmp_path, heaps):
    prepared(tmp_path)
    assert heaps == [3]


def test_workers_are_forked_for_a_large_log_in_a_process_without_tensorflow(tmp_path, heaps, monkeypatch):
    assert (prepared(tmp_path), prepared(tmp_path, workers=2)) == (3, 2)
    assert (prepared(tmp_path, workers=1), prepared(tmp_path, beam_args=["--x"])) == (0, 0)
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    assert prepared(tmp_path) == 0
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setattr(run, "SMALL_LOG_BYTES", 80)
    assert prepared(tmp_path) == 0
    monkeypatch.setattr(run, "SMALL_LOG_BYTES", 0)
    monkeypatch.setattr(run, "cores", lambda: 1)
    assert prepared(tmp_path) == 0


def test_a_process_with_threads_or_with_a_client_of_a_store_is_not_forked(monkeypatch):
    forked: list[tuple[str, int]] = []
    monkeypatch.setattr(run, "fork_workers", lambda module, processes: forked.append((module, processes)))
    monkeypatch.setattr(run.threading, "active_count", lambda: 1)
    stores._client.cache_clear()
    run._fork_if_possible(0)
    assert not forked
    run._fork_if_possible(2)
    assert forked == [(run.WORKER_MODULES, 2)]
    monkeypatch.setattr(run.threading, "active_count", lambda: 2)
    run._fork_if_possible(2)
    monkeypatch.setattr(run.threading, "active_count", lambda: 1)
    monkeypatch.setattr(stores, "_s3", lambda *given: given)
    stores._filesystem(stores._place("s3://bucket/log.tsv"))
    run._fork_if_possible(2)
    stores._client.cache_clear()
    assert len(forked) == 1
