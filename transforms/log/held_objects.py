"""Local copies of small objects in stores, kept while a command reads a log.

A command opens a log file many times: for its type, header, end and rows. Each access to a store takes one or two
requests, which last longer than reading a small file. Within the block of `held_objects`, an object of at most
SMALL_BYTES is fetched once, with two requests, and then read from the local copy. All reads thus see the same version;
`check_held` finds objects that have changed since. Child processes find the copies through the environment. Processes
on other machines do not, and read from the store.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ctrpipe.common import stores
from ctrpipe.common.files import write_bytes
from ctrpipe.common.store_folders import new_folder_beside
from ctrpipe.common.store_names import cache_folder

HELD = "CTRPIPE_HELD_OBJECTS"  # the most bytes of an object, those of the disk that stay free, and the folder
SMALL_BYTES = stores.BLOCK_BYTES
# Of the disk. A run writes the log's rows twice more, and must not find the disk filled with copies.
_FREE_SHARE = 0.75
_LOCKS = 256  # an object is fetched by one process or thread


class HeldObject(NamedTuple):
    """A local copy of an object, and the object's state in the store."""

    seen: stores.Seen
    path: pathlib.Path


@contextlib.contextmanager
def held_objects(paths: Iterable[str], most: int = SMALL_BYTES) -> Iterator[None]:
    """Keeps local copies of a log's small objects that are read in the block. Does nothing without a URL.

    Args:
        paths: The files, or the globs that find them.
        most: The maximum size of a small object, in bytes.
    """
    if os.environ.get(HELD) or not any(map(stores.is_url, paths)):
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without a folder nothing is held
            base = cache_folder()
            base.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(new_folder_beside(base / "held"))
            os.environ[HELD] = f"{most} {int(_FREE_SHARE * shutil.disk_usage(folder).free)} {folder}"
        try:
            yield
        finally:
            os.environ.pop(HELD, None)


def held_object(url: str) -> HeldObject | None:
    """Returns the local copy of a small object, fetched on first use; None for an object that cannot be kept.

    Raises:
        FileNotFoundError: there is no such object.
        StoreError: the store refuses the request, or does not answer.
    """
    if not (setting := os.environ.get(HELD)):
        return None
    most, stay_free, place = setting.split(" ", 2)
    folder = pathlib.Path(place)
    if not folder.is_dir():
        return None
    name = hashlib.sha256(url.encode()).hexdigest()
    about = folder / f"{name}.json"
    if not about.exists():
        with _alone(folder, name):
            if not about.exists():
                room = shutil.disk_usage(folder).free - int(stay_free)
                _fetch(url, about, min(int(most), room))
    try:
        seen, is_held = json.loads(about.read_text())
    except (OSError, ValueError):
        return None
    return HeldObject(stores.Seen(*seen), about.with_suffix("")) if is_held else None


def check_held(urls: Sequence[str]) -> list[str]:
    """Returns the objects that have changed or vanished in the store since they were fetched.

    Raises:
        StoreError: the store refuses a request, or does not answer.
    """
    held = {url: of_url for url in dict.fromkeys(urls) if stores.is_url(url) and (of_url := held_object(url))}

    def is_still(url: str) -> bool:
        try:
            return stores.is_still(url, held[url].seen)
        except FileNotFoundError:
            return False

    return [url for url, same in zip(held, stores.in_parallel(is_still, list(held)), strict=True) if not same]


@contextlib.contextmanager
def _alone(folder: pathlib.Path, name: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the disk is full: several may fetch at once
            lock = stack.enter_context(open(folder / f"lock-{int(name[:8], 16) % _LOCKS}", "ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(url: str, about: pathlib.Path, most: int) -> None:
    """Writes an object, then its description. For an object that is not kept, writes only the description."""
    seen, contents = stores.read_small(url, most)
    with contextlib.suppress(OSError):
        if contents is not None:
            about.with_suffix("").write_bytes(contents)
        write_bytes(about, json.dumps([seen, contents is not None]).encode())
