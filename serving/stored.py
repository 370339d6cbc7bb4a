"""Versions of models in stores: uploaded atomically, fetched, and mirrored on this machine for a server.

A version in a store is `<base URL>/<integer>/`, as on a disk, with a manifest (see ctrpipe.common.store_folders). A
version without a manifest is incomplete, because it is being written or its process was killed, and does not count.
"""

import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterator

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.store_folders import (
    MANIFEST,
    Output,
    download,
    local_copy,
    one_writer,
    read_manifest,
    upload,
    work_folder,
)
from ctrpipe.common.store_names import CACHE
from ctrpipe.common.stores import StoreError, UnreachableError
from ctrpipe.serving.layout import PUSHED, RESULTS, SAVED_MODEL, graph_file, is_unfinished, newest_version, versions

log = logging.getLogger(__name__)
_ASKED_ABOUT = 2  # versions, one by one


def fetch_model(source: str | pathlib.Path) -> pathlib.Path:
    """Returns the local folder of a model or run, given its path or URL.

    For a URL, fetches the version, the newest version of a folder of versions, or the run with the newest version of
    each pushed model.

    Raises:
        StoreError: the model does not exist or is damaged, or the store refuses the request or does not answer.
    """
    if not stores.is_url(source):
        return stores.local_path(str(source))
    url = str(source).rstrip("/")
    copy = local_copy(url)
    try:
        download(url, copy)
    except FileNotFoundError:
        newest = newest_stored(url)
    else:
        _fetch_pushed(url, copy)
        return copy
    if newest is None:
        stores.check_bucket(url)
        raise StoreError(f"{url}: no complete run or model version here; name what `ctrpipe run` pushed")
    download(stores.join(url, str(newest)), copy / str(newest))
    return copy / str(newest)


def _fetch_pushed(run: str, copy: pathlib.Path) -> None:
    """Fetches the newest version of each model that a run has pushed. A run's manifest does not list its versions."""
    for model, size in stores.objects_below(stores.join(run, PUSHED), recursive=False):
        if size is None and (newest := newest_stored(model)) is not None:
            download(stores.join(model, str(newest)), copy / PUSHED / stores.name_of(model) / str(newest))


def base_url_of(url: str, wait: bool) -> str:
    """Returns the URL of the versions that a run in a store pushed; other URLs unchanged.

    URLs that were copied before are resolved without the store, which may be unavailable.

    Args:
        url: A run, a folder of versions, or a version.
        wait: Whether the URL may still be empty.

    Raises:
        InputError: the URL is empty, a run without a model, or a run with models of several names; or the store refuses
            the request or does not answer.
    """
    url = url.rstrip("/")
    copy = local_copy(url)
    if versions(copy) or graph_file(copy).exists():
        return url
    copied = [path.name for path in (copy / PUSHED).glob("*") if versions(path)]
    if len(copied) == 1:
        return stores.join(url, PUSHED, copied[0])
    names = {stores.name_of(each) for each, _ in stores.objects_below(url, recursive=False)}
    if SAVED_MODEL in names:
        return url
    if not names and not wait:
        raise InputError(f"{url}: nothing is there; give a run, or RUN/models/<name>, or --wait for it to appear")
    if RESULTS not in names or any(name.isdecimal() for name in names):
        return url
    models = stores.join(url, PUSHED)
    pushed = [each for each, size in stores.objects_below(models, recursive=False) if size is None]
    if not pushed:
        raise InputError(f"{url}: this run pushed no model; its report says which gate blocked it")
    if len(pushed) > 1:
        named = ", ".join(sorted(map(stores.name_of, pushed)))
        raise InputError(f"{url}: this run pushed models of several names, {named}; give {models}/<name>")
    return pushed[0]


def is_awaited(base: pathlib.Path | str) -> bool:
    """Returns whether a base path is missing, empty, or the output of a run that has not finished.

    Raises:
        StoreError: the store refuses the request or does not answer.
    """
    if isinstance(base, str) and stores.is_url(base):
        copy = local_copy(base)
        if versions(copy) or graph_file(copy).exists():
            return False
        names = {stores.name_of(each) for each, _ in stores.objects_below(base.rstrip("/"), recursive=False)}
        return not any(name.isdecimal() or name in (SAVED_MODEL, RESULTS) for name in names)
    folder = pathlib.Path(base)
    if not folder.is_dir() or not any(folder.iterdir()):
        return True
    return is_unfinished(folder)


