"""The files that hold a server's models and their labels: on this machine, or objects in a store."""

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Protocol

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path
from ctrpipe.common.store_folders import one_writer


class ConfigFile(Protocol):
    """A text file that is replaced as a whole.

    Attributes:
        place: Its path, or its URL.
    """

    @property
    def place(self) -> pathlib.Path | str: ...

    def beside(self, suffix: str) -> "ConfigFile":
        """Returns the file in the same folder that has this file's name followed by a suffix."""

    def exists(self) -> bool:
        """Returns whether the file exists."""

    def read(self) -> str:
        """Returns the text."""

    def write(self, text: str, like: "ConfigFile | None" = None) -> None:
        """Replaces the file, with its own permissions or those of `like`, for a server that runs as another user."""

    def remove(self) -> None:
        """Removes the file, if it exists."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other changes out while the block runs. Raises InputError if another one is under way."""


def config_file(place: pathlib.Path | str) -> ConfigFile:
    """Returns the file of a path, with links resolved, or of a store's URL."""
    return StoredFile(str(place)) if stores.is_url(place) else LocalFile(pathlib.Path(place).resolve())


class LocalFile:
    """A file of this machine."""

    def __init__(self, path: pathlib.Path):
        self.place = path

    def __str__(self) -> str:
        return str(self.place)

    def beside(self, suffix: str) -> "LocalFile":
        return LocalFile(self.place.with_name(self.place.name + suffix))

    def exists(self) -> bool:
        return self.place.exists()

    def read(self) -> str:
        return self.place.read_text()

    def write(self, text: str, like: ConfigFile | None = None) -> None:
        with atomic_path(self.place) as unfinished, open(unfinished, "w") as output:
            shutil.copymode(like.place if like else self.place, unfinished)
            output.write(text)
            output.flush()
            os.fsync(output.fileno())

    def remove(self) -> None:
        self.place.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        folder = os.open(self.place.parent, os.O_RDONLY)  # a change replaces the file itself
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise InputError(f"{self}: another ctrpipe canary is changing it; try again") from error
        finally:
            os.close(folder)


class StoredFile:
    """An object in a store, which has no permissions of its own. It appears complete."""

    def __init__(self, url: str):
        self.place = url

    def __str__(self) -> str:
        return self.place

    def beside(self, suffix: str) -> "StoredFile":
        return StoredFile(self.place + suffix)

    def exists(self) -> bool:
        return stores.is_file(self.place)

    def read(self) -> str:
        return stores.read_bytes(self.place).decode()

    def write(self, text: str, like: ConfigFile | None = None) -> None:
        stores.write_bytes(self.place, text.encode())

    def remove(self) -> None:
        stores.delete(self.place)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        return one_writer(self.place.rpartition("/")[0])
