"""A scoring whose output folder is a URL: it is written on this machine, and then to the store."""

import contextlib
import pathlib
from collections.abc import Iterator

from ctrpipe.common import stores
from ctrpipe.common.store_folders import MANIFEST, one_writer, upload, work_folder
from ctrpipe.common.stores import StoreError
from ctrpipe.serving.scoring.folder import DEAD_LETTER, SUMMARY


@contextlib.contextmanager
def stored_scoring(url: str) -> Iterator[pathlib.Path]:
    """Yields the folder to score into, and writes its files to the store when the block succeeds.

    The folder stays on this machine, so that an interrupted scoring goes on.

    Raises:
        StoreError: another process writes there, or has, or the store refuses a request or does not answer.
    """
    url, folder = url.rstrip("/"), work_folder(url)
    with one_writer(url):
        if stores.is_file(stores.join(url, MANIFEST)) and not (folder / SUMMARY).exists():
            raise StoreError(f"{url}: holds the result of another scoring; choose another --output or remove it")
        yield folder
        found = [*folder.glob("part-*.parquet"), *folder.glob(f"{DEAD_LETTER}/*"), folder / SUMMARY]
        upload(folder, url, [path.relative_to(folder).as_posix() for path in found])
