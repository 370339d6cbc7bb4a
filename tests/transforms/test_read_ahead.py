"""A log that is read before it is asked for gives what it would have given then, and leaves nothing behind.

In processes of their own: the copies that read are made of a process without threads.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# `ingested(name, ahead)` ingests into a folder and says what came of it; `log(**split)` describes the log.
SCRIPT = """
import hashlib, json, os, pathlib, sys, time
from ctrpipe.transforms.log import files
from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.split import SPLITS
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.read_ahead import ReadAhead, handed_over, reading_ahead
from ctrpipe.transforms.log.spec import LogSpec

files.RANGE_BYTES = 500
here, path = pathlib.Path(sys.argv[1]), sys.argv[2]

def log(**split):
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    data = {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, "split": split, "max_bad_row_rate": 0.1}
    return LogSpec.model_validate({"data": data, "features": features})

def ingested(name, spec, partial=None):
    folders = {split: here / name / split for split in SPLITS}
    for folder in folders.values():
        folder.mkdir(parents=True)
    try:
        said = ingest(spec, [path], 1, folders, here / "dead", Workers(processes=1), partial=partial).to_json()
    except InputError as error:
        said = str(error)
    found = {}
    for file in sorted((here / name).rglob("*.*")):
        found[str(file.relative_to(here / name))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return [said, found, (here / "dead" / "rejects.jsonl").read_text()]

def all_read(ahead):
    while not ahead._placed.done():
        time.sleep(0.01)

def left():
    return [name for name in os.listdir(here) if name.startswith(".")]

"""


@pytest.fixture
def start(tmp_path):
    """Runs code after SCRIPT on a log of many ranges; its lines that are `bad` have a number that cannot be read."""

    def start(code: str, rows: int = 2000, bad: int = 100) -> subprocess.Popen:
        numbers = ["x" if row % bad == bad - 1 else str(row) for row in range(rows)]
        text = [f"{row % 3 == 0:d}\t{number}\tv{row % 7}\n" for row, number in enumerate(numbers)]
        (tmp_path / "log.tsv").write_text("".join(text))
        command = [sys.executable, "-c", SCRIPT + code, tmp_path, tmp_path / "log.tsv"]
        pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True, cwd=tmp_path
        )

    return start


def answer(process: subprocess.Popen):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.mark.parametrize("split", ['by="order"', 'by="time", column="n", validation=0.1, test=0.2'])
@pytest.mark.slow
def test_what_is_read_ahead_is_what_would_be_read_in_time(start, split):
    code = f"""
spec = log({split})
with ReadAhead(spec, [path], 1, here / "not" / "there", 2) as ahead:
    all_read(ahead)
    partial = ahead.take()
    parts = [len(partial.ranges), len(partial.results), partial.placed is not None]
    whole = ingested("whole", spec, partial)
with ReadAhead(spec, [path], 1, here / "not" / "there", 1) as ahead:
    partial = ahead.take()
    some = [len(partial.results) < len(partial.ranges), partial.placed is None, ingested("some", spec, partial)]
print(json.dumps([parts, whole, some, ingested("none", spec), left()]))
"""
    parts, whole, (cut, not_placed, some), none, left = answer(start(code))
    assert parts[0] == parts[1] > 30 and parts[2]
    assert cut and not_placed
    assert whole == some == none and len(none[1]) > 3
    assert json.loads(none[0])["rejected"] == 20 and len(none[2].splitlines()) == 20
    assert left == []


@pytest.mark.slow
def test_readers_give_way_to_the_process_that_they_read_for(start):
    code = """
with ReadAhead(log(), [path], 1, here / "x", 2) as ahead:
    all_read(ahead)
    readers = [os.getpriority(os.PRIO_PROCESS, reader) for reader in ahead._pool._processes]
print(json.dumps([readers, os.getpriority(os.PRIO_PROCESS, 0)]))
"""
    readers, own = answer(start(code))
    assert readers == [min(own + 10, 19)] * 2


@pytest.mark.slow
def test_too_many_malformed_rows_are_said_as_ever(start):
    code = """
spec = log()
with ReadAhead(spec, [path], 1, here / "x", 2) as ahead:
    all_read(ahead)
    whole = ingested("whole", spec, ahead.take())
print(json.dumps([whole, ingested("none", spec), left()]))
"""
    whole, none, left = answer(start(code, bad=3))
    assert whole == none and "of the first" in none[0] and "above data.max_bad_row_rate" in none[0]
    assert left == []


@pytest.mark.slow
def test_another_log_or_a_changed_one_is_not_taken(start):
    code = """
spec, found = log(), []
with reading_ahead(spec, [path], 1, here / "x", 1):
    for wanted in ((log(by="hash"), [path], 1), (spec, [path, path], 1), (spec, [path], 2)):
        with handed_over(*wanted) as partial:
            found.append(partial)
    os.utime(path, (1, 1))
    with handed_over(spec, [path], 1) as partial:
        found.append(partial)
with reading_ahead(spec, [path], 1, here / "x", 1):
    os.rename(path, path + ".moved")
    with handed_over(spec, [path], 1) as partial:
        found.append(partial)
with handed_over(spec, [path], 1) as partial:
    found.append(partial)
print(json.dumps([found, left()]))
"""
    assert answer(start(code)) == [[None] * 6, []]


@pytest.mark.slow
def test_what_is_read_ahead_is_handed_over_once(start):
    code = """
spec, found = log(), []
with reading_ahead(spec, [path], 1, here / "x", 1):
    for _ in range(2):
        with handed_over(LogSpec.model_validate_json(spec.model_dump_json()), [path], 1) as partial:
            found.append(partial is not None and len(partial.ranges) > 30)
print(json.dumps([found, left()]))
"""
    assert answer(start(code)) == [[True, False], []]


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_the_users_mistake_when_it_is_asked_for(start):
    code = """
open(path, "w").close()
with ReadAhead(log(), [path], 1, here / "x", 1) as ahead:
    try:
        ahead.take()
    except InputError as error:
        said = str(error)
print(json.dumps([said, left()]))
"""
    said, left = answer(start(code))
    assert said.endswith("log.tsv: the file has no rows; check that it was written completely") and left == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_whoever_is_stopped_leaves_no_reader_and_no_folder(start, tmp_path, number):
    code = """
with ReadAhead(log(), [path], 1, here / "x", 2) as ahead:
    print(json.dumps([*ahead._pool._processes]), flush=True)
    time.sleep(60)
"""
    process = start(code)
    readers = json.loads(process.stdout.readline())
    assert len(readers) == 2
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    process.wait()
    end = time.monotonic() + 10
    while any(pathlib.Path(f"/proc/{reader}").exists() for reader in readers):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not list(tmp_path.glob(".reading-*"))
    if number == signal.SIGINT:
        assert process.stderr.read().count("Traceback") == 1
