"""Commands of ctrpipe that a user can paste into a shell."""

import os
import pathlib
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence

_WIDTH = 78  # of a printed line, after its indentation
_INDENT = "  "


def shown(command: Sequence[str], width: int = _WIDTH) -> str:
    """Returns a command in shell syntax, broken between words into lines of at most `width` characters."""
    lines = [""]
    for word in map(shlex.quote, command):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width - 2:
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def next_steps(*commands: Sequence[str], title: str = "Next:") -> str:
    """Returns the lines that a command ends with: the title, and the commands that follow, each indented.

    Args:
        commands: The words of each command, which a shell takes as they are printed.
        title: The first line.
    """
    return "\n".join([title, *(textwrap.indent(shown(command), _INDENT) for command in commands)])


def command_name() -> str:
    """Returns the name of the `ctrpipe` command, or its path if the shell does not search its folder."""
    own = pathlib.Path(sys.executable).with_name("ctrpipe")
    if shutil.which("ctrpipe") or not own.exists():
        return "ctrpipe"
    return min(os.path.relpath(own), str(own), key=len)
