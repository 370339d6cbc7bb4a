"""Which Python runs the whole pipeline on which system, and the line that installs it there."""

import os
import platform
import shutil
import sys

import pytest

from ctrpipe.common import extras, wheels

OLD, NEW = "glibc 2.36", "glibc 2.39"
PIP = "pip install 'ctrpipe[pipeline]'"


@pytest.fixture
def system(monkeypatch):
    """Pretends to be a system: its Python, its C library, its processor, and whether it has a compiler."""

    def system(python: str, libc: str, machine: str = "x86_64", compiler: bool = True) -> None:
        version = tuple(map(int, python.split(".")))
        monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
        monkeypatch.setattr(os, "confstr", lambda name: libc)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if compiler else None)
        monkeypatch.setattr(wheels.pathlib.Path, "exists", lambda path: path.name == "Python.h")

    return system


@pytest.mark.parametrize(
    ("python", "libc", "reason"),
    [
        ("3.11", "glibc 2.28", ""),
        ("3.12", NEW, ""),
        ("3.13", "glibc 2.41", ""),
        ("3.10", NEW, "the pipeline needs Python 3.11, 3.12 or 3.13, and this is 3.10"),
        ("3.14", NEW, "the pipeline needs Python 3.11, 3.12 or 3.13, and this is 3.14"),
        ("3.12", "glibc 2.9", "with Python 3.12 TFX needs glibc 2.39, and this system has glibc 2.9; use Python 3.11"),
        ("3.13", OLD, "with Python 3.13 TFX needs glibc 2.39, and this system has glibc 2.36; use Python 3.11"),
        ("3.13", None, "TFX has wheels for Linux on x86-64 with glibc alone, and this is x86_64 with another libc"),
    ],
)
def test_a_python_and_a_c_library_without_wheels_say_what_has_some(system, python, libc, reason):
    system(python, libc)
    assert wheels.unfit() == reason
    assert extras.install("pipeline") == (reason or extras.install("pipeline"))


def test_another_processor_has_no_wheels(system):
    system("3.13", NEW, "aarch64")
    assert wheels.unfit().endswith("and this is aarch64 with glibc 2.39")


@pytest.mark.parametrize(
    ("python", "libc", "compiler", "plain"),
    [("3.13", NEW, True, True), ("3.11", NEW, True, True), ("3.11", OLD, True, False), ("3.13", NEW, False, False)],
)
def test_pip_alone_is_advised_where_it_can(system, python, libc, compiler, plain):
    system(python, libc, compiler=compiler)
    overridden = f"python -m uv pip install --override {extras.OVERRIDES} 'ctrpipe[pipeline]'"
    assert extras.install("pipeline") == (PIP if plain else f"pip install uv && {overridden}")
    assert extras.install("text") == "pip install 'ctrpipe[text]'"


def test_the_overrides_come_with_the_package():
    assert "ml-metadata==1.17.1" in extras.OVERRIDES.read_text()
