"""Commands as they are printed for a shell."""

import pathlib
import shlex

import pytest

from ctrpipe.common import command_lines
from ctrpipe.common.command_lines import next_steps, shown


@pytest.mark.parametrize("length", [1, 12, 30])
def test_a_long_command_is_broken_into_lines_that_a_shell_joins(length):
    command = ["ctrpipe", *(f"--option{place} a'b {'x' * place}" for place in range(length))]
    lines = shown(command, 60).splitlines()
    assert all(len(line) <= 60 for line in lines) and all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split(shown(command, 60).replace("\\\n", "")) == command
    assert pathlib.Path(shlex.split(shown(["/a b/ctrpipe"]))[0]).name == "ctrpipe"


def test_the_next_commands_stand_below_their_title_and_fit_80_columns():
    long = ["ctrpipe", "score", *("--input", "a day/log.csv") * 6]
    lines = next_steps(["ctrpipe", "check", "it's.yaml"], long).splitlines()
    assert lines[0] == "Next:" and all(line.startswith("  ") and len(line) <= 80 for line in lines[1:])
    pasted = [shlex.split(command) for command in "\n".join(lines[1:]).replace("\\\n", "").splitlines()]
    assert pasted == [["ctrpipe", "check", "it's.yaml"], long]


@pytest.mark.parametrize("is_found", [True, False])
def test_a_command_that_the_shell_does_not_find_is_named_by_the_shorter_path(tmp_path, monkeypatch, is_found):
    own = tmp_path / "bin" / "ctrpipe"
    own.parent.mkdir()
    own.touch()
    monkeypatch.setattr(command_lines.sys, "executable", str(own.with_name("python")))
    monkeypatch.setattr(command_lines.shutil, "which", lambda name: name if is_found else None)
    monkeypatch.chdir(tmp_path)
    assert command_lines.command_name() == ("ctrpipe" if is_found else "bin/ctrpipe")
    far = tmp_path.joinpath(*["x"] * len(own.parts))
    far.mkdir(parents=True)
    monkeypatch.chdir(far)
    up = "/".join([".."] * len(own.parts)) + "/bin/ctrpipe"
    assert command_lines.command_name() == ("ctrpipe" if is_found else min(up, str(own), key=len))
