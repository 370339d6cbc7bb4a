"""Processes, and one function over many parts of a log."""

import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

import click
import numpy as np
import psutil
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import (
    Workers,
    _by_pool,
    _ToFile,
    child_process,
    cores,
    python_command,
    run_in_new_process,
    start_command,
    stop_command,
)

BEAM = ("--direct_num_workers=1",)
PLACES = {"one process": Workers(processes=1), "two processes": Workers(processes=2), "beam": Workers(beam_args=BEAM)}


def square(number: int) -> int:
    return number * number


def refuse(number: int, bad: int) -> int:
    if number == bad:
        raise InputError(f"part {number}: broken; write it again")
    return number


def process_id(_number: int) -> int:
    return os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_results_come_in_the_order_of_the_items(place, monkeypatch):
    # As in a notebook, where Beam would import its interactive runner, which pandas 3 has made impossible.
    monkeypatch.setattr("IPython.get_ipython", lambda: types.SimpleNamespace(config={}, execution_count=1))
    assert PLACES[place].map(square, range(5), seconds=0) == [0, 1, 4, 9, 16]


@pytest.mark.slow
def test_work_elsewhere_has_a_process_of_its_own_that_hands_back_result_or_mistake():
    assert run_in_new_process(process_id, 0) not in (os.getpid(), run_in_new_process(process_id, 0))
    with pytest.raises(InputError, match="^part 1: broken; write it again$"):
        run_in_new_process(refuse, 1, 1)


@pytest.mark.parametrize("place", PLACES)
def test_a_mistake_in_one_part_is_raised_as_it_was(place):
    with pytest.raises(InputError, match="^part 3: broken; write it again$"):
        PLACES[place].map(functools.partial(refuse, bad=3), range(5), seconds=0)


def test_a_cluster_sees_no_failure_in_a_mistake_and_skips_what_is_left(tmp_path, monkeypatch):
    """It would do the work again, as often as its restart strategy says."""
    monkeypatch.chdir(tmp_path)
    work = _ToFile(functools.partial(refuse, bad=1), tmp_path, b"k" * 32, tmp_path)
    for index in range(3):
        work((index, index))
    assert work.mistake.read_text() == "part 1: broken; write it again"
    assert [work.path(index).exists() for index in range(3)] == [True, False, False]


def size(path: str) -> int:
    return os.path.getsize(path)


def test_a_relative_path_is_the_commands_own_in_a_worker(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "log.tsv").write_text("0\n1\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    work = _ToFile(size, tmp_path, b"k" * 32, tmp_path)
    work((0, "log.tsv"))
    assert work.read(0) == 4


def test_a_job_server_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    address = f"--job_endpoint=127.0.0.1:{port}"
    with pytest.raises(InputError, match=f"^{address}: no job server answers .*Connection refused.*; start it, "):
        Workers(beam_args=("--runner=PortableRunner", address)).map(square, range(2), seconds=0)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("java.net.ConnectException: Connection refused", InputError),
        ("Could not complete the operation. Number of retries has been exhausted.", InputError),
        ("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down", InputError),
        ("java.lang.IllegalStateException: SparkContext has been shutdown", InputError),
        ("KeyError: 'C3'", RuntimeError),
    ],
)
def test_a_job_server_without_its_cluster_is_told_from_work_that_fails(monkeypatch, said, expected):
    def fail(*_):
        raise RuntimeError(f"Pipeline job failed in state FAILED: {said}")

    monkeypatch.setattr("apache_beam.Pipeline.run", fail)
    with pytest.raises(expected, match="failed in state FAILED"):
        PLACES["beam"].map(square, range(2), seconds=0)


@pytest.mark.slow
def test_little_work_stays_in_this_process_and_much_does_not():
    assert set(Workers().map(process_id, range(4), seconds=0.1)) == {os.getpid()}
    if cores() > 1:
        assert os.getpid() not in Workers().map(process_id, range(4), seconds=1000)


@pytest.mark.slow
def test_progress_counts_the_items_that_are_done():
    seen: list[int] = []
    Workers(processes=2).map(square, range(4), seconds=0, progress=seen.append)
    assert seen == [1, 2, 3, 4]


def hold_and_free(_number: int) -> int:
    """Returns the MiB that this process had before, then allocates 120 MiB and frees them."""
    before = psutil.Process().memory_info().rss >> 20
    pieces = [pa.array(np.arange(30_000)).cast(pa.string()) for _ in range(400)]
    del pieces
    return before


@pytest.mark.slow
def test_an_idle_worker_keeps_no_memory_that_its_work_has_freed():
    first, *later = _by_pool(hold_and_free, range(3), 1, lambda done: None, lambda results: None)
    assert max(later) < first + 60


