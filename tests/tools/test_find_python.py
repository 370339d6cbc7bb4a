"""Which Python `make` takes: the newest that fits, as stand-ins of interpreters and of uv are found in PATH."""

import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "find_python.sh"


@pytest.fixture
def find(tmp_path):
    """Runs the script on a system of some glibc with some interpreters; returns its code and what it says."""
    for tool in ("sh", "sed", "getconf"):
        (tmp_path / tool).symlink_to(shutil.which(tool))

    def interpreter(name: str, version: str, can_make_environments: bool) -> None:
        """`-c CODE VERSION` asks whether it fits, `-c CODE` whether it is supported or has the module ensurepip."""
        asked = f'if [ $# = 3 ]; then [ "$3" = {version} ] && {str(can_make_environments).lower()}; exit; fi\n'
        supported = str(version in ("3.11", "3.12", "3.13")).lower()
        rest = f'case "$2" in *version_info*) {supported} ;; *) {str(can_make_environments).lower()} ;; esac\n'
        (tmp_path / name).write_text(f"#!/bin/sh\n{asked}{rest}")
        (tmp_path / name).chmod(0o755)

    def find(glibc: str, uv: str = "", bare: tuple[str, ...] = (), **versions: str) -> tuple[int, str]:
        for name, version in versions.items():
            interpreter(name.replace("_", "."), version, name not in bare)
        if uv:
            (tmp_path / "uv").write_text(f"#!/bin/sh\n{uv}\n")
            (tmp_path / "uv").chmod(0o755)
        environment = {"PATH": str(tmp_path), "FIND_PYTHON_GLIBC": glibc}
        done = subprocess.run(["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True)
        return done.returncode, (done.stdout or done.stderr).strip().removeprefix(f"{tmp_path}/")

    return find


ALL = {"python3_11": "3.11", "python3_12": "3.12", "python3_13": "3.13", "python3": "3.13"}


@pytest.mark.parametrize(
    ("glibc", "name"), [("2.41", "python3.13"), ("2.39", "python3.13"), ("2.38", "python3.11"), ("2.36", "python3.11")]
)
def test_the_newest_that_has_wheels_for_this_glibc(find, glibc, name):
    assert find(glibc, **ALL) == (0, name)


def test_one_that_cannot_make_environments_or_is_too_new_is_passed_over(find):
    assert find("2.41", bare=("python3_13", "python3"), **ALL) == (0, "python3.12")
    assert find("2.41", python3="3.14") == (0, "python3.12")


def test_the_systems_own_python3_where_it_fits(find):
    assert find("2.41", python3="3.12") == (0, "python3")


def test_uv_brings_one_where_none_fits(find):
    install, there = ': > "$0.installed"', '[ -e "$0.installed" ] && echo "of uv $*"'
    uv = f'case "$1 $2" in "python install") {install} ;; "python find") {there} ;; esac'
    assert find("2.36", uv, python3="3.13") == (0, "of uv python find --managed-python --no-project 3.11")


def test_without_any_it_says_which_fit_in_a_line(find):
    code, said = find("2.36", python3="3.13")
    assert (code, said.count("\n")) == (2, 0)
    assert said == (
        "ctrpipe needs Python 3.11 on this system (glibc 2.36); python3 is here, but needs glibc 2.39; "
        "install one, or uv, or set PYTHON=/path/to/python"
    )
    assert (
        "Python 3.13, 3.12, 3.11 on this system (glibc 2.41); python3 is here, but lacks the module ensurepip"
        in (find("2.41", bare=("python3",), python3="3.13")[1])
    )
