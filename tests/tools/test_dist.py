"""A release: the source distribution and the wheel of a commit, byte by byte the same from any clone of it."""

import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest

from ctrpipe.common.packages import PARTS

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def built(clone: pathlib.Path, output: pathlib.Path, umask: int) -> dict[str, bytes]:
    """What tools/dist.py builds in a clone of this repository's last commit, by file name."""
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True, umask=umask)
    (clone / "common" / "not_committed.py").touch()
    command = [sys.executable, clone / "tools" / "dist.py", output]
    subprocess.run(command, check=True, capture_output=True, umask=umask, cwd=clone)
    return {path.name: path.read_bytes() for path in output.iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    return built(folder / "clone", folder / "dist", 0o22)


@pytest.mark.large(like="tests/test_wheel.py::test_the_wheel_takes_one_name")
def test_a_commit_gives_the_same_bytes_again(release, tmp_path):
    """From a clone at another place, made and built with other rights of files."""
    assert built(tmp_path / "clone", tmp_path / "dist", 0o77) == release and len(release) == 2


@pytest.mark.large(like="tests/test_wheel.py::test_the_wheel_takes_one_name")
def test_the_source_distribution_has_each_file_once_and_the_wheel_what_is_installed(release, tmp_path):
    for name, content in release.items():
        (tmp_path / name).write_bytes(content)
    [archive], [wheel] = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(archive) as file:
        members = file.getmembers()
    assert all(member.isfile() for member in members) and len({member.mtime for member in members}) == 1
    names = [member.name.partition("/")[2] for member in members]
    assert {name.partition("/")[0] for name in names} == {
        *("ctrpipe", "ctrpipe.egg-info", "locks"),
        *("CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py"),
    }
    inside = {name.split("/")[1] for name in names if name.startswith("ctrpipe/")}
    assert {*PARTS, "configs", "overrides.txt"} <= inside and not any("not_committed" in name for name in names)
    assert len(names) == len(set(names))
    with zipfile.ZipFile(wheel) as file:
        installed = {name for name in file.namelist() if ".dist-info/" not in name}
    assert installed == {name for name in names if name.startswith("ctrpipe/")}


@pytest.mark.large(like="tests/test_wheel.py::test_the_wheel_takes_one_name")
def test_what_is_published_passes_the_indexs_checks(release, tmp_path):
    for name, content in release.items():
        (tmp_path / name).write_bytes(content)
    twine = pathlib.Path(sys.executable).with_name("twine")
    environment = {**os.environ, "COLUMNS": "400"}
    command = [twine, "check", "--strict", *tmp_path.iterdir()]
    checked = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert checked.returncode == 0 and checked.stdout.count("PASSED") == 2, checked.stdout + checked.stderr
