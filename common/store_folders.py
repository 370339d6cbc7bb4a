"""Folders in object stores: uploads and downloads of whole folders, and their local copies.

A store has no rename. A folder is complete once its manifest exists, which is uploaded last and holds the size and the
SHA-256 of each file. Files of a killed upload have no manifest and are ignored.

Local copies have the same path as the URL, below CTRPIPE_CACHE or `~/.cache/ctrpipe`: downloads in `copies`, folders to
upload in `work`. `held` contains the objects that running commands hold (transforms/log/held_objects.py).
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path, make_unique_folder, write_bytes
from ctrpipe.common.store_names import COPIES, WORK, cache_folder, with_urls
from ctrpipe.common.stores import StoreError

MANIFEST = "ctrpipe_manifest.json"
_THREADS = 8
CLAIMS = ".ctrpipe_claims"
_BEAT_SECONDS = 10.0
_DEAD_SECONDS = 60.0  # a claim that is not renewed for so long is of a killed process


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file of a manifest: its size in bytes, and its SHA-256."""

    bytes: int
    sha256: str


def local_copy(url: str) -> pathlib.Path:
    """Returns the local folder for the copy of a URL's folder; it may not exist yet.

    Raises:
        StoreError: a part of the URL cannot be the name of a folder.
    """
    return _place_of(url, COPIES)


def work_folder(url: str) -> pathlib.Path:
    """Returns the local folder in which files for a URL are prepared. Raises as `local_copy`."""
    return _place_of(url, WORK)


def _place_of(url: str, kind: str) -> pathlib.Path:
    from ctrpipe.common.fingerprints import fingerprint  # lazy: pydantic takes 0.1 s, and a help text needs none

    stores.check_scheme(url)
    scheme, _, rest = url.rstrip("/").partition("://")
    names = rest.split("/")
    if any(name in ("", ".", "..") for name in names):
        raise StoreError(f"{url}: has an empty name, . or .. in it; write the folder's URL without")
    # Two servers may have a bucket of the same name.
    endpoint = stores.endpoint_of(scheme)
    store = f"{scheme.lower()}-{fingerprint(endpoint)[:8]}" if endpoint else scheme.lower()
    return cache_folder().joinpath(kind, store, *names)


# Write ---------------------------------------------------------------------------------------------------------------


def upload(
    folder: pathlib.Path, url: str, names: Iterable[str] | None = None, instead: Mapping[str, bytes] | None = None
) -> None:
    """Uploads the files of a folder in parallel, then the manifest. Unchanged files are skipped.

    Args:
        folder: The folder.
        url: The URL of the folder in the store.
        names: The files, relative to the folder; None for all.
        instead: Contents to upload instead of a file's own, by name.

    Raises:
        StoreError: the store refuses a request, or does not answer.
    """
    instead = instead or {}
    present = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    chosen = sorted(name for name in (names if names is not None else present) if name != MANIFEST)
    there = {each.removeprefix(f"{url.rstrip('/')}/"): size for each, size in stores.objects_below(url)}
    files = {
        name: _measured(io.BytesIO(instead[name]) if name in instead else (folder / name).open("rb")) for name in chosen
    }
    before = read_manifest(url) if MANIFEST in there else {}
    if before == files:
        return
    todo = [name for name in chosen if before.get(name) != files[name] or there.get(name) != files[name].bytes]
    if before:
        stores.delete(stores.join(url, MANIFEST))  # what is being replaced is not whole

    def write(name: str) -> None:
        if name in instead:
            stores.write_bytes(stores.join(url, name), instead[name])
        else:
            stores.write_file(stores.join(url, name), folder / name)

    with ThreadPoolExecutor(_THREADS, "upload") as threads:
        for done in [threads.submit(write, name) for name in todo]:
            done.result()
    text = json.dumps({"files": {name: dataclasses.asdict(file) for name, file in files.items()}}, indent=1)
    stores.write_bytes(stores.join(url, MANIFEST), text.encode())