def split_version(model: pathlib.Path | str) -> tuple[pathlib.Path | str, int | None]:
    """Splits a version's folder or URL into the folder of versions and the number of the version.

    Args:
        model: A version, or a folder of versions, which may be missing or empty.

    Returns:
        The folder of versions, and the version's number; for other folders the folder itself and None.

    Raises:
        InputError: the folder's name is no number; or the store refuses the request or does not answer.
    """
    if isinstance(model, str) and stores.is_url(model):
        url = model.rstrip("/")
        copy = local_copy(url)  # what is copied is served without the store, which may be unavailable
        is_version = graph_file(copy).exists() or (not versions(copy) and stores.is_file(stores.join(url, SAVED_MODEL)))
        if not is_version:
            return model, None
        base, _, name = url.rpartition("/")
        if _is_number(name):
            return base, int(name)
    else:
        if not graph_file(pathlib.Path(model)).exists():
            return model, None
        for path in (pathlib.Path(os.path.abspath(model)), pathlib.Path(model).resolve()):  # the first may be a link
            if _is_number(path.name):
                return path.parent, int(path.name)
    raise InputError(f"{model}: the folder of a version, but its name is not its number; rename it to one, such as 1")


def _is_number(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name


def numbers_below(base: str) -> list[int]:
    """Returns the numbers of a model's versions in a store, lowest first, including incomplete versions."""
    names = (stores.name_of(url) for url, size in stores.objects_below(base, recursive=False) if size is None)
    return sorted(int(name) for name in names if _is_number(name))


def is_whole(base: str, number: int) -> bool:
    """Returns whether a version in a store is complete: it has its manifest."""
    return stores.is_file(stores.join(base, str(number), MANIFEST))


def newest_stored(base: str) -> int | None:
    """Returns the highest number of a model's complete versions in a store; None if there is none."""
    numbers = numbers_below(base)
    if not numbers or is_whole(base, numbers[-1]):
        return numbers[-1] if numbers else None
    return max(whole_of(base, numbers), default=None)


def whole_of(base: str, numbers: Collection[int]) -> set[int]:
    """Returns which of the given versions in a store are complete.

    Up to _ASKED_ABOUT versions take one request each. For more, all objects below the base are listed, a thousand per
    request.
    """
    if len(numbers) <= _ASKED_ABOUT:
        return {number for number in numbers if is_whole(base, number)}
    below = (url.removeprefix(f"{base.rstrip('/')}/").split("/") for url, _ in stores.objects_below(base))
    whole = {parts[0] for parts in below if parts[1:] == [MANIFEST]}
    return {number for number in numbers if str(number) in whole}


def fetch_newest(base: str, folder: pathlib.Path) -> None:
    """Fetches a model's newest version from a store into a folder of versions, unless it is already there."""
    newest = newest_stored(base)
    if newest is not None and not (folder / str(newest)).exists():
        download(stores.join(base, str(newest)), folder / str(newest))


@contextlib.contextmanager
def versions_at(output: pathlib.Path | str) -> Iterator[Output]:
    """Yields a folder of versions to write a version into: the output itself, or a local folder for a URL.

    The local folder holds the newest version in the store. After the block, its newest version is pushed.

    Raises:
        StoreError: as in `push_version`.
    """
    if not stores.is_url(output):
        yield Output(stores.local_path(str(output)), str(output))
        return
    url = str(output).rstrip("/")
    folder = work_folder(url)
    stores.check_bucket(url)
    fetch_newest(url, folder)
    yield Output(folder, url)
    if (newest := newest_version(folder)) is not None:
        push_version(newest, url)


def push_version(version: pathlib.Path, base: str) -> None:
    """Uploads a version to a store, where it appears complete. Does nothing if the same version is already there.

    Raises:
        StoreError: another process is pushing, has pushed a later version, or has pushed a different version with this
            number; or the store refuses the request or does not answer.
    """
    url = stores.join(base, version.name)
    with one_writer(base):
        newest = newest_stored(base)
        if newest is not None and newest > int(version.name):
            if is_whole(base, int(version.name)):
                return
            raise StoreError(
                f"{base}: another run pushed version {newest} while this one trained, and the gates have not compared "
                "with it; run again"
            )
        if newest == int(version.name):
            own = {path.relative_to(version).as_posix(): path for path in version.rglob("*") if path.is_file()}
            own.pop(MANIFEST, None)
            there = {name: file.bytes for name, file in read_manifest(url).items()}
            if there != {name: path.stat().st_size for name, path in own.items()}:
                raise StoreError(f"{url}: another run pushed this version; run again, for a version of its own")
            return
        upload(version, url)


def _newest_of(numbers: Collection[int], most: int = 3) -> str:
    newest = sorted(numbers)[-most:]
    earlier = f"{len(numbers) - most:,} before " if len(numbers) > most else ""
    return f"{earlier}{', '.join(map(str, newest))}"


class Mirror:
    """A copy on this machine of a model's versions in a store, for a server to load.

    Args:
        url: The URL of the folder of versions.

    Attributes:
        folder: The folder of the copies.
    """

    def __init__(self, url: str):
        self.url = url
        self.folder = local_copy(url)
        self._said: dict[str, str] = {}
        self._compared: set[int] = set()  # the versions whose copies are known to be those of the store
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be made ({error.strerror}); set {CACHE} to a folder") from error

    def is_empty(self) -> bool:
        """Returns whether no version has been copied yet."""
        return not versions(self.folder)

    def follow(self, wanted: Callable[[dict[int, pathlib.Path]], dict[int, pathlib.Path]]) -> None:
        """Copies the wanted versions of the store, and removes copies that the store no longer has.

        An unwanted copy remains until a later version is copied, to allow a rollback.

        Args:
            wanted: Selects the versions to serve from all versions.

        Raises:
            StoreError: the store refuses the request or does not answer. The copies remain.
        """
        numbers = numbers_below(self.url)
        present = {number: self.folder / str(number) for number in numbers}
        unfinished: set[int] = set()
        asked = wanted(present)
        whole = whole_of(self.url, asked)
        if not whole.issuperset(asked):
            whole = whole_of(self.url, numbers)
        while halves := wanted(present).keys() - whole:
            unfinished |= halves
            present = {number: folder for number, folder in present.items() if number not in unfinished}
        self._log_change(
            "unfinished",
            f"{self.url}: without {MANIFEST}, so still being written or not pushed by ctrpipe: version "
            f"{_newest_of(unfinished)}"
            if unfinished
            else "",
        )
        for number, folder in wanted(present).items():
            if number in self._compared and folder.exists():
                continue
            is_replaced = folder.exists()
            if download(stores.join(self.url, str(number)), folder) and is_replaced:
                log.warning(
                    "%s/%d: differs from what was copied before, which may be loaded; restart the server to serve the "
                    "new copy, and push under a new number next time",
                    self.url,
                    number,
                )
            self._compared.add(number)
        gone = [copy for copy in versions(self.folder) if not self._is_there(int(copy.name), present)]
        if present:
            for copy in gone:
                shutil.rmtree(copy, ignore_errors=True)
                self._compared.discard(int(copy.name))

    def _is_there(self, number: int, present: dict[int, pathlib.Path]) -> bool:
        return number in present and is_whole(self.url, number)

    def try_to_follow(self, wanted: Callable[[dict[int, pathlib.Path]], dict[int, pathlib.Path]]) -> None:
        """Like `follow`, but logs an error of the store or of the local disk once.

        Versions that are already copied are still served.
        """
        fault = ""
        try:
            self.follow(wanted)
        except StoreError as error:
            away = "is away" if isinstance(error, UnreachableError) else "cannot be read"
            fault = f"The store {away}: what is copied is served on: {error}"
        except FileNotFoundError as error:  # a version was removed meanwhile
            fault = f"{self.url}: {error}"
        except OSError as error:
            fault = (
                f"{self.url}: cannot be copied to {self.folder} ({error.strerror}): what is copied is served on; make "
                f"room there, or set {CACHE} to another folder"
            )
        self._log_change("fault", fault)

    def _log_change(self, about: str, text: str) -> None:
        """Logs a text, unless it repeats the last text on the same subject."""
        if text and text != self._said.get(about):
            log.warning("%s", text)
        self._said[about] = text
