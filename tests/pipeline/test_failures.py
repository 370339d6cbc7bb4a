"""Failures of the machine, by real means: one line, exit code 2, and what to do; 3 for what nobody has foreseen."""

import importlib
import os
import pathlib
import resource
import signal
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
import yaml

from ctrpipe.common import address_space, foreign
from ctrpipe.common import output_folder as run_folder
from ctrpipe.common.address_space import RUN_GIB, require_address_space
from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import FAILED, MISTAKE, NO_READER
from ctrpipe.common.extras import install
from ctrpipe.common.failures import explain
from ctrpipe.common.output_folder import await_database, one_run_at_a_time
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.run.artifacts import Artifacts
from ctrpipe.pipeline.training import process
from tests.e2e.small_run import ROOT, SHORT_CONFIG, call, one_line
from tests.pipeline.test_cli import raising

MAIN = "from ctrpipe.pipeline.cli import main; main(prog_name='ctrpipe')"


def test_a_failure_of_others_code_is_no_defect_of_ctrpipe(tmp_path, monkeypatch):
    (tmp_path / "code_of_others.py").write_text("def call(what):\n    raise what\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    other = importlib.import_module("code_of_others")

    def explained(error: BaseException) -> tuple[str, int]:
        with pytest.raises(type(error)) as caught:
            other.call(error)
        return explain(caught.value)

    assert explained(KeyError("x\ny"))[1] == FAILED
    foreign.called("code_of_others.part:attribute")
    said = (
        f"{tmp_path}/code_of_others.py, line 2: code of code_of_others failed (ValueError: x y); correct it or leave "
    )
    assert explained(ValueError("x\ny")) == (f"{said}it out", MISTAKE)
    assert "(SystemExit: 0)" in explained(SystemExit(0))[0]
    assert explain(KeyError("x"))[1] == FAILED


def test_a_package_that_is_not_installed_is_a_mistake_and_a_module_of_our_own_a_defect():
    with pytest.raises(ModuleNotFoundError) as caught:
        import a_package_that_is_not_there.part  # noqa: F401
    said = (
        "the package a_package_that_is_not_there is not installed here; install ctrpipe again, with all that it needs"
    )
    assert explain(caught.value) == (said, MISTAKE)
    said = f"the package kfp is not installed here; {install('kubeflow')}"
    assert explain(ModuleNotFoundError("No module named 'kfp.dsl'", name="kfp.dsl")) == (said, MISTAKE)
    with pytest.raises(ModuleNotFoundError) as caught:
        import ctrpipe.common.a_module_that_is_not_there  # noqa: F401
    assert explain(caught.value)[1] == FAILED


def test_a_full_disk(tmp_path, monkeypatch):
    with pytest.raises(OSError) as caught:  # noqa: PT011  the system's own
        with open("/dev/full", "w") as file:
            file.write("a" * 100_000)
    assert raising(monkeypatch, caught.value) == (
        MISTAKE,
        "ctrpipe: the disk is full; make room, or choose an output folder on another disk, and run again\n",
    )


@pytest.mark.slow
def test_a_run_on_a_full_disk_pushes_nothing(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SHORT_CONFIG))
    assert call("generate", "--rows", 1000, "--output", tmp_path / "log.tsv")[0] == 0
    (tmp_path / "disk").mkdir()
    command = [sys.executable, "-c", MAIN, "run", "config.yaml", "--data", "log.tsv", "--output", "disk/out"]
    # A disk of its own, which goes with the process; it lists the models before it does.
    script = 'mount -t tmpfs -o size=600k tmpfs disk || exit 77; "$@"; code=$?; ls disk/out disk/out/models; exit $code'
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    if ended.returncode == 77 or "unshare failed" in ended.stderr:
        pytest.skip(f"this machine mounts nothing here: {ended.stderr.strip()}")
    one_line(ended.returncode, ended.stderr, "the disk is full; make room, or choose an output folder on another disk")
    assert "tfx" in ended.stdout and "models" not in ended.stdout and "metrics.json" not in ended.stdout


