"""Small objects of stores, fetched once and held on this machine while a command reads a log.

A command opens a file of a log many times: for its kind, its header, its end, its rows. In a store each look is a
request or two, which take longer than a small file. In the block of `held_objects` an object of at most SMALL_BYTES is
asked for its state and read whole, in two requests, and is a file of this machine from then on: one version of the
object. `check_held` finds those that have changed since. The processes that a command starts find the files by the
environment; those on other machines do not, and ask the store.
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
    """An object that is held: what the store said of it, and its copy."""

    seen: stores.Seen
    path: pathlib.Path


@contextlib.contextmanager
def held_objects(paths: Iterable[str], most: int = SMALL_BYTES) -> Iterator[None]:
    """Holds the small objects among the files of a log that are read in the block; does nothing without a URL.

    Args:
        paths: The files, or the globs that find them.
        most: The bytes of an object that is small.
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
    """Returns a small object, which is fetched where it is not held yet; None for one that cannot be held.

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
    """Returns the objects that are held and have changed in the store, or are gone, since they were fetched.

    Raises:
        StoreError: the store refuses a request, or does not answer.
    """
    held = {url: found for url in dict.fromkeys(urls) if stores.is_url(url) and (found := held_object(url))}

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
    """Writes an object and then what is known of it; for one that is not held, what is known alone."""
    seen, contents = stores.read_small(url, most)
    with contextlib.suppress(OSError):
        if contents is not None:
            about.with_suffix("").write_bytes(contents)
        write_bytes(about, json.dumps([seen, contents is not None]).encode())
