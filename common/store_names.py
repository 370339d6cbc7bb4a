"""The local folders of objects in stores and of queries, and what users call them."""

import os
import pathlib
import re

CACHE = "CTRPIPE_CACHE"
COPIES, WORK = "copies", "work"
_SHOWN: dict[str, str] = {}  # what users call the files that queries were written to
_HOLDERS: set[str] = set()  # the folders of the files made of queries and tables whose paths are several words
_WORD_ENDS = r"\s'\"("


def cache_folder() -> pathlib.Path:
    """Returns the local folder for downloads from stores and files to upload."""
    own = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get(CACHE) or os.path.join(own, "ctrpipe")).absolute()


def made_in(folder: pathlib.Path) -> None:
    """Has `holder_pattern` match the path of a folder that contains blanks."""
    for path in map(str, (folder, folder.absolute(), folder.resolve())):
        if re.search(f"[{_WORD_ENDS}]", path):
            _HOLDERS.add(path)


def holder_pattern() -> str:
    """Returns a regular expression for the path of the folder of a made file, as a message has it."""
    folders = sorted(_HOLDERS, key=len, reverse=True)
    return "(?:" + "".join(f"{re.escape(folder)}/|" for folder in folders) + f"[^{_WORD_ENDS}]*?)"


def show_as(folder: pathlib.Path, made: str, name: str) -> None:
    """Has `with_urls` replace a file or folder by a user's name for it.

    Args:
        folder: The folder in which it is.
        made: Its unique path relative to the folder.
        name: The user's name.
    """
    made_in(folder)
    _SHOWN[made] = name


def with_urls(text: str, kinds: tuple[str, ...] = (COPIES, WORK)) -> str:
    """Replaces local folders in a text by the URLs, queries and tables that a user has given.

    Args:
        text: A message or a line.
        kinds: The folders below the cache that are replaced.
    """
    for made, name in _SHOWN.items():
        if made in text:
            text = name.join(re.split(rf"{holder_pattern()}{re.escape(made)}", text))
    cache = str(cache_folder())
    if cache not in text:
        return text
    store = r"([a-z][a-z0-9+.]*)(?:-[0-9a-f]{8})?"
    return re.sub(rf"{re.escape(cache)}/(?:{'|'.join(kinds)})/{store}/", r"\1://", text)
