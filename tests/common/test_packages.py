"""The package's parts: one name for each module, and the files that cannot import the list."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from ctrpipe.common.packages import PACKAGE, PARTS, code_files

ROOT = pathlib.Path(__file__).parents[2]


def test_every_folder_of_code_is_a_part_that_the_package_links_to():
    folders = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert folders - {"tests", "benchmarks", "studies", PACKAGE} == set(PARTS)
    links = {path.name: path.readlink().as_posix() for path in (ROOT / PACKAGE).iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in (*PARTS, "configs", "overrides.txt")}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_not_imported_under_a_second_name(part):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {part}"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith(f"ImportError: {part} is a folder of ctrpipe's source; import ctrpipe.{part}\n")


def test_nothing_in_the_checkout_imports_a_part_by_its_folder_alone():
    bare = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(PARTS)})\b", re.M)
    tracked = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = tracked.stdout.split()
    assert len(names) > 500 and [name for name in names if bare.search((ROOT / name).read_text())] == []


def test_the_type_checker_checks_every_part_strictly():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["files"] == [PACKAGE]
    strict = {
        name for override in settings["overrides"] if override.get("strict_equality") for name in override["module"]
    }
    own = {f"{PACKAGE}.{path.stem}".removesuffix(".__init__") for path in (ROOT / PACKAGE).glob("*.py")}
    assert strict == own | {f"{PACKAGE}.{part}.*" for part in PARTS}


def test_the_image_is_given_every_part():
    copied = re.findall(r"^COPY (\w+) \1$", (ROOT / "kubeflow" / "Dockerfile").read_text(), re.M)
    assert {name for name in copied if (ROOT / name).is_dir()} - {"configs"} == {PACKAGE, *PARTS}
    sent = re.findall(r"^!(\w+)$", (ROOT / "kubeflow" / "Dockerfile.dockerignore").read_text(), re.M)
    assert {name for name in sent if (ROOT / name).is_dir()} - {"configs"} == {PACKAGE, *PARTS}


def test_every_folder_of_code_is_a_package_that_a_wheel_has():
    """setuptools leaves out a folder without the file, which Python imports from a checkout all the same."""
    lacking = {file.parent for file in code_files(ROOT) if not (file.parent / "__init__.py").exists()}
    assert lacking == set()
