"""Follows a model's base path: loads new versions and unloads old ones (contract V1-V5)."""

import concurrent.futures
import dataclasses
import logging
import pathlib
import re
import threading
from collections.abc import Callable

import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.serving.loader import LoadedServable
from ctrpipe.serving.server.errors import ServingError, from_tensorflow

log = logging.getLogger(__name__)

_STOP_SECONDS = 2.0  # the server has already waited for running requests


@dataclasses.dataclass(frozen=True)
class Policy:
    """Which versions are served (V2): the `latest` highest ones, `all`, or the `specific` ones."""

    latest: int = 1
    all: bool = False
    specific: frozenset[int] = frozenset()

    def wanted(self, present: dict[int, pathlib.Path]) -> dict[int, pathlib.Path]:
        """Returns the versions to serve, out of the versions in the file system."""
        if self.specific:
            return {number: path for number, path in present.items() if number in self.specific}
        if self.all:
            return present
        return {number: present[number] for number in sorted(present)[-max(self.latest, 1) :]}


@dataclasses.dataclass
class Version:
    """A version and its state: START, LOADING, AVAILABLE, UNLOADING or END, with an error code and message."""

    number: int
    path: pathlib.Path
    state: str = "START"
    error_code: str = "OK"
    error_message: str = ""
    servable: LoadedServable | None = None
    wanted: bool = True
    users: int = 0
    tries: int = 0


@dataclasses.dataclass(frozen=True)
class LoadExecutors:
    """The threads that load and unload versions, and the retries of a failed load (V5)."""

    load: concurrent.futures.Executor
    unload: concurrent.futures.Executor
    retries: int = 5
    retry_seconds: float = 60.0


