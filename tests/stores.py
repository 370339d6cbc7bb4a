"""Servers of object stores for the tests, with an empty bucket for each test."""

import dataclasses
import os
import pathlib
import sys
import uuid
from collections.abc import Iterator

import pytest

from benchmarks.harness.store_servers import KEYS, ask, free_port, make_bucket, running, s3_server


@dataclasses.dataclass
class Store:
    """A running server, and a bucket of it that no other test uses.

    Attributes:
        url: The bucket's URL.
        environment: The variables that lead to the server.
        port: The server's port on 127.0.0.1.
    """

    url: str
    environment: dict[str, str]
    port: int


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """A server of moto that speaks S3."""
    with s3_server() as port:
        yield port


@pytest.fixture(scope="session")
def gs_port() -> Iterator[int]:
    """A server that speaks Google Cloud Storage's JSON API."""
    port = free_port()
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
    with running([*command, "--in-memory"], port):
        yield port


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty bucket of S3, which the environment leads to."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    environment = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}", "AWS_REGION": "eu-central-1"}
    make_bucket(s3_port, bucket)
    return _led_to(Store(f"s3://{bucket}", environment, s3_port), monkeypatch)


@pytest.fixture
def gs(gs_port: int, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty bucket of Google Cloud Storage, which the environment leads to."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    ask(gs_port, "POST", "/storage/v1/b?project=tests", f'{{"name": "{bucket}"}}'.encode())
    environment = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{gs_port}"}
    return _led_to(Store(f"gs://{bucket}", environment, gs_port), monkeypatch)


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty bucket of each kind of store in turn."""
    found: Store = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def web(tmp_path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """A web server that answers no ranges, as Python's own: its URL, and its folder."""
    folder = tmp_path / "web"
    folder.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    with running(command, port):
        yield f"http://127.0.0.1:{port}", folder


def _led_to(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store


def command_environment(store: Store) -> dict[str, str]:
    """Returns the environment of a command that uses a store."""
    return {**os.environ, **store.environment, "TF_CPP_MIN_LOG_LEVEL": "2"}
