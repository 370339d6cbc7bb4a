"""Reading a log ahead gives the same result as reading it when it is needed, and leaves nothing behind.

Reading ahead, in separate processes: the tests check the remains of a stopped process.
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
# `ingested(name, spec)` ingests into a folder, or takes what was read ahead, and says what came of it.
SCRIPT = """
import hashlib, json, os, pathlib, sys, time
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.files import state_of
from ctrpipe.transforms.log.ingest import IngestResult, ingest
from ctrpipe.transforms.log.read_ahead import ReadAhead, take
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

here, path = pathlib.Path(sys.argv[1]), sys.argv[2]
near = here / "not" / "there"

def log(**split):
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    data = {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, "split": split, "max_bad_row_rate": 0.1}
    return LogSpec.model_validate({"data": data, "features": features})

def states():
    return {path: state_of(path)}

def folders(name):
    made = {split: here / name / split for split in SPLITS}
    for folder in made.values():
        folder.mkdir(parents=True, exist_ok=True)
    return made

def taken(name, spec, files=(path,), seed=1):
    return take(near, spec, list(files), seed, states(), folders(name), here / "dead")

def ingested(name, spec):
    try:
        return found(name, ingest(spec, [path], 1, folders(name), here / "dead", Workers(processes=1)))
    except InputError as error:
        return str(error)

def found(name, result):
    parts = {}
    for file in sorted((here / name).rglob("*.*")):
        parts[str(file.relative_to(here / name))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return [result.to_json(), parts, (here / "dead" / "rejects.jsonl").read_text()]

def left():
    return [str(name) for name in here.iterdir() if name.name == "not"]

"""


@pytest.fixture
def start(tmp_path):
    """Runs code after SCRIPT on a log; its lines that are `bad` have a number that cannot be read."""

    def start(code: str, rows: int = 2000, bad: int = 100) -> subprocess.Popen:
        numbers = ["x" if row % bad == bad - 1 else str(row) for row in range(rows)]
        text = [f"{row % 3 == 0:d}\t{number}\tv{row % 7}\n" for row, number in enumerate(numbers)]
        (tmp_path / "log.tsv").write_text("".join(text))
        (tmp_path / "script.py").write_text(SCRIPT + code)  # without a guard of __main__, as a user writes one
        command = [sys.executable, tmp_path / "script.py", tmp_path, tmp_path / "log.tsv"]
        pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True, cwd=tmp_path
        )

    return start


def answer(process: subprocess.Popen):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.mark.parametrize(
    "split", ['by="order"', pytest.param('by="time", column="n", validation=0.1, test=0.2', marks=pytest.mark.large)]
)
@pytest.mark.slow
def test_what_is_read_ahead_is_what_would_be_read_in_time(start, split):
    code = f"""
spec = log({split})
with ReadAhead(spec, [path], 1, near, 2) as ahead:
    ahead.wait()
    again = LogSpec.model_validate_json(spec.model_dump_json())
    others = [taken("other", *given) for given in ((log(by="hash"),), (spec, [path, path]), (spec, [path], 2))]
    whole = found("whole", taken("whole", again))
    twice = taken("twice", spec)
print(json.dumps([others, twice, whole, ingested("none", spec), left()]))
"""
    others, twice, whole, none, left = answer(start(code))
    assert others == [None] * 3 and twice is None
    assert whole == none and len(none[1]) == 3
    assert json.loads(none[0])["rejected"] == 20 and len(none[2].splitlines()) == 20
    assert left == []


@pytest.mark.slow
def test_the_reader_gives_way_to_the_process_that_it_reads_for(start):
    code = """
with ReadAhead(log(), [path], 1, near, 2) as ahead:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    while (reader := os.getpriority(os.PRIO_PROCESS, ahead._child.pid)) == own and ahead._child.poll() is None:
        pass
print(json.dumps([reader, own]))
"""
    reader, own = answer(start(code, rows=200_000))
    assert reader == min(own + 10, 19)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [pytest.param("open(path, 'w').close()", marks=pytest.mark.large), "open(path, 'a').write('1\\tx\\tx\\n' * 999)"],
)
def test_a_log_that_cannot_be_read_is_said_when_it_is_asked_for(start, mistake):
    code = f"""
{mistake}
with ReadAhead(log(), [path], 1, near, 1) as ahead:
    ahead.wait()
    print(json.dumps([taken("none", log()), ingested("none", log()), (here / "dead").exists()]))
print(json.dumps(left()))
"""
    said, left = start(code).communicate(timeout=60)[0].splitlines()
    nothing, error, has_dead_letters = json.loads(said)
    assert nothing is None and json.loads(left) == []
    if has_dead_letters:
        assert "of 2999 rows are malformed, above data.max_bad_row_rate" in error and "/dead" in error
    else:
        assert error.endswith("log.tsv: the file has no rows; check that it was written completely")


@pytest.mark.slow
def test_a_log_that_changes_is_not_taken(start):
    code = """
spec, said = log(), []
with ReadAhead(spec, [path], 1, near, 1) as ahead:
    ahead.wait()
    os.utime(path, (1, 1))
    said.append(taken("none", spec))
with ReadAhead(spec, [path], 1, near, 1) as ahead:
    os.utime(path, (2, 2))  # before it is read, or meanwhile
    ahead.wait()
    said.append(taken("none", spec))
print(json.dumps([said, left()]))
"""
    assert answer(start(code)) == [[None, None], []]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_whoever_is_stopped_leaves_no_reader_and_no_folder(start, tmp_path, number):
    code = """
with ReadAhead(log(), [path], 1, near, 2) as ahead:
    print(ahead._child.pid, flush=True)
    time.sleep(60)
"""
    process = start(code, rows=1_000_000)
    reader = int(process.stdout.readline())
    end = time.monotonic() + 20
    while not list((tmp_path / "not" / "there").glob(".read-*/train")):  # it reads
        assert time.monotonic() < end
        time.sleep(0.05)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    process.wait()
    while pathlib.Path(f"/proc/{reader}").exists() or list(tmp_path.glob("not/there/.read-*")):
        assert time.monotonic() < end
        time.sleep(0.05)
    if number == signal.SIGINT:
        assert process.stderr.read().count("Traceback") == 1
        assert not (tmp_path / "not").exists()
