"""Where this machine keeps what comes from stores and goes there, and the URLs that it stands for."""

import os
import pathlib
import re

CACHE = "CTRPIPE_CACHE"
COPIES, WORK = "copies", "work"


def cache_folder() -> pathlib.Path:
    """Returns the folder of this machine for what comes from stores and goes there."""
    own = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get(CACHE) or os.path.join(own, "ctrpipe")).absolute()


def with_urls(text: str, kinds: tuple[str, ...] = (COPIES, WORK)) -> str:
    """Returns a text with the URLs that a user has given in place of their folders on this machine.

    Args:
        text: A message or a line.
        kinds: The folders below the cache that are replaced.
    """
    cache = str(cache_folder())
    if cache not in text:
        return text
    store = r"([a-z][a-z0-9+.]*)(?:-[0-9a-f]{8})?"
    return re.sub(rf"{re.escape(cache)}/(?:{'|'.join(kinds)})/{store}/", r"\1://", text)
