"""What a run of the tests does with its processes and their files, seen in small runs of pytest."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

import pytest

from tests.conftest import places_of
from tests.worker_memory import FILE_MB, GROWTH_MB, LARGE_FILE_MB, LEAST_MB, bound_mb, replaced_above_mb, worth_starting

ROOT = pathlib.Path(__file__).parents[1]
PLUGINS = "pytest_plugins = ['tests.temporary_folder', 'tests.worker_memory']\n"
# The other workers have ended once their pipe is closed, which may take a moment.
ALONE = """
import contextlib, os, pathlib, psutil, time
def holds_memory(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
def test_alone():
    pathlib.Path({folder!r}, str(os.getpid())).touch()
    others = [int(path.name) for path in pathlib.Path({folder!r}).iterdir() if path.name != str(os.getpid())]
    end = time.monotonic() + 10
    while any(map(holds_memory, others)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(holds_memory, others))
"""
GARBAGE = """
import gc, os, pathlib
gc.disable()
class Holder:
    pass
def test_leaves_garbage():
    pathlib.Path({folder!r}, str(os.getpid())).touch()
    holder = Holder()
    holder.itself, holder.memory = holder, b"x" * 2**29
def test_comes_after_it():
    pass
"""
GARBAGE_OF_EACH = """
import gc, pytest
gc.disable()
class Holder:
    pass
@pytest.mark.parametrize("number", range(6))
def test_leaves_garbage(number):
    holder = Holder()
    holder.itself, holder.memory = holder, b"x" * 2**28
"""
LEAVES = """
import pathlib, subprocess, sys, tempfile
def test_leaves(tmp_path):
    names = [tempfile.mkdtemp()]
    code = "import tempfile; print(tempfile.mkdtemp())"
    names.append(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
    assert all(pathlib.Path(name).is_dir() for name in names)
    pathlib.Path({note!r}).write_text("\\n".join([*names, str(tmp_path)]))
"""


def run(folder: pathlib.Path, files: dict[str, str], *arguments: str, code: int = 0) -> str:
    """Runs these files with the plugins, as a run that nobody else has prepared; returns what it said."""
    for name, text in {"conftest.py": PLUGINS, **files}.items():
        (folder / name).write_text(text)
    removed = ("TMPDIR", "PYTEST_DEBUG_TEMPROOT", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID", "PYTEST_ADDOPTS")
    environment = {key: value for key, value in os.environ.items() if key not in removed}
    # Without the plugins of hypothesis and anyio, which take most of the time of such a run and of its processes.
    environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist.plugin", *arguments]
    command += ["--rootdir", folder, folder]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_this_run_has_a_temporary_folder_of_its_own():
    assert tempfile.gettempdir() == os.environ["TMPDIR"]
    assert pathlib.Path(tempfile.gettempdir()).name.startswith("ctrpipe-tests-")


@pytest.mark.parametrize(
    ("processors", "available_mb", "started"),
    [(2, 23_000, 3), (4, 64_000, 5), (2, 2 * LEAST_MB, 2), (8, 16_000, 4), (2, 1000, 1)],
)
def test_a_process_more_than_cores_waits_for_servers_where_the_memory_is_enough(processors, available_mb, started):
    assert worth_starting(processors, available_mb) == started


@pytest.mark.parametrize(
    ("workers", "available_mb", "bound"), [(3, 24_000, 6000), (3, 2 * LEAST_MB, LEAST_MB), (1, 1000, LEAST_MB)]
)
def test_a_process_may_take_its_share_of_what_servers_leave(workers, available_mb, bound):
    assert bound_mb(workers, available_mb) == bound


@pytest.mark.slow
def test_a_process_above_its_bound_fails_the_run(tmp_path):
    files = {"test_a.py": "def test_passes(): pass\n"}
    said = run(tmp_path, files, "-n", "1", "--dist", "loadfile", "--worker-memory", "1", code=1)
    assert "1 passed" in said and "FAILED 1 test processes" in said and "above 1 MB" in said


@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param("0", marks=pytest.mark.large), "1"])
def test_what_a_run_leaves_in_its_temporary_folder_goes_with_it(tmp_path, processes):
    run(tmp_path, {"test_a.py": LEAVES.format(note=str(tmp_path / "note"))}, "-n", processes)
    *left, own = map(pathlib.Path, (tmp_path / "note").read_text().splitlines())
    assert len(left) == 2 and {path.parent.parent for path in left} == {tmp_path}
    assert not left[0].parent.exists() and left[0].parent == left[1].parent
    assert not own.is_relative_to(left[0].parent)  # pytest keeps the folders of tests that failed


@pytest.mark.slow
def test_what_a_killed_run_left_goes_with_the_next(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    folders = [tmp_path / f"ctrpipe-tests-{process}-x" for process in (ended.pid, os.getpid())]
    for folder in folders:
        folder.mkdir()
    run(tmp_path, {"test_a.py": "def test_nothing(): pass"}, "-p", "no:xdist")
    assert [folder.exists() for folder in folders] == [False, True]


@pytest.mark.parametrize(
    ("lane", "adds"), [("not large", FILE_MB), ("slow and not large", FILE_MB), ("", LARGE_FILE_MB)]
)
def test_a_process_is_replaced_while_what_a_file_adds_still_fits(lane, adds):
    config = types.SimpleNamespace(option=types.SimpleNamespace(markexpr=lane, worker_memory=5000))
    assert replaced_above_mb(config) == 5000 - adds


@pytest.mark.slow
def test_a_worker_that_has_grown_ends_before_another_takes_its_place(tmp_path):
    (tmp_path / "ids").mkdir()
    files = {f"test_{name}.py": ALONE.format(folder=str(tmp_path / "ids")) for name in "abcd"}
    said = run(tmp_path, files, "-n", "1", "--dist", "loadfile", "--worker-memory", str(LARGE_FILE_MB))
    processes = len(list((tmp_path / "ids").iterdir()))
    assert processes > 1 and f"{processes} test processes" in said


@pytest.mark.slow
def test_a_worker_full_of_garbage_goes_on(tmp_path):
    (tmp_path / "ids").mkdir()
    files = {f"test_{name}.py": GARBAGE.format(folder=str(tmp_path / "ids")) for name in "abc"}
    said = run(tmp_path, files, "-n", "1", "--dist", "loadfile", "--worker-memory", str(512 + LARGE_FILE_MB))
    assert len(list((tmp_path / "ids").iterdir())) == 1 and "1 test processes" in said


@pytest.mark.slow
def test_the_garbage_of_a_files_tests_does_not_add_up(tmp_path):
    files = {"test_garbage.py": GARBAGE_OF_EACH}
    said = run(tmp_path, files, "-n", "1", "--dist", "loadfile", "--worker-memory", "8000")
    (peak,) = re.findall(r"1 test processes, of at most ([\d,]+) MB", said)
    assert int(peak.replace(",", "")) < 3 * 256 + GROWTH_MB


@pytest.mark.slow
def test_a_run_whose_further_processes_do_not_start_has_failed(tmp_path):
    text = f"{PLUGINS}import os, pytest\n"
    text += "if os.environ.get('PYTEST_XDIST_WORKER') not in (None, 'gw0'):\n    raise pytest.UsageError('no')\n"
    files = {f"test_{name}.py": "def test_passes(): pass\n" for name in "abcd"}
    small = ("--worker-memory", str(LARGE_FILE_MB))
    said = run(tmp_path, {**files, "conftest.py": text}, "-n", "1", "--dist", "loadfile", *small, code=1)
    assert "2 passed" in said and "FAILED: 2 files were not run" in said


@pytest.mark.slow
def test_a_crash_of_a_worker_is_reported_as_the_failure_of_its_test(tmp_path):
    files = {"test_a.py": "import os\ndef test_crashes(): os._exit(1)\n"}
    said = run(tmp_path, files, "-n", "1", "--dist", "loadfile", "--max-worker-restart", "0", code=1)
    assert "crashed while running 'test_a.py::test_crashes'" in said and "1 failed" in said


@pytest.mark.slow
def test_a_test_that_crashes_its_worker_is_not_run_again_and_the_others_are(tmp_path):
    crashes = f"def test_crashes():\n    os.mkdir({str(tmp_path / 'once')!r})\n    os._exit(1)\n"
    files = {"test_a.py": f"import os\n{crashes}def test_comes_after_it(): pass\n", "test_b.py": "def test_b(): pass\n"}
    said = run(tmp_path, files, "-n", "1", "--dist", "loadfile", code=1)
    assert "1 failed, 2 passed" in said


def test_workers_begin_with_other_folders_and_collect_the_same():
    places = [places_of(worker, 3) for worker in range(3)]
    assert len({first for first, *_ in places}) == 3 and len({frozenset(of_one) for of_one in places}) == 1
    assert places_of(7, 3) == places[1]  # one in the place of another that has grown
    files = list((ROOT / "tests").rglob("test_*.py"))
    assert [file for file in files if not any(file.is_relative_to(place) for place in places[0])] == []