def _scan(base_path: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns the version folders by number: those named by a 64-bit integer (V1).

    Of two folders with the same number, the last one counts. Raises OSError.
    """
    paths: dict[int, pathlib.Path] = {}
    for path in sorted(base_path.iterdir()):
        if not re.fullmatch(r"\s*[+-]?\d+\s*", path.name, re.ASCII) or not -(2**63) <= int(path.name) < 2**63:
            continue
        number = int(path.name)
        if number in paths:
            log.warning(
                "Duplicate version directories detected. Version %d will be loaded from %s, %s will be ignored.",
                number,
                path.name,
                paths[number].name,
            )
        paths[number] = path
    return paths


class VersionManager:
    """The versions of one model. A new version is available before the old ones are unloaded (V3).

    A version that fails to load or to warm up ends with its error, and no other version is unloaded.

    Args:
        name: The model's name.
        load: Returns the warmed-up servable of a version, given its number and folder. An exception becomes the
            version's error.
        executors: The threads that load and unload versions.

    Attributes:
        base_path: The folder of the model's versions.
        source: The source in messages: the folder, or the URL of its copies.
        policy: Selects the versions to serve. A change of `policy` or `base_path` takes effect at the next `scan` and
            `follow`.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[int, pathlib.Path], LoadedServable],
        executors: LoadExecutors,
    ):
        self.name = name
        self.base_path = pathlib.Path()
        self.source = ""
        self.policy = Policy()
        self._load_servable = load
        self._executors = executors
        self._versions: dict[int, Version] = {}
        self._available: dict[int, Version] = {}
        self._next: dict[int, pathlib.Path] | None = None  # the versions wanted next, once those that leave have ended
        self._lock = threading.Condition()
        self._stopped = False

    def status(self) -> list[Version]:
        """Returns all known versions, highest first (S2)."""
        with self._lock:
            return [self._versions[number] for number in sorted(self._versions, reverse=True)]

    def take(self, number: int | None = None) -> Version | None:
        """Returns the highest available version or a given one; None if it is not available.

        The version stays loaded until `give_back`.
        """
        with self._lock:
            if number is None:
                number = max(self._available, default=None)
            version = None if number is None else self._available.get(number)
            if version is not None:
                version.users += 1
        return version

    def give_back(self, version: Version) -> None:
        """Ends a use started by `take`."""
        with self._lock:
            version.users -= 1
            if version.users == 0 and version.state == "UNLOADING":
                self._executors.unload.submit(self._close, version)

    def reached(self) -> Version | None:
        """Returns the highest wanted version that is available or has ended; None if there is none."""
        with self._lock:
            ended = ("AVAILABLE", "END")
            reached = [version for version in self._versions.values() if version.wanted and version.state in ended]
            return max(reached, key=lambda version: version.number, default=None)

    def is_loading(self) -> bool:
        """Returns whether a wanted version is loading, or waits for its turn or its next attempt."""
        with self._lock:
            return any(version.wanted and version.state in ("START", "LOADING") for version in self._versions.values())

    # Wanted versions --------------------------------------------------------------------------------------------------

    def scan(self) -> dict[int, pathlib.Path]:
        """Returns the folders below the base path by version number. Raises OSError if it is unreadable."""
        return _scan(self.base_path)

    def follow(self, present: dict[int, pathlib.Path]) -> None:
        """Loads the versions in the file system that the policy selects, and unloads the others."""
        wanted = self.policy.wanted(present)
        if not wanted:
            log.warning("No versions of servable %s found under base path %s", self.name, self.source or self.base_path)
        for number in self.policy.specific - set(present):
            log.warning("Version %d of servable %s was not found in the file system", number, self.name)
        self._aspire(wanted)

    def retire(self) -> None:
        """Unloads every version. A version in use is unloaded after its last request."""
        self._aspire({})

    def stop(self) -> None:
        """Unloads every version.

        A version still in use after _STOP_SECONDS stays loaded until the process ends.
        """
        with self._lock:
            self._stopped = True
        self.retire()
        with self._lock:
            self._lock.wait_for(lambda: all(v.servable is None for v in self._versions.values()), _STOP_SECONDS)

    def _aspire(self, wanted: dict[int, pathlib.Path]) -> None:
        with self._lock:
            self._next = wanted
            self._advance()

    def _take_next(self) -> None:
        """Starts serving the next wanted versions. The caller must hold the lock.

        As in TF Serving (aspired_versions_manager.cc), the next versions wait until all versions being unloaded have
        ended. If a version failed to load, the previous one keeps serving, and becomes wanted again only after another
        version has served. A failed version is not retried while it is wanted.
        """
        wanted = self._next
        if wanted is None or any(self._is_leaving(number) for number in wanted):
            return
        self._next = None
        for number, path in wanted.items():
            if number not in self._versions or not self._versions[number].wanted:
                self._versions[number] = Version(number, path)
        for number, version in self._versions.items():
            version.wanted = number in wanted

    def _is_leaving(self, number: int) -> bool:
        version = self._versions.get(number)
        return version is not None and not version.wanted and version.state != "END"

    def _advance(self) -> None:
        """Starts the loads and unloads that are possible now. The caller must hold the lock."""
        self._take_next()
        versions = [self._versions[number] for number in sorted(self._versions, reverse=True)]
        wanted = [version for version in versions if version.wanted]
        leaving = [version for version in versions if version.state == "AVAILABLE" and not version.wanted]
        if wanted and not any(version.state == "AVAILABLE" for version in wanted):
            leaving = leaving[1:]  # the highest serves until a wanted one does
        for version in leaving:
            self._unload(version)
        for version in wanted:
            if version.state == "START" and not self._stopped:
                version.state = "LOADING"
                self._executors.load.submit(self._load, version)

    # Loading and unloading --------------------------------------------------------------------------------------------

    def _load(self, version: Version) -> None:
        with self._lock:
            if not version.wanted:
                version.state = "END"
                self._advance()
                return
        try:
            servable = self._load_servable(version.number, version.path)
        except Exception as error:
            self._fail(version, _as_serving_error(error))
            return
        with self._lock:
            version.servable = servable
            version.state = "AVAILABLE"
            self._available[version.number] = version
            self._advance()

    def _fail(self, version: Version, error: ServingError) -> None:
        log.error("Loading servable {name: %s version: %d} failed: %s", self.name, version.number, error.message)
        with self._lock:
            version.tries += 1
            if version.tries > self._executors.retries or not version.wanted:
                self._end(version, error)
                return
        retry = threading.Timer(max(self._executors.retry_seconds, 0), self._retry, [version, error])
        retry.daemon = True
        retry.start()

    def _retry(self, version: Version, error: ServingError) -> None:
        with self._lock:
            if version.wanted and not self._stopped:
                self._executors.load.submit(self._load, version)
            else:
                self._end(version, error)

    def _end(self, version: Version, error: ServingError) -> None:
        version.state = "END"
        version.error_code, version.error_message = error.code, error.message or ""
        self._advance()

    def _unload(self, version: Version) -> None:
        version.state = "UNLOADING"
        del self._available[version.number]
        if version.users == 0:
            self._executors.unload.submit(self._close, version)

    def _close(self, version: Version) -> None:
        if version.servable is not None:
            version.servable.close()
        with self._lock:
            version.servable = None
            version.state = "END"
            self._advance()
            self._lock.notify_all()


def _as_serving_error(error: Exception) -> ServingError:
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.OpError):
        return from_tensorflow(error)
    return ServingError("NOT_FOUND" if isinstance(error, InputError | OSError) else "UNKNOWN", str(error))
