"""Prints lines that fit the terminal: broken between words, with a hanging indent."""

import re
import shutil
import sys
import textwrap
from typing import TextIO

from ctrpipe.common.store_names import COPIES, WORK, with_urls

_INDENT = 2  # of what follows a line without a head
_HEAD = re.compile(r"\[ *[\d.]+s\] |[A-Za-z][\w ]{0,10}: +| +")  # the seconds, `Model:  ` or an indentation


def say(text: str, err: bool = False, failed: bool = False) -> None:
    """Prints lines to standard output, or to standard error.

    A local folder of a URL is shown as the URL: for written files, or, after a failure, for read files.

    Args:
        text: The lines.
        err: Whether to print to standard error.
        failed: Whether the lines report a failed command, whose results are not in the store.
    """
    stream = sys.stderr if err else sys.stdout
    text = with_urls(text, (COPIES,) if failed else (WORK,))
    print(fitted(text, stream), file=stream, flush=True)


def fitted(text: str, stream: TextIO) -> str:
    """Fits lines to the width of a stream.

    On a terminal, long lines are broken between words. Paths and names stay whole for copying. Files and pipes get
    whole lines, which `grep` needs.
    """
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    head = _HEAD.match(line)
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * (len(head[0]) if head else _INDENT),
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    )
