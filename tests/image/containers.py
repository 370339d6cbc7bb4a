"""Runs the images of kubeflow/Dockerfile like a strict cluster: as user 1000 with a read-only root.

Where no image is there (`make image` builds both), the tests of this folder are skipped.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator

import httpx
import pytest

ENGINE = next((found for name in ("podman", "docker") if (found := shutil.which(name))), None)
PIPELINE = os.environ.get("CTRPIPE_IMAGE", "localhost/ctrpipe:1")
SERVING = os.environ.get("CTRPIPE_SERVING_IMAGE", "localhost/ctrpipe-serving:1")
NO_RIGHTS = ("--user=1000", "--cap-drop=ALL", "--security-opt=no-new-privileges")


def why_not(*images: str) -> str:
    """Returns why containers of these images cannot run here; "" if they can."""
    if not ENGINE:
        return "neither podman nor docker is installed"
    absent = [name for name in images if subprocess.run([ENGINE, "inspect", name], capture_output=True).returncode]
    return f"{', '.join(absent)}: no such image here; `make image` builds it" if absent else ""


def needs(*images: str) -> list[pytest.MarkDecorator]:
    """Returns the marks of a file whose tests run these images."""
    reason = why_not(*images)
    return [pytest.mark.large, pytest.mark.slow, pytest.mark.skipif(bool(reason), reason=reason)]


@dataclasses.dataclass(frozen=True)
class Ended:
    """The end of a container: its exit code and output."""

    code: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        return self.output + self.errors


def writable(folder: pathlib.Path) -> pathlib.Path:
    """Lets user 1000 of a container write to a folder and all its contents."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o777 if path.is_dir() else 0o666))
    return folder


def engine(*arguments: object, seconds: float = 400) -> Ended:
    """Runs a command of podman or docker."""
    assert ENGINE
    ended = subprocess.run([ENGINE, *map(str, arguments)], capture_output=True, text=True, timeout=seconds)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def options(
    volumes: dict[pathlib.Path, str] | None = None, network: str = "none", root: str = "--read-only"
) -> list[str]:
    """Returns the options of a container without rights.

    Args:
        volumes: The path in the container, with `:ro` at its end for a read-only one, of each folder here.
        network: The engine's name of a network.
        root: `--read-only`, or "" for a root that can be written.
    """
    mounts = [f"--volume={folder}:{place}" for folder, place in (volumes or {}).items()]
    return [*NO_RIGHTS, *filter(None, [root]), "--tmpfs=/tmp", f"--network={network}", *mounts]


def run(image: str, *command: object, more: tuple[str, ...] = (), seconds: float = 400, **kind: object) -> Ended:
    """Runs a command in a new container, which is removed at its end; `kind` is given to `options`."""
    first, *rest = command
    entrypoint = f"--entrypoint={first}"
    return engine("run", "--rm", *options(**kind), *more, entrypoint, image, *rest, seconds=seconds)  # type: ignore[arg-type]


@contextlib.contextmanager
def started(image: str, *command: object, more: tuple[str, ...] = (), **kind: object) -> Iterator[str]:
    """Starts a container, and removes it at the end of the block; yields its name."""
    name = f"ctrpipe-test-{uuid.uuid4().hex[:12]}"
    first, *rest = command
    made = engine("run", "--detach", f"--name={name}", *options(**kind), *more, f"--entrypoint={first}", image, *rest)  # type: ignore[arg-type]
    try:
        assert made.code == 0, made.errors
        yield name
    finally:
        engine("rm", "--force", name)


def address(name: str, port: int) -> str:
    """Returns the local address of a container's published port."""
    found = engine("port", name, f"{port}/tcp")
    assert found.code == 0, found.errors
    return found.output.splitlines()[0].strip()


def wait_until(what: Callable[[], bool], container: str, seconds: float = 60) -> None:
    """Waits until a condition holds; fails with the container's log otherwise."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.TransportError):
            if what():
                return
        assert time.monotonic() < end, engine("logs", container).text
        time.sleep(0.2)