def _measured(source: IO[bytes]) -> StoredFile:
    with source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
        return StoredFile(source.seek(0, os.SEEK_END), digest)


# Read ----------------------------------------------------------------------------------------------------------------


def read_manifest(url: str) -> dict[str, StoredFile]:
    """Returns the files of a folder by name.

    Raises:
        FileNotFoundError: the folder has no manifest, so it is incomplete.
        StoreError: the manifest is damaged, or the store refuses the request or does not answer.
    """
    text = stores.read_bytes(stores.join(url, MANIFEST))
    try:
        files = {name: StoredFile(**file) for name, file in json.loads(text)["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{url}/{MANIFEST}: damaged; push the folder again") from error
    for name in files:
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(f"{url}/{MANIFEST}: names a file outside of its folder, {name!r}; push the folder again")
    return files


def download(url: str, folder: pathlib.Path) -> bool:
    """Downloads a folder, unless the local folder is already a copy. Returns whether it was downloaded.

    The local folder appears, or is replaced, once it is complete and matches the manifest.

    Raises:
        FileNotFoundError: the folder has no manifest, so it is incomplete.
        StoreError: a file differs from the manifest, or the store refuses the request or does not answer.
    """
    files = read_manifest(url)
    if _is_copy(folder, files):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder_beside(folder) as unfinished:
        for name in files:
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_THREADS, "download") as threads:
            for done in [
                threads.submit(_fetch, stores.join(url, name), unfinished / name, file) for name, file in files.items()
            ]:
                done.result()
        text = json.dumps({"files": {name: dataclasses.asdict(file) for name, file in files.items()}}, indent=1)
        write_bytes(unfinished / MANIFEST, text.encode())
        _put_in_place(unfinished, folder)
    return True


@contextlib.contextmanager
def new_folder_beside(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new folder next to a folder. At the end, removes it and the leftovers of killed processes.

    Several processes may copy at once. Each locks its own folder, which the kernel releases if the process is killed.
    """
    with contextlib.ExitStack() as held:
        with _locked(folder.parent, fcntl.LOCK_EX):  # no folder is taken for one that was left before it is locked
            for left in folder.parent.glob(f".{folder.name}-{'[0-9a-f]' * 8}"):
                with contextlib.suppress(OSError), _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(left, ignore_errors=True)
            unfinished = make_unique_folder(folder.with_name(f".{folder.name}"))
            held.enter_context(_locked(unfinished, fcntl.LOCK_EX))
        try:
            yield unfinished
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: pathlib.Path, how: int) -> Iterator[None]:
    """Locks a folder. Raises OSError if it is missing, or if another process holds the lock and `how` does not wait."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def _put_in_place(unfinished: pathlib.Path, folder: pathlib.Path) -> None:
    """Renames the folder. Folders in an earlier copy that the manifest does not name, such as versions, stay."""
    if not folder.exists():
        with contextlib.suppress(FileExistsError):
            unfinished.rename(folder)
            return
    for path in sorted(unfinished.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            target = folder / path.relative_to(unfinished)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    (unfinished / MANIFEST).replace(folder / MANIFEST)


def fetch_file(url: str) -> pathlib.Path:
    """Fetches a single object, and returns its copy on this machine.

    Raises:
        StoreError: the object does not exist, or the store refuses the request or does not answer.
    """
    path = local_copy(url)
    try:
        contents = stores.read_bytes(url)
    except FileNotFoundError as error:
        raise StoreError(f"{url}: no such file; check the path") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, contents)
    return path


def fetch_below(url: str, folder: pathlib.Path) -> None:
    """Downloads the objects below a URL that the folder lacks or has with another size. Raises as `download`."""
    root = url.rstrip("/")
    for each, size in stores.objects_below(root):
        path = folder / each[len(root) + 1 :]
        if not path.exists() or path.stat().st_size != size:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, stores.read_bytes(each))


