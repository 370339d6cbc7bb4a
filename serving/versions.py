"""Follows a model's base path: loads new versions, keeps the newest available, unloads the old (contract V1-V4)."""

import contextlib
import dataclasses
import logging
import pathlib
import threading
import time
from collections.abc import Iterator

from serving.loader import Servable, replay_warmup

log = logging.getLogger(__name__)
LOAD_RETRIES = 5
RETRY_WAIT_SECONDS = 60.0


@dataclasses.dataclass
class Version:
    """One version and its state: START, LOADING, AVAILABLE, UNLOADING or END, with an error code and message."""

    number: int
    path: pathlib.Path
    state: str = "START"
    error_code: str = "OK"
    error_message: str = ""
    servable: Servable | None = None
    users: int = 0
    tries: int = 0
    next_try: float = 0.0


class VersionManager:
    """Serves the newest version under a base path; a new one is available before the old one goes.

    A version that does not load, or whose warm-up fails, ends with its error and never replaces a good one.
    """

    def __init__(self, base_path: pathlib.Path, poll_seconds: float = 1.0):
        self.base_path = base_path
        self._poll_seconds = poll_seconds
        self._versions: dict[int, Version] = {}
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="versions", daemon=True)

    def start(self) -> None:
        """Loads what is there now, then polls in the background (0 = never again)."""
        self.poll()
        if self._poll_seconds > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for version in self.status():
            self._unload(version)

    def status(self) -> list[Version]:
        """All versions seen, newest first."""
        with self._changed:
            return sorted(self._versions.values(), key=lambda version: -version.number)

    @contextlib.contextmanager
    def use(self, number: int | None = None) -> Iterator[Version | None]:
        """The newest available version, or a given one; None where there is none. It stays loaded while in use."""
        with self._changed:
            found = [v for v in self._versions.values() if v.state == "AVAILABLE" and number in (None, v.number)]
            version = max(found, key=lambda version: version.number, default=None)
            if version:
                version.users += 1
        try:
            yield version
        finally:
            if version:
                with self._changed:
                    version.users -= 1
                    self._changed.notify_all()

    def _follow(self) -> None:
        while not self._stop.wait(self._poll_seconds):
            try:
                self.poll()
            except Exception:
                log.exception("Polling %s failed", self.base_path)

    def poll(self) -> None:
        """Looks at the base path once."""
        found = self._scan()
        if not found:
            log.warning("No versions of the model found under base path %s", self.base_path)
            return
        wanted = max(found)
        version = self._versions.get(wanted)
        if version is None or (version.state == "END" and not version.error_message):
            version = Version(wanted, found[wanted])
            with self._changed:
                self._versions[wanted] = version
        if version.state in ("START", "END"):
            self._try_load(version)
        if version.state == "AVAILABLE":
            for other in self.status():
                if other.number != wanted and other.state == "AVAILABLE":
                    self._unload(other)

    def _scan(self) -> dict[int, pathlib.Path]:
        if not self.base_path.is_dir():
            return {}
        folders = (path for path in self.base_path.iterdir() if path.name.isdecimal() and path.is_dir())
        return {int(path.name): path for path in folders if int(path.name) < 2**63}

    def _try_load(self, version: Version) -> None:
        if version.tries > LOAD_RETRIES or time.monotonic() < version.next_try:
            return
        version.state = "LOADING"
        version.tries += 1
        try:
            servable = Servable(version.path)
            replay_warmup(servable, version.path)
        except Exception as error:
            log.error("Version %d of %s failed to load: %s", version.number, self.base_path, error)
            version.next_try = time.monotonic() + RETRY_WAIT_SECONDS
            version.error_code, version.error_message = "UNKNOWN", str(error)
            version.state = "END"
            return
        with self._changed:
            version.servable = servable
            version.error_code, version.error_message = "OK", ""
            version.state = "AVAILABLE"

    def _unload(self, version: Version) -> None:
        with self._changed:
            if version.state != "AVAILABLE":
                return
            version.state = "UNLOADING"
            self._changed.wait_for(lambda: version.users == 0, timeout=30)
            servable, version.servable = version.servable, None
            version.state = "END"
        if servable:
            servable.close()
