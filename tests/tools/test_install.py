"""What `make install` says while it installs, and that it installs what is locked and nothing else."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

from ctrpipe.common import wheels

ROOT = pathlib.Path(__file__).parents[2]


def script(name):
    """A file of tools/, which is not a package, as a module."""
    described = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


install, compile_bytecode = script("install"), script("compile_bytecode")
LOCKS = sorted((ROOT / "locks").glob("*.lock"))
# What uv draws in a terminal, without its escape sequences.
FETCHES = (
    "⠙ Preparing packages... (1/4)\n"
    "small                ------------------------------ 100.00 KiB/200.00 KiB\n"
    "tensorflow           ------------------------------ 100.00 MiB/500.00 MiB\n"
)


def names(lock: pathlib.Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)(?:\[.*?\])?==", lock.read_text(), re.M))


def test_each_python_that_fits_has_a_lock_of_one_shape():
    assert [lock.stem for lock in LOCKS] == [".".join(map(str, python)) for python in wheels.PYTHONS]
    for lock in LOCKS:
        text = lock.read_text()
        assert len(re.findall(r"^[a-z0-9].*== ?\S+ \\\n    --hash=sha256:", text, re.M)) == len(names(lock))
        assert {"tfx", "ml-metadata", "pytest", "uv", "setuptools-scm"} <= names(lock)
        assert "://" not in re.sub(r"^ *#.*", "", text, flags=re.M) and "index-url" not in text


def test_the_older_packages_of_tfx_are_locked_for_the_oldest_python_alone():
    pinned = [
        re.findall(r"^(?:ml-metadata|tensorflow-data-validation)==(\S+)", lock.read_text(), re.M) for lock in LOCKS
    ]
    assert pinned == [["1.17.1", "1.16.1"], ["1.21.0", "1.21.0"], ["1.21.0", "1.21.0"]]


def test_the_large_wheels_of_the_estimate_are_in_the_locks():
    assert all(set(install.LARGE_MB) <= names(lock) for lock in LOCKS)


def test_what_uv_draws_is_read():
    packages = install.Packages(10)
    packages.read("Resolved 10 packages in 3ms\n")
    assert str(packages) == "puts packages in place, 0 of 10"
    packages.read(FETCHES)
    done, of = packages.megabytes
    assert packages.fetched == 1 and packages.to_fetch == 4
    # 0.1 and 105 MB of the two that it names, one more is done; two of the four are not named, 1 MB each.
    assert done == pytest.approx(0.1 + 105 + 1) and of == pytest.approx(0.2 + 525 + 2)
    assert packages.seconds_left(10) == pytest.approx((of - done) / (done / 10) + 0.1)
    packages.read("███░░░ [5/10] tensorflow==2.21.0\n")
    assert str(packages) == "puts packages in place, 5 of 10" and packages.seconds_left(99) < 1


def test_with_an_empty_cache_the_large_ones_are_counted_before_they_are_named():
    packages = install.Packages(12)
    packages.read("Preparing packages... (0/12)")
    _, of = packages.megabytes
    assert of == pytest.approx(sum(install.LARGE_MB.values()) + 1.0 * (12 - len(install.LARGE_MB)))


class Said:
    """Where a display draws: a terminal or a file."""

    def __init__(self, terminal: bool):
        self.text, self.isatty = "", lambda: terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_has_one_line_with_a_bar_and_a_file_has_a_line_now_and_then(monkeypatch, terminal):
    said, clock = Said(terminal), [100.0]
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(install.time, "monotonic", lambda: clock[0])
    display = install.Display(install.Packages(290))
    for step in ("environment", "uv", "packages", "bytecode", "ctrpipe"):
        display.begin(step)
        for _ in range(20):
            clock[0] += 1.0
            display.tick()
    assert re.search(r"\d+%  compiles bytecode, 0 of 300 MB, \d+ s left", said.text)
    assert said.text.count("\n") == (0 if terminal else 11) and ("\r" in said.text) == terminal
    assert bool(re.search(r"\[#+-+\] +\d+%  makes .venv", said.text)) == terminal


def test_the_seconds_left_go_down_while_nothing_but_time_is_wrong(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(install.time, "monotonic", lambda: clock[0])
    display = install.Display(install.Packages(290))
    display.begin("bytecode")
    clock[0] = 10.0
    display.compiled, display.source = 100_000, 300_000
    assert display.seconds_left() == pytest.approx(20 + install.SMALL_STEPS_S["ctrpipe"] + 8, abs=0.1)


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """The commands that an installation would run, and the code that one of them ends with, by a word in it."""
    found, codes = [], {}

    def run(command, display, read=None, **variables):
        found.append(command)
        word = next((word for word in codes if word in " ".join(command)), "")
        if word:
            raise subprocess.CalledProcessError(codes[word], command[0], "error: no connection")
        return ""

    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(install, "index", lambda pip: {})
    (tmp_path / "venv").mkdir()
    return found, codes, tmp_path / "venv"


def test_only_what_is_locked_is_installed_and_every_hash_checked(commands):
    found, _, folder = commands
    install.install(folder, LOCKS[0], install.Display(install.Packages(9)))
    by = [command for command in found if "install" in command]
    assert len(by) == 3 and all("--no-deps" in command for command in by)
    assert all("--require-hashes" in command for command in by[:2]) and "--no-build-isolation" in by[2]
    assert by[1][-1] == str(LOCKS[0]) and "-e" in by[2]
    assert [line[:4] for line in (folder / "uv.lock").read_text().splitlines()][0] == "uv=="
    assert names(folder / "uv.lock") == {"uv"}


def test_pip_installs_all_where_uv_fails(commands, capsys):
    found, codes, folder = commands
    codes["/uv pip install"] = 2
    with pytest.raises(subprocess.CalledProcessError):  # uv also installs ctrpipe, in the end
        install.install(folder, LOCKS[0], install.Display(install.Packages(9)))
    [by_pip] = [command for command in found if command[1:3] == ["-m", "pip"] and command[-1] == str(LOCKS[0])]
    assert {"--no-deps", "--require-hashes"} <= set(by_pip)
    assert "error: no connection\nuv failed; pip installs them" in capsys.readouterr().err


def test_an_environment_of_another_python_is_emptied(tmp_path):
    assert install._clear(tmp_path) == []
    (tmp_path / "lib" / "python3.10").mkdir(parents=True)
    assert install._clear(tmp_path) == ["--clear"]
    (tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}").mkdir()
    assert install._clear(tmp_path) == []


def test_a_command_that_fails_hands_on_what_it_said(tmp_path):
    display = install.Display(install.Packages(1))
    display._step = "uv"
    seen = []
    code = "import sys; print('\\x1b[31mhello\\x1b[0m'); sys.exit(3)"
    with pytest.raises(subprocess.CalledProcessError) as error:
        install.run([sys.executable, "-c", code], display, seen.append)
    assert error.value.returncode == 3 and "hello" in error.value.output and "\x1b" not in "".join(seen)


def test_bytecode_is_compiled_but_for_what_nearly_nobody_imports(tmp_path):
    left_out = ("a/tests/x.py", "b/c_test.py", "b/test_c.py", "google/cloud/aiplatform_v1/x.py", "vertexai/x.py")
    taken = ("a/testing.py", "b/latest/x.py", "google/cloud/storage/x.py", "a/contest.py")
    for name in (*left_out, *taken):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n" * len(name))
    found = compile_bytecode.files(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path, _ in found} == set(taken)
    assert [size for _, size in found] == sorted((size for _, size in found), reverse=True)
    assert compile_bytecode.compile_one(found[0]) == found[0][1]
    assert list(found[0][0].parent.glob("__pycache__/*.pyc"))
