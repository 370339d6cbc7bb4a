"""The folder that the pods of a sweep or a study share: on a shared volume, or in an object store.

A pod has its own disk. With a store, a step downloads its inputs, works on that disk, and uploads the changed files
once it has succeeded. A store has no rename, so the files that mark completeness are uploaded last: first databases,
then JSON files, then the file that other steps start with.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ctrpipe.common import stores
from ctrpipe.common.files import atomic_path
from ctrpipe.common.output_folder import one_run_at_a_time
from ctrpipe.common.progress import announce
from ctrpipe.common.store_folders import CLAIMS, one_writer, work_folder

BEGIN = "kubeflow.json"  # what the first step has found out for the others
_THREADS = 8
_ORDER = (".sqlite", ".json")
WORK = "work"  # folder of unfinished training runs, which no other pod reads


class SharedFolder:
    """The shared folder on a volume.

    Attributes:
        path: Where the step works.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path

    def fetch(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Downloads the files whose relative name is wanted. Does nothing on a volume."""

    def fetch_below(self, places: Iterable[pathlib.Path]) -> None:
        """Downloads the given files and folders, with the contents of the folders, if they exist in the shared
        folder.
        """
        names = [place.relative_to(self.path).as_posix() for place in places if place.is_relative_to(self.path)]
        self.fetch(lambda name: any(name == place or name.startswith(f"{place}/") for place in names))

    def one_at_a_time(self, name: str = "") -> contextlib.AbstractContextManager[object]:
        """Locks the folder, or a folder in it, against other pods while the block runs."""
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        return one_run_at_a_time(folder)

    def write(self) -> None:
        """Uploads changed files. Does nothing on a volume."""


class _StoredFolder(SharedFolder):
    """A folder in a store.

    Args:
        url: Its URL.
    """

    def __init__(self, url: str):
        folder = work_folder(url)
        shutil.rmtree(folder, ignore_errors=True)  # of another pod on this disk, which a test has
        folder.mkdir(parents=True)
        super().__init__(folder.resolve())
        self._url = url
        self._known: dict[str, tuple[int, int]] = {}

    def fetch(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        root = self._url.rstrip("/")
        present = [url[len(root) + 1 :] for url, _ in stores.objects_below(root)]
        chosen = [name for name in present if name not in self._known and not _is_of_one_pod(name) and wanted(name)]
        for name in chosen:
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_THREADS, "fetch") as threads:
            for done in [threads.submit(_copy, stores.join(root, name), self.path / name) for name in chosen]:
                done.result()
        self._known |= {name: _state(self.path / name) for name in chosen}

    def one_at_a_time(self, name: str = "") -> contextlib.AbstractContextManager[object]:
        (self.path / name).mkdir(parents=True, exist_ok=True)
        return one_writer(stores.join(self._url, *name.split("/")) if name else self._url)

    def write(self) -> None:
        there = {name: _state(self.path / name) for name in _names_below(self.path) if not _is_of_one_pod(name)}
        changed = [name for name, state in there.items() if self._known.get(name) != state]
        gone = [name for name in self._known if name not in there]
        announce(f"Writing {len(changed)} files to {self._url}")
        with ThreadPoolExecutor(_THREADS, "write") as threads:
            for rank in range(len(_ORDER) + 2):
                names = [name for name in changed if _rank(name) == rank]
                each = [threads.submit(stores.write_file, stores.join(self._url, n), self.path / n) for n in names]
                for done in each:
                    done.result()
        for name in gone:
            stores.delete(stores.join(self._url, name))


@contextlib.contextmanager
def shared_folder(place: str) -> Iterator[SharedFolder]:
    """Yields the folder at a path or URL, and hands on what has changed in it if the block succeeds.

    Raises:
        StoreError: the store refuses a request, or does not answer.
    """
    folder = _StoredFolder(place) if stores.is_url(place) else SharedFolder(pathlib.Path(place))
    yield folder
    folder.write()


def _copy(url: str, path: pathlib.Path) -> None:
    with atomic_path(path) as unfinished, unfinished.open("wb") as target, stores.open_read(url, 0) as source:
        shutil.copyfileobj(source, target, stores.BLOCK_BYTES)


def _names_below(folder: pathlib.Path) -> Iterator[str]:
    """Yields the names of all files, following links, because a store has no links."""
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            yield pathlib.Path(place, name).relative_to(folder).as_posix()


def _is_of_one_pod(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == WORK or parts[-1] == ".lock" or CLAIMS in parts


def _state(path: pathlib.Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _rank(name: str) -> int:
    """Returns the position of a file in the upload order."""
    if name == BEGIN:
        return len(_ORDER) + 1
    return next((rank for rank, ending in enumerate(_ORDER, 1) if name.endswith(ending)), 0)