def _is_copy(folder: pathlib.Path, files: dict[str, StoredFile]) -> bool:
    try:
        said = {name: StoredFile(**file) for name, file in json.loads((folder / MANIFEST).read_text())["files"].items()}
        return said == files and all((folder / name).stat().st_size == file.bytes for name, file in files.items())
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _fetch(url: str, path: pathlib.Path, expected: StoredFile) -> None:
    digest = hashlib.sha256()
    try:
        with atomic_path(path) as unfinished, unfinished.open("wb") as target, stores.open_read(url, 0) as source:
            while piece := source.read(stores.BLOCK_BYTES):
                digest.update(piece)
                target.write(piece)
    except FileNotFoundError as error:
        raise StoreError(f"{url}: missing, although the manifest names it; push the folder again") from error
    if digest.hexdigest() != expected.sha256:
        raise StoreError(f"{url}: differs from its manifest; push the folder again")


# Where a command writes ----------------------------------------------------------------------------------------------

_WRITTEN = ".written.json"  # in a folder of `work`: the names of the files that were written to the store from it


@dataclasses.dataclass(frozen=True)
class Output:
    """The output of a command.

    Attributes:
        folder: The local folder.
        name: The user's name for it: its path, or the URL of its files.
    """

    folder: pathlib.Path
    name: str

    def shown(self, text: object) -> str:
        """Replaces the folder in a text by the user's name for it."""
        return str(text).replace(str(self.folder), self.name)


@contextlib.contextmanager
def written_output(output: pathlib.Path | str, leave_out: Collection[str] = ()) -> Iterator[Output]:
    """Yields the folder that a command works in: the output itself, or a local folder for a URL.

    For a URL, the folder's files are uploaded when the block succeeds, and files of an earlier call that no longer
    exist are removed. The local folder remains, so an interrupted command can be resumed.

    Args:
        output: The output folder, or its URL.
        leave_out: Names of folders whose files are not uploaded, in addition to hidden ones.

    Raises:
        StoreError: another process is writing there, the URL has other files, or the store refuses a request or does
            not answer.
    """
    if not stores.is_url(output):
        yield Output(stores.local_path(str(output)), str(output))
        return
    url = str(output).rstrip("/")
    folder = work_folder(url)
    with one_writer(url):
        earlier = _own_files(url, folder)
        yield Output(folder, url)
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        names = {name for name in names if not any(_is_left_out(part, leave_out) for part in name.split("/"))}
        write_bytes(folder / _WRITTEN, json.dumps(sorted(earlier | names)).encode())
        upload(folder, url, names, _with_urls(folder, names))
        for name in earlier - names:
            stores.delete(stores.join(url, name))
        write_bytes(folder / _WRITTEN, json.dumps(sorted(names)).encode())


def _with_urls(folder: pathlib.Path, names: Iterable[str]) -> dict[str, bytes]:
    """Returns the summaries and pages that name the local folder, with the URL in its place."""
    texts = {name: (folder / name).read_bytes() for name in names if re.fullmatch(r"[^/]*[.](json|html)", name)}
    here = os.fsencode(folder)
    return {name: with_urls(text.decode()).encode() for name, text in texts.items() if here in text}


def _is_left_out(part: str, leave_out: Collection[str]) -> bool:
    return part.startswith(".") or part in leave_out


def _own_files(url: str, folder: pathlib.Path) -> set[str]:
    """Returns the names of the files that were uploaded to a URL from its local folder.

    Raises:
        StoreError: the URL has other files, with which the new files would be mixed.
    """
    try:
        own = set(json.loads((folder / _WRITTEN).read_text()))
    except (OSError, ValueError):
        own = set()
    there = (each.removeprefix(f"{url}/") for each, _ in stores.objects_below(url))
    strangers = sorted(name for name in there if name not in own and name.partition("/")[0] not in (CLAIMS, MANIFEST))
    if strangers:
        raise StoreError(
            f"{url}: contains files that were not written from this machine, such as {strangers[0]}; choose another "
            "--output, or remove them"
        )
    return own