SCRIPT = """
import os, resource, sys, time
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers, end_forked_workers, fork_workers

os.environ.setdefault("FIRST", str(os.getpid()))

def imported(_number):
    return "colorsys" in sys.modules

def has_wave(_number):
    return "wave" in sys.modules

def get_id(_number):
    return os.getpid()

def process_id(_number):
    time.sleep(0.5)  # long enough that the other process takes the other one
    return os.getpid()

def refuse(number):
    place = "the first process" if os.environ["FIRST"] == str(os.getpid()) else "a copy"
    raise InputError(f"part {number} in {place}: broken; write it again")

def report_and_sleep(_number):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once: two of them write to one pipe
    time.sleep(60)

def compute(_number):
    while time.process_time() < 0.35:
        pass

def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

if __name__ == "__main__":
"""


@pytest.fixture
def start(tmp_path):
    """Starts Python code in a separate process, in which nothing is warm yet."""

    def start(code: str) -> subprocess.Popen:
        (tmp_path / "script.py").write_text(SCRIPT + f"    {code}\n")
        pipe = subprocess.PIPE
        command = [sys.executable, tmp_path / "script.py"]
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    return start


FORK = "fork_workers('colorsys', 2)"


@pytest.mark.slow
def test_only_copies_of_a_warm_process_have_what_it_imported(start):
    assert start(f"{FORK}; print(Workers(processes=2).map(imported, [1, 2], 0))").communicate()[0] == ("[True, True]\n")
    assert start("print(Workers(processes=2).map(imported, [1, 2], 0))").communicate()[0] == "[False, False]\n"


@pytest.mark.slow
def test_copies_of_a_warm_process_stay_for_the_next_work_until_there_is_none_for_a_while(start):
    ids = "sorted(Workers(processes=2).map(process_id, [1, 2], 0))"
    said, _ = start(f"{FORK}; a, b = {ids}, {ids}; end_forked_workers(); print(a == b, a == {ids})").communicate()
    assert said == "True False\n"
    said, _ = start(f"a, b = {ids}, {ids}; print(set(a) & set(b))").communicate()
    assert said == "set()\n"


def test_short_work_goes_to_copies_that_wait_for_it_and_starts_none(start):
    code = f"""{FORK}
    def elsewhere(seconds):
        return os.getpid() not in Workers(most=2).map(get_id, [1, 2], seconds)
    print(elsewhere(0.6), elsewhere(5.0), elsewhere(0.6), elsewhere(0.01))"""
    assert start(code).communicate()[0] == "True True True False\n"


@pytest.mark.parametrize(
    ("most", "cores_alone", "seconds", "expected"),
    [(2, 1, 100.0, 2), (2, 2, 1e9, 1), (4, 2, 100.0, 4), (4, 2, 19.0, 1), (4, 1, 19.0, 4), (1, 1, 1e9, 1)],
)
def test_work_that_keeps_several_cores_busy_alone_is_given_away_only_where_more_are_free(
    most, cores_alone, seconds, expected, monkeypatch
):
    monkeypatch.setattr("ctrpipe.common.processes._by_pool", lambda _function, _items, number, *_: [number])
    found = Workers(most).map(abs, [1] * 8, seconds, start_seconds=10.0, cores_alone=cores_alone)
    assert found == ([1] * 8 if expected == 1 else [expected])


@pytest.mark.slow
def test_the_cpu_time_of_copies_is_known_when_they_have_ended(start):
    work = f"{FORK}; Workers(processes=2).map(compute, [1, 2], 0)"
    said, _ = start(
        f"{work}; a = children_seconds(); end_forked_workers(); print(a < 0.3 < children_seconds())"
    ).communicate()
    assert said == "True\n"
    again = "print(Workers(processes=2).map(imported, [1, 2], 0))"
    said, _ = start(f"{work}; end_forked_workers(); {again}; {FORK}; {again}").communicate()
    assert said == "[False, False]\n[True, True]\n"


@pytest.mark.slow
@pytest.mark.parametrize("warm", ["", FORK])
def test_a_script_without_a_guard_of_main_runs_once(tmp_path, warm):
    script = f"from ctrpipe.common.processes import *\nprint('once')\n{warm}\nw = Workers(processes=2)\n"
    (tmp_path / "script.py").write_text(script + "print(w.map(abs, [1, -2], 0), w.map(abs, [-3, 4], 0))\n")
    found = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("once\n[1, 2] [3, 4]\n", "")


def test_work_after_a_mistake_has_new_processes(start):
    mistake = "try: w.map(refuse, [1, 2], 0)\n    except InputError: print(w.map(imported, [1, 2], 0))"
    said, _ = start(f"{FORK}; w = Workers(processes=2)\n    {mistake}").communicate()
    assert said == "[False, False]\n"