@pytest.mark.large(like="tests/pipeline/test_failures.py::test_a_run_on_a_full_disk_pushes_nothing")
@pytest.mark.slow
def test_a_run_that_may_write_no_file_so_large(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SHORT_CONFIG))
    assert call("generate", "--rows", 1000, "--output", tmp_path / "log.tsv")[0] == 0
    arguments = ["run", "config.yaml", "--data", "log.tsv", "--output", "out"]
    ended = limited(arguments, resource.RLIMIT_FSIZE, 150_000, tmp_path)
    one_line(ended.returncode, ended.stderr, "tfx/metadata.sqlite in the output folder, cannot be written; is the")
    assert not (tmp_path / "out" / "models").exists()


def test_too_little_memory(monkeypatch):
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 60, np.uint8)
    code, output = raising(monkeypatch, caught.value)
    assert code == MISTAKE and output.startswith("ctrpipe: memory has run out; close other programs, or give it more")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mib", "arguments", "needs"),
    [
        (300, ["models"], "ctrpipe needs 0.5 GiB of address space, and the system allows 0.29 GiB"),
        (2000, ["serve", "--model_base_path=/absent", "--wait", "--port=18500"], "TensorFlow needs "),
        (3000, ["run", "config.yaml", "--data", "log.tsv", "--output", "out"], "a run needs "),
    ],
)
def test_too_little_address_space_is_said_before_work_starts(tmp_path, mib, arguments, needs):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SHORT_CONFIG))
    (tmp_path / "log.tsv").write_text("0\n")
    ended = limited(arguments, resource.RLIMIT_AS, mib << 20, tmp_path)
    one_line(ended.returncode, ended.stderr, needs)
    assert "raise the limit with ulimit -v, and limit memory by a container instead" in ended.stderr
    assert ended.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_address_space_is_needed_for_each_core(monkeypatch):
    monkeypatch.setattr(address_space.resource, "getrlimit", lambda kind: (6 << 30, -1))
    for cores in (1, 4):
        monkeypatch.setattr(address_space, "cores", lambda: cores)  # noqa: B023
        require_address_space("a run", RUN_GIB)
    monkeypatch.setattr(address_space, "cores", lambda: 5)
    with pytest.raises(InputError, match=r"^a run needs 6.25 GiB of address space, and the system allows 6 GiB; raise"):
        require_address_space("a run", RUN_GIB)
    monkeypatch.setattr(address_space.resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, -1))
    require_address_space("a run", RUN_GIB)


def test_what_libraries_raise_where_memory_or_threads_run_out():
    for text, said in (
        ("libtensorflow_cc.so.2: failed to map segment from shared object", "memory has run out; close other"),
        (
            "can't start new thread",
            "the system cannot start another thread; see ulimit -u and ulimit -v, or close other",
        ),
    ):
        found, code = explain(RuntimeError(text))
        assert code == MISTAKE and found.startswith(said)


