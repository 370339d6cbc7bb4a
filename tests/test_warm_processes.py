"""Processes that find their imports done have the surroundings of whoever starts them."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ctrpipe.common.processes import run_in_new_process
from tests.warm_processes import children_seconds, start_warm
from tests.warm_python import python


def surroundings(name: str) -> tuple[str | None, str, bool, int]:
    print("said by it")
    print("and to standard error", file=sys.stderr)
    return os.environ.get(name), os.getcwd(), "tensorflow" in sys.modules, os.getpid()


def test_a_new_process_has_the_environment_folder_and_streams_of_now(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CTRPIPE_OF_A_TEST", "é")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    value, folder, warm, process = run_in_new_process(surroundings, "CTRPIPE_OF_A_TEST")
    assert (value, folder) == ("é", str(tmp_path)) and process != os.getpid()
    assert run_in_new_process(surroundings, "HOME")[0] is None
    assert warm == ("PYTEST_XDIST_WORKER" in os.environ)
    said = capfd.readouterr()
    assert said.out == 2 * "said by it\n" and said.err == 2 * "and to standard error\n"


def compute(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="no process is forked without pytest-xdist")
def test_the_cpu_time_of_forks_that_have_ended_is_counted():
    before, end = children_seconds(), time.monotonic() + 30
    run_in_new_process(compute, 0.2)
    while children_seconds() < before + 0.15 and time.monotonic() < end:  # the process that is forked waits for them
        time.sleep(0.02)
    assert 0.15 <= children_seconds() - before < 1


def test_a_command_writes_where_it_is_started_and_ends_with_its_code(tmp_path):
    with start_warm("generate", "--rows", 5, "--output", "log.tsv", cwd=tmp_path, stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert len((tmp_path / "log.tsv").read_text().splitlines()) == 5
    with start_warm("generate", "--rows", 0, "--output", tmp_path / "a", stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and said.count("ctrpipe: ") == 1 and not (tmp_path / "a").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_command_takes_signals(tmp_path: pathlib.Path, number, code):
    flags = [f"--model_base_path={tmp_path}/absent", "--wait", "--port=0", f"--grpc_socket_path={tmp_path}/s"]
    with start_warm("serve", *flags, stderr=subprocess.PIPE) as process:
        assert "absent" in process.stderr.readline()
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == code


SAYS = """
import os, sys
print(sys.argv, __name__, os.getcwd(), os.environ.get("CTRPIPE_OF_A_TEST"), sys.stdin.read(), flush=True)
print(sorted({"keras", "jax", "tensorflow"} & {name for name, found in sys.modules.items() if found}), file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("backend", "other"), [("tensorflow", "jax"), ("jax", "tensorflow")])
def test_an_interpreter_of_a_backend_is_one_with_its_imports_done(tmp_path, backend, other):
    environment = {**os.environ, "CTRPIPE_OF_A_TEST": "é"}
    run = subprocess.run(
        [*python(backend), "-c", SAYS, "7", "b c"],
        **{"cwd": tmp_path, "env": environment, "input": "asked", "capture_output": True, "text": True},
    )
    assert (run.returncode, run.stdout) == (7, f"['-c', '7', 'b c'] __main__ {tmp_path} é asked\n"), run.stderr
    imported = ["jax", "keras"] if backend == "jax" else ["keras", "tensorflow"]
    assert run.stderr == (f"{imported}\n" if "PYTEST_XDIST_WORKER" in os.environ else "[]\n")


WAITS = """
import os, signal, sys, time
def end(*_):
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 5), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interpreter_takes_signals_and_leaves_nothing_behind(number, code):
    with subprocess.Popen([*python("tensorflow"), "-c", WAITS], stdout=subprocess.PIPE, text=True) as process:
        own = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(timeout=30) == code
    end = time.monotonic() + 30
    while psutil.pid_exists(own) and psutil.Process(own).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.02)