def test_a_mistake_in_a_copy_is_raised_as_it_was(start):
    _, said = start(f"{FORK}; Workers(processes=2).map(refuse, [3, 3], 0)").communicate()
    assert said.endswith("InputError: part 3 in a copy: broken; write it again\n")


def test_a_fork_of_this_process_has_what_it_imported(start):
    work = "import wave; fork_workers('colorsys', 2)"
    assert start(f"{work}; print(Workers(processes=2).map(has_wave, [1, 2], 0))").communicate()[0] == "[True, True]\n"


def test_a_folder_is_unlocked_while_forks_hold_the_open_file_of_its_lock(start, tmp_path):
    lock = f"one_run_at_a_time(pathlib.Path({str(tmp_path)!r}))"
    code = f"""import pathlib; from ctrpipe.common.output_folder import one_run_at_a_time
    with {lock}: fork_workers('colorsys', 2)
    with {lock}: print(Workers(processes=2).map(imported, [1, 2], 0))"""
    assert start(code).communicate()[0] == "[True, True]\n"


@pytest.mark.parametrize("warm", ["pass", FORK])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_nobody_outlives_the_process_that_is_stopped(start, warm, number):
    process = start(f"{warm}; Workers(processes=2).map(report_and_sleep, [1, 2], 0)")
    workers = [int(process.stdout.readline()) for _ in range(2)]
    # A terminal interrupts the whole group.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    process.wait()
    end = time.monotonic() + 10
    while any(pathlib.Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < end
        time.sleep(0.05)
    if number == signal.SIGINT:
        assert process.stderr.read().count("Traceback") == 1  # the traceback of the process itself


def echo(prefix, connection):
    connection.send(os.getpid())
    while True:
        connection.send(f"{prefix} {connection.recv()}")


def test_a_child_talks_until_the_block_ends():
    with child_process(echo, "heard") as connection:
        child = connection.recv()
        connection.send("this")
        assert connection.recv() == "heard this"
        assert child != os.getpid() and pathlib.Path(f"/proc/{child}").exists()
    assert not pathlib.Path(f"/proc/{child}").exists()


def test_python_in_another_process_imports_what_this_one_does_and_nothing_beside_it(tmp_path):
    (tmp_path / "click.py").write_text("raise SystemExit('the file in the working directory')")
    code = "import click, json; print(json.dumps([click.__file__, sys.path, sys.argv]))"
    command = python_command(code, "a", "b")
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    file, path, arguments = json.loads(done.stdout)
    assert file == click.__file__ and arguments[1:] == ["a", "b"]
    assert path == [place or os.getcwd() for place in sys.path]


@pytest.mark.parametrize("ignores", [False, True])
def test_a_command_that_does_not_end_is_killed(ignores):
    trap = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " if ignores else ""
    code = f"{trap}import time; print(flush=True); time.sleep(60)"
    process = start_command([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    process.stdout.readline()
    stop_command(process, 0.2 if ignores else 30)
    assert process.returncode == (-signal.SIGKILL if ignores else -signal.SIGTERM)


def test_a_result_that_somebody_else_wrote_is_refused(tmp_path):
    work = _ToFile(square, tmp_path, b"k" * 32, pathlib.Path.cwd())
    for index in (0, 1):
        work((index, 3))
    assert work.read(0) == 9
    forged = work.path(0).read_bytes()[:32] + b"cos\nsystem\n(S'touch here'\ntR."
    for content in (forged, work.path(1).read_bytes(), b""):  # code; the result for another item; nothing
        work.path(0).write_bytes(content)
        with pytest.raises(InputError, match="0.pickle: another program wrote to this file; keep others out"):
            work.read(0)
    assert not pathlib.Path("here").exists()


def test_cores_are_all_of_the_machines_where_the_system_does_not_say_which_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5})
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


@pytest.mark.parametrize("kernel", ["Linux", "another"])
def test_a_process_ends_after_its_parent_whether_the_kernel_sees_to_it_or_not(kernel):
    without = (
        "import ctypes, types; ctypes.CDLL = lambda name: types.SimpleNamespace()\n" if kernel == "another" else ""
    )
    child = (
        f"import os, time\nfrom ctrpipe.common import processes\n{without}processes.PARENT_SECONDS = 0.05\n"
        "processes.end_with_parent()\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); input()"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", parent], env=environment, **pipes) as process:
        orphan = int(process.stdout.readline())
        os.kill(orphan, 0)
        process.kill()
    for _ in range(200):
        if not pathlib.Path(f"/proc/{orphan}").exists():
            return
        if pathlib.Path(f"/proc/{orphan}/stat").read_text().split()[2] == "Z":
            return  # ended, and nobody has asked how
        time.sleep(0.05)
    pytest.fail("it outlives its parent")
