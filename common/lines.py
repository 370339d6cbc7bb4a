"""Lines of text that fit the terminal: broken between words, with what follows below the text and not at the margin."""

import re
import shutil
import sys
import textwrap
from typing import TextIO

from ctrpipe.common.store_names import COPIES, WORK, with_urls

_INDENT = 2  # of what follows a line without a head
_HEAD = re.compile(r"\[ *[\d.]+s\] |[A-Za-z][\w ]{0,10}: +| +")  # the seconds, `Model:  ` or an indentation


def say(text: str, err: bool = False, failed: bool = False) -> None:
    """Prints lines for a reader to standard output, or to standard error.

    A URL is named in place of its folder on this machine: of what was written there, or in a failure of what was read.

    Args:
        text: The lines.
        err: Whether they go to standard error.
        failed: Whether they say that a command failed: nothing of its work is in the store then.
    """
    stream = sys.stderr if err else sys.stdout
    text = with_urls(text, (COPIES,) if failed else (WORK,))
    print(fitted(text, stream), file=stream, flush=True)


def fitted(text: str, stream: TextIO) -> str:
    """Fits lines to the width of a stream.

    On a terminal, long lines are broken between words. A path or a name stays whole, so that it can be copied. Files
    and pipes get each line whole, so that `grep` works.
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
