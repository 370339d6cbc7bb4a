"""What a file of tests depends on, and the run that leaves out files without a change."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests import closure

ROOT = pathlib.Path(__file__).parents[1]
FILES = {
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\n",
    "ctrpipe/__init__.py": "",
    "ctrpipe/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ctrpipe import b\nNUMBER = 1\n",
    "ctrpipe/b.py": "def number():\n    from ctrpipe.a import NUMBER\n    return NUMBER\n",
    "ctrpipe/started.py": "",
    "ctrpipe/common/__init__.py": "",
    "ctrpipe/common/packages.py": (ROOT / "common" / "packages.py").read_text(),
    "ctrpipe/pipeline/__init__.py": "",
    "ctrpipe/pipeline/cli.py": "",
    "ctrpipe/pipeline/commands/__init__.py": "",
    "ctrpipe/pipeline/commands/look_at.py": "from ctrpipe import a\n",
    "ctrpipe/pipeline/commands/other.py": "",
    "docs/page.md": "page",
    "configs/small.yaml": "small",
    "tests/__init__.py": "",
    "tests/conftest.py": "import ctrpipe.started\npytest_plugins = ['tests.changed']\n",
    "tests/changed.py": (ROOT / "tests" / "changed.py").read_text(),
    "tests/closure.py": (ROOT / "tests" / "closure.py").read_text(),
    "tests/test_a.py": '"""Not of ctrpipe.b."""\nfrom ctrpipe import a\n\ndef test_a():\n    assert a.NUMBER\n',
    "tests/test_b.py": "from ctrpipe import b\n\ndef test_b():\n    assert b.number() == 1\n",
    "tests/test_page.py": "NAME = 'docs/page.md'\n\ndef test_page():\n    assert open(NAME).read()\n",
    "tests/test_started.py": "CODE = 'import ctrpipe.started; print()'\n\ndef test_started():\n    pass\n",
    "tests/test_command.py": "COMMAND = ['ctrpipe', 'look-at', '--help']\n\ndef test_command():\n    pass\n",
    "tests/part/test_part.py": "def test_part():\n    pass\n",
    "tests/part/golden/expected.txt": "1",
}


@pytest.fixture
def project(tmp_path):
    """A small project with the closure of this one."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text(".pytest_cache\n__pycache__\n")
    return tmp_path


def names(project, file) -> set[str]:
    found = closure.closure(project / "tests" / file, project)
    ours = {"tests/__init__.py", "tests/conftest.py", "tests/changed.py", "tests/closure.py", "ctrpipe/__init__.py"}
    return {str(path.relative_to(project)) for path in found} - ours - {f"tests/{file}"}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("test_a.py", {"ctrpipe/a.py"}),
        ("test_b.py", {"ctrpipe/a.py", "ctrpipe/b.py"}),
        ("test_page.py", set()),
        ("test_started.py", {"ctrpipe/started.py"}),
        (
            "test_command.py",  # the command line imports its commands by their names
            {
                *("ctrpipe/pipeline/__init__.py", "ctrpipe/pipeline/cli.py"),
                *("ctrpipe/pipeline/commands/look_at.py", "ctrpipe/a.py"),
            },
        ),
    ],
)
def test_a_file_depends_on_what_it_imports_and_on_what_it_starts(project, file, expected):
    assert names(project, file) == expected


def run(project: pathlib.Path, *arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """Runs its tests with --changed; returns what it said of them and of the files left out."""
    removed = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID", "PYTEST_ADDOPTS", "CI")
    kept = {key: value for key, value in os.environ.items() if key not in removed}
    kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take a second
    command = [sys.executable, "-m", "pytest", "-q", "--changed", *arguments]
    done = subprocess.run(
        command, cwd=project, env={**kept, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1].partition(" in ")[0], next((line for line in lines if "have not changed" in line), "")


@pytest.mark.slow
def test_files_whose_code_and_data_are_those_of_a_run_that_passed_are_left_out(project):
    options = ("-p", "xdist", "-n", "1", "--dist", "loadfile")
    assert run(project, *options) == ("6 passed", "0 of 6 files of tests passed before and have not changed")
    assert run(project) == ("no tests ran", "6 of 6 files of tests passed before and have not changed")
    (project / "ctrpipe" / "b.py").write_text("def number():\n    return 2\n")
    assert run(project, *options, code=1) == ("1 failed", "5 of 6 files of tests passed before and have not changed")
    (project / "docs" / "page.md").write_text("other")
    assert run(project, *options, code=1)[0] == "1 failed, 1 passed"
    (project / "ctrpipe" / "b.py").write_text(FILES["ctrpipe/b.py"])
    (project / "tests" / "part" / "golden" / "expected.txt").write_text("2")
    assert run(project)[0] == "2 passed"  # the one that failed since it had passed, and the one beside the file


@pytest.mark.slow
def test_a_run_of_chosen_tests_or_of_another_lane_says_nothing_of_a_file(project):
    run(project, "-k", "test_a")
    run(project, "tests/test_a.py::test_a")
    assert run(project)[0] == "6 passed"
    assert run(project, "-m", "not slow")[0] == "6 passed"


def test_ci_leaves_nothing_out(project):
    said, _ = run(project, code=4, CI="true")
    assert said == "ERROR: --changed leaves tests out, and CI runs them all"
    of_ci = [ROOT / ".ci" / "run", *(ROOT / ".github" / "workflows").glob("*.yml")]
    assert len(of_ci) >= 2 and not [path.name for path in of_ci if "changed" in path.read_text()]
    lanes = (ROOT / "Makefile").read_text().partition("\ntest-all:")[0].splitlines()
    assert [line for line in lanes if "--changed" in line] == ['\t$(pytest) -m "not large" --changed']
