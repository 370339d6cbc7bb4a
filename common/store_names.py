"""The local folders of objects in stores and of queries, and what users call them."""

import os
import pathlib
import re

CACHE = "CTRPIPE_CACHE"
COPIES, WORK = "copies", "work"
_SHOWN: dict[str, str] = {}  # what users call the files that queries were written to


def cache_folder() -> pathlib.Path:
    """Returns the local folder for downloads from stores and files to upload."""
    own = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get(CACHE) or os.path.join(own, "ctrpipe")).absolute()


def show_as(made: str, name: str) -> None:
    """Has `with_urls` replace a file or folder, given by the unique end of its path, by a user's name for it."""
    _SHOWN[made] = name


def with_urls(text: str, kinds: tuple[str, ...] = (COPIES, WORK)) -> str:
    """Replaces local folders in a text by the URLs, queries and tables that a user has given.

    Args:
        text: A message or a line.
        kinds: The folders below the cache that are replaced.
    """
    for made, name in _SHOWN.items():
        if made in text:
            text = name.join(re.split(rf"[^\s'\"(]*{re.escape(made)}", text))
    cache = str(cache_folder())
    if cache not in text:
        return text
    store = r"([a-z][a-z0-9+.]*)(?:-[0-9a-f]{8})?"
    return re.sub(rf"{re.escape(cache)}/(?:{'|'.join(kinds)})/{store}/", r"\1://", text)
