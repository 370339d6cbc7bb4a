"""Servers of object stores for the tests, with an empty bucket for each test."""

import dataclasses
import os
import pathlib
import sys
import threading
import uuid
from collections.abc import Iterator

import pyarrow.fs
import pytest

from benchmarks.harness.store_servers import KEYS, ROOT, Proxy, ask, free_port, make_bucket, running, s3_server

_AZURITE = ROOT / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
_AZURITE_ACCOUNT = "devstoreaccount1"
# The key that every Azurite has, as its documentation prints it.
_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_ENDPOINTS = ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST", "AZURE_STORAGE_ENDPOINT")


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
    """Yields the port of moto's server of S3."""
    with s3_server() as port:
        yield port


@pytest.fixture(scope="session")
def gs_port() -> Iterator[int]:
    """Yields the port of a server of Google Cloud Storage's JSON API."""
    port = free_port()
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
    with running([*command, "--in-memory"], port):
        yield port


@pytest.fixture(scope="session")
def abfs_port() -> Iterator[int]:
    """Yields the port of Azurite, Microsoft's emulator of Azure Storage."""
    if not _AZURITE.exists():
        pytest.skip("no Azurite: run `make azurite`")
    port = free_port()
    command = [str(_AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    with running([*command, "--skipApiVersionCheck"], port):
        yield port
    for thread in threading.enumerate():
        if thread.name == "azure":  # left to itself by `stores`: a request at the end of the process would end it badly
            thread.join(60)


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Yields an empty bucket of S3, to which the environment points."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    environment = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}", "AWS_REGION": "eu-central-1"}
    make_bucket(s3_port, bucket)
    return _led_to(Store(f"s3://{bucket}", environment, s3_port), monkeypatch)


@pytest.fixture
def gs(gs_port: int, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Yields an empty bucket of Google Cloud Storage, to which the environment points."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    ask(gs_port, "POST", "/storage/v1/b?project=tests", f'{{"name": "{bucket}"}}'.encode())
    environment = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{gs_port}"}
    return _led_to(Store(f"gs://{bucket}", environment, gs_port), monkeypatch)


@pytest.fixture
def abfs(abfs_port: int, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Yields an empty container of Azure Storage, to which the environment points."""
    container = f"container-{uuid.uuid4().hex}"
    endpoint = f"http://127.0.0.1:{abfs_port}"
    environment = {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_KEY": _AZURITE_KEY}
    client = pyarrow.fs.AzureFileSystem(
        _AZURITE_ACCOUNT,
        account_key=_AZURITE_KEY,
        blob_storage_authority=f"127.0.0.1:{abfs_port}",
        dfs_storage_authority=f"127.0.0.1:{abfs_port}",
        blob_storage_scheme="http",
        dfs_storage_scheme="http",
    )
    client.create_dir(container, recursive=False)
    url = f"abfs://{container}@{_AZURITE_ACCOUNT}.dfs.core.windows.net"
    return _led_to(Store(url, environment, abfs_port), monkeypatch)


@pytest.fixture(params=["s3", "gs", pytest.param("abfs", marks=pytest.mark.large)])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty bucket of each kind of store in turn."""
    found: Store = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def web(tmp_path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields the URL and the folder of a web server that does not support ranges, like Python's own."""
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


def lead_to(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points the environment to a proxy in front of a store's server."""
    for name in _ENDPOINTS:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")


def command_environment(store: Store) -> dict[str, str]:
    """Returns the environment of a command that uses a store."""
    return {**os.environ, **store.environment, "TF_CPP_MIN_LOG_LEVEL": "2"}
