"""docs/how-to/add-a-model.md is followed literally, on a copy of the repository.

A comment before a block says what to do with its text: `<!-- writes PATH -->`, `<!-- adds to PATH after LINE -->` (or
`before LINE`) and `<!-- replaces in PATH the line LINE -->`, where the first line that begins with LINE counts.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from tests.warm_python import VARIABLE

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "add-a-model.md"
STEP = re.compile(
    r"^ *<!-- (?:(?P<new>writes) (?P<file>\S+)|(?:adds to|replaces in) (?P<path>\S+) "
    r"(?P<how>after|before|the line) (?P<line>.+?)) -->\n *```\w+\n(?P<text>.*?)^ *```$",
    re.M | re.S,
)


def steps() -> list[re.Match[str]]:
    return list(STEP.finditer(PAGE.read_text()))


def place(text: str, line: str) -> int:
    """The number of the first line of a file that begins so, indented or not."""
    found = [n for n, one in enumerate(text.splitlines()) if one.strip().startswith(line.strip())]
    assert found, f"no line begins with {line}"
    return found[0]


def apply(step: re.Match[str], root: pathlib.Path) -> None:
    block = textwrap.dedent(step["text"])
    if step["new"]:
        path = root / step["file"]
        assert not path.exists() and path.parent.is_dir(), path
        path.write_text(block)
        return
    path = root / step["path"]
    lines = path.read_text().splitlines(keepends=True)
    at = place("".join(lines), step["line"])
    indent = re.match(" *", lines[at])[0]  # type: ignore[index]
    added = textwrap.indent(block, indent) + ("\n\n" if block.startswith("@") else "")  # a function
    if step["how"] == "the line":
        lines[at] = added
    else:
        lines.insert(at + (step["how"] == "after"), added)
    path.write_text("".join(lines))


def copy_of_the_repository(folder: pathlib.Path) -> pathlib.Path:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def test_the_places_of_the_page_are_there():
    assert len(steps()) == 9
    for step in steps():
        if step["new"]:
            assert (ROOT / step["file"]).parent.is_dir() and not (ROOT / step["file"]).exists()
        else:
            place((ROOT / step["path"]).read_text(), step["line"])


@pytest.mark.large(like="tests/test_add_a_model.py::test_the_places_of_the_page_are_there")
def test_the_steps_of_the_page_add_a_model(tmp_path):
    root = copy_of_the_repository(tmp_path / "copy")
    for step in steps():
        apply(step, root)
    # The processes of this run that wait to be forked have not the new model.
    kept = {key: value for key, value in os.environ.items() if not key.startswith((VARIABLE, "PYTEST_XDIST"))}
    own = kept | {"PYTHONPATH": str(root)}

    def run(*words: str) -> None:
        done = subprocess.run([sys.executable, *words], cwd=root, env=own, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout[-5000:]}\n{done.stderr[-3000:]}"

    run("-m", "ctrpipe.pipeline.run.model_sizes")
    [asked] = re.findall(r"^\.venv/bin/python -m pytest (.*) -k \"(.*)\"$", PAGE.read_text(), re.M)
    run("-m", "pytest", *asked[0].split(), "-k", asked[1], "-q", "-x", "-p", "no:cacheprovider")
    run("-m", "ruff", "check", "models/fwfm.py", "models/base/registry.py")
    run("-m", "ruff", "format", "--check", "models/fwfm.py", "models/base/registry.py")