def limited(arguments: list[str], kind: int, most: int, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process with a limit of the system, `resource.RLIMIT_...`.

    The process sets its limit itself: for a `preexec_fn`, subprocess forks this one, and gRPC writes a line there.
    """
    limit = f"import resource; resource.setrlimit({kind}, ({most}, {most}))"
    return subprocess.run(
        [sys.executable, "-c", f"{limit}; {MAIN}", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_the_system_kills():
    with pytest.raises(Exception) as caught:  # noqa: PT011  what it is, explain has to know
        Workers(processes=2).map(die, [1, 2], 1.0)
    said, code = explain(caught.value)
    assert code == MISTAKE and said.startswith("a process of this command was killed, probably because memory")


def test_a_training_process_that_the_system_kills(tmp_path, monkeypatch):
    (tmp_path / "killed.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    (tmp_path / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'killed.py'}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match="training on jax: a process of this command was killed, probably because"):
        process.train_with_worker(tmp_path, "jax", None)


def test_what_libraries_raise_on_a_full_disk():
    for text in (
        "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",  # Arrow
        "16384 requested and 4080 written",  # numpy
        "database or disk is full",  # SQLite
        "Can't write data (file write failed: errno = 28, error message = 'No space left on device')",  # HDF5
    ):
        wrapped = RuntimeError("node failed")
        wrapped.__context__ = OSError(text)
        said, code = explain(wrapped)
        assert code == MISTAKE and said == (
            "the disk is full; make room, or choose an output folder on another disk, and run again"
        )


def test_a_mistake_that_a_library_wraps_is_still_one():
    wrapped = RuntimeError("[while running 'Work']")
    wrapped.__cause__ = InputError("log.tsv: no such file; check the path")
    assert explain(wrapped) == ("log.tsv: no such file; check the path", MISTAKE)


def test_what_nobody_has_foreseen_is_neither_a_mistake_nor_a_gates_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, output = raising(monkeypatch, ValueError("one\ntwo"))
    [file] = tmp_path.iterdir()
    assert code == FAILED and output == (
        f"ctrpipe: ValueError: one two; this is a defect of ctrpipe, please report it with {file}\n"
    )
    assert "Traceback" in file.read_text() and file.read_text().endswith("ValueError: one\ntwo\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_gates_verdict(tmp_path, unbuffered):
    log = tmp_path / "log.csv"
    log.write_text("click,site\n" + "1,a\n0,b\n0,a\n" * 50)
    command = [sys.executable, "-c", MAIN, "init", log, "--output", tmp_path / "draft.yaml"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    command.stdout.close()
    said = command.stderr.read()
    assert command.wait() == NO_READER and said == ""


# The metadata database -----------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path) -> pathlib.Path:
    path = tmp_path / "metadata.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("a" * 100,)] * 1000)
    connection.close()
    return path


@pytest.fixture
def lock(database):
    """Another process's lock, released by calling it."""
    connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    yield connection.close
    connection.close()


def test_a_locked_database_is_waited_for_in_words(database, lock, capsys, monkeypatch):
    monkeypatch.setattr(run_folder, "_DATABASE_POLL", 0.05)
    timer = threading.Timer(0.3, lock)
    timer.start()
    await_database(database)
    timer.join()
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"Waiting for another process to release its lock on {database}" in said


def test_a_database_that_stays_locked_is_refused(database, lock, monkeypatch):
    monkeypatch.setattr(run_folder, "_DATABASE_POLL", 0.05)
    monkeypatch.setattr(run_folder, "DATABASE_WAIT", 0.2)
    with pytest.raises(
        InputError, match="metadata.sqlite: another process has locked this database for 0.2 s; end that"
    ):
        await_database(database)


def test_a_damaged_database_is_refused(database):
    await_database(database)
    await_database(database.with_name("absent"))
    whole = database.read_bytes()
    for content in (b"no database at all " * 100, whole[: len(whole) // 2], whole[:4096] + bytes(len(whole) - 4096)):
        database.write_bytes(content)
        with pytest.raises(InputError, match=r"metadata.sqlite: damaged \(.*\); remove .*, which holds the cache"):
            await_database(database)


# The output folder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, FileNotFoundError("tfx")])
@pytest.mark.parametrize("again", [False, True])
def test_an_output_folder_that_is_removed_during_a_run(tmp_path, error, again):
    output = tmp_path / "out"
    output.mkdir()
    with (
        pytest.raises(InputError, match="out: the output folder was removed, or replaced, during the run; run again"),
        one_run_at_a_time(output),
    ):
        output.rename(tmp_path / "other")
        if again:
            output.mkdir()
        if error:
            raise error


def test_a_database_that_lacks_a_table_is_damaged(tmp_path):
    Artifacts(tmp_path / "metadata.sqlite", "name")  # ML Metadata makes its tables
    with sqlite3.connect(tmp_path / "metadata.sqlite") as connection:
        connection.execute("DROP TABLE Event")
    connection.close()
    await_database(tmp_path / "metadata.sqlite")  # SQLite finds nothing wrong
    with pytest.raises(RuntimeError) as caught:
        Artifacts(tmp_path / "metadata.sqlite", "name")
    assert explain(caught.value) == (
        "ML Metadata's database, tfx/metadata.sqlite in the output folder, is damaged; remove tfx/, and run again",
        MISTAKE,
    )