@contextlib.contextmanager
def results_at(
    output: pathlib.Path | str, folder: pathlib.Path | None = None, leave_out: Collection[str] = ()
) -> Iterator[Output]:
    """Yields a folder for a few results: the output itself, or a folder whose files are uploaded to a URL at the end.

    As on a disk, the results replace files with the same name, and other files remain.

    Args:
        output: The folder, or its URL.
        folder: For a URL, the local folder, which stays; None for a temporary one, which is removed at the end.
        leave_out: Names of folders whose files are not uploaded.

    Raises:
        StoreError: there is no such bucket, or the store refuses a request or does not answer.
    """
    if not stores.is_url(output):
        yield Output(stores.local_path(str(output)), str(output))
        return
    url = str(output).rstrip("/")
    stores.check_bucket(url)
    with contextlib.ExitStack() as removed:
        if folder is None:
            folder = pathlib.Path(removed.enter_context(tempfile.TemporaryDirectory(prefix="ctrpipe-")))
        yield Output(folder, url)
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if path.is_file() and not set(parts) & set(leave_out):
                stores.write_file(stores.join(url, *parts), path)


@contextlib.contextmanager
def written_file(output: pathlib.Path | str, folder: pathlib.Path | None = None) -> Iterator[Output]:
    """Like `results_at` for a single file: yields its folder, for the file and files next to it."""
    if stores.is_url(output):
        parent = str(output).rstrip("/").rpartition("/")[0]
        if parent.endswith(":/"):
            raise StoreError(f"{output}: a bucket; name a file in it")
        with results_at(parent, folder) as place:
            yield place
    else:
        beside = stores.local_path(str(output)).parent
        yield Output(beside, str(beside))


# One writer ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def one_writer(url: str) -> Iterator[None]:
    """Keeps other writers out of a folder in a store while the block runs.

    A store has no locks. Each writer writes a claim, lists the claims, and gives way if it sees another one. A listing
    includes all objects written before it began, so at most one writer sees no other claim. A living writer renews its
    claim; a claim older than _DEAD_SECONDS by the store's clock is ignored.

    Raises:
        StoreError: another process writes the folder.
    """
    own = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}.json"
    claims = stores.join(url, CLAIMS)
    claim, text = stores.join(claims, own), json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
    with _errors_of(url, claims):
        stores.write_bytes(claim, text, whole=False)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_BEAT_SECONDS):
            with contextlib.suppress(InputError):
                stores.write_bytes(claim, text, whole=False)

    thread = threading.Thread(target=renew, name="claim", daemon=True)
    try:
        with _errors_of(url, claims):
            others = _living(claims, claim)
        for other in others:
            who = stores.name_of(other).rpartition("-")[0]
            raise StoreError(
                f"{url}: another process writes here ({who}); wait until it has finished; if it was killed, its claim "
                f"expires after {_DEAD_SECONDS:.0f} s"
            )
        thread.start()
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()
        with contextlib.suppress(InputError):
            stores.delete(claim)


@contextlib.contextmanager
def _errors_of(url: str, claims: str) -> Iterator[None]:
    """Makes errors of the block name the folder, which the user knows, instead of the claims."""
    try:
        yield
    except StoreError as error:
        raise type(error)(re.sub(rf"{re.escape(claims)}[^\s:]*", url, str(error))) from error


def _living(claims: str, own: str) -> list[str]:
    """Returns the claims of other living processes, and removes the claims of killed ones."""
    times = dict(stores.times_below(claims))
    now = times.get(own, time.time())
    living = []
    for claim, changed in times.items():
        if claim == own:
            continue
        if now - changed > _DEAD_SECONDS or _was_killed_here(stores.name_of(claim)):
            stores.delete(claim)
        else:
            living.append(claim)
    return living


def _was_killed_here(name: str) -> bool:
    """Returns whether a claim belongs to a process of this machine that no longer runs."""
    host, process, _ = name.rsplit("-", 2)
    if host != socket.gethostname() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
