"""Objects in stores: found, read by ranges, written whole, and asked for again after faults that pass."""

import functools
import hashlib
import http.server
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from benchmarks.harness.store_servers import Proxy, Rule, faulty, free_port
from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.stores import StoreError, UnreachableError
from tests.stores import lead_to

pytestmark = pytest.mark.slow  # a server starts in seconds


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setenv(stores.RETRY_SECONDS, "10")


@pytest.fixture
def through(monkeypatch):
    """through(proxy): the environment leads to the proxy from now on."""

    return lambda proxy: lead_to(proxy, monkeypatch)


def random_bytes(size, seed=0):
    return random.Random(seed).randbytes(size)


def test_what_is_written_is_read_in_any_order(store, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK_BYTES", 1000)
    contents = random_bytes(12_345)
    url = f"{store.url}/a folder/größe=1?.bin"
    stores.write_bytes(url, contents)
    assert stores.read_bytes(url) == contents
    assert stores.state_of(url)[0] == len(contents)
    with stores.open_read(url) as file:
        for start, size in [
            (0, 10),
            (10, 500),
            (510, 1000),
            (1510, 3000),
            (200, 7),
            (12_300, 100),
            (4000, 5000),
            (0, -1),
        ]:
            file.seek(start)
            assert file.read(size) == contents[start:][: size if size >= 0 else None]
        file.seek(-5, 2)
        assert file.read() == contents[-5:] and file.read(1) == b""
    with stores.open_read(url, 2000, 9000) as file:
        file.seek(2000)
        assert b"".join(iter(lambda: file.read(700), b"")) == contents[2000:]
        assert hashlib.file_digest(stores.open_read(url), "sha256").digest() == hashlib.sha256(contents).digest()


def test_an_empty_object_is_empty(store):
    stores.write_bytes(f"{store.url}/empty", b"")
    assert stores.read_bytes(f"{store.url}/empty") == b""
    assert stores.is_file(f"{store.url}/empty")


def test_a_changed_object_has_another_tag_even_with_the_same_size(store):
    url = f"{store.url}/log.csv"
    stores.write_bytes(url, b"click,ad\n1,a\n")
    before = stores.state_of(url)
    assert stores.state_of(url) == before
    stores.write_bytes(url, b"click,ad\n0,a\n")
    assert stores.state_of(url)[0] == before[0] and stores.state_of(url) != before


def test_names_are_found_as_on_a_disk(store):
    names = [
        "day=2/b.csv",
        "day=10/a.csv",
        "day=2/.hidden",
        "day=2/_SUCCESS",
        "x/y/z.csv",
        "x/w.csv",
        "top_2.csv",
        "top_10.csv",
    ]
    for name in names:
        stores.write_bytes(f"{store.url}/{name}", b"1")

    def found(pattern):
        return [url.removeprefix(f"{store.url}/") for url in stores.matching(f"{store.url}/{pattern}")]

    assert found("top_*.csv") == ["top_2.csv", "top_10.csv"]
    assert found("day=*") == ["day=2", "day=10"]
    assert found("day=*/*") == ["day=2/_SUCCESS", "day=2/b.csv", "day=10/a.csv"]
    assert found("day=*/.h*") == ["day=2/.hidden"]
    assert found("x/**/*.csv") == ["x/w.csv", "x/y/z.csv"]
    assert found("top_[0-9].csv") == ["top_2.csv"]
    assert found("none*") == found("top_3.csv") == []
    assert stores.files_below(store.url, "*=*/**/*") == [f"{store.url}/day=2/b.csv", f"{store.url}/day=10/a.csv"]
    assert stores.is_folder(f"{store.url}/x") and not stores.is_file(f"{store.url}/x")
    assert not stores.is_folder(f"{store.url}/top_2.csv") and not stores.is_folder(f"{store.url}/none")


FAULTS = ["slow_down", "error", "cut", "reset"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_is_not_seen(store, through, monkeypatch, fault):
    monkeypatch.setattr(stores, "BLOCK_BYTES", 100_000)
    monkeypatch.setattr(
        stores, "_SILENT_SECONDS", 2.0
    )  # Azure's client waits for minutes on a connection that is reset
    monkeypatch.setenv(stores.RETRY_SECONDS, "60")
    contents = random_bytes(2_000_000)
    with faulty(store.port, Rule(fault, share=0.3)) as proxy:
        through(proxy)
        stores.write_bytes(f"{store.url}/log.bin", contents)
        assert stores.read_bytes(f"{store.url}/log.bin") == contents
        assert stores.matching(f"{store.url}/*.bin") == [f"{store.url}/log.bin"]
        assert proxy.faults() > 3


def test_a_slow_store_is_read_by_several_requests_at_once(store, through, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK_BYTES", 100_000)
    contents = random_bytes(1_200_000)
    stores.write_bytes(f"{store.url}/log.bin", contents)
    with faulty(store.port, Rule("slow", seconds=0.5)) as proxy:
        through(proxy)
        began = time.monotonic()
        assert stores.read_bytes(f"{store.url}/log.bin") == contents
        assert time.monotonic() - began < 5  # 12 requests of half a second, and the first two


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("403 AccessDenied", "permission denied; check the bucket's policy"),
        ("403 InvalidAccessKeyId", "the store does not accept the credentials; check AWS_PROFILE"),
        ("403 SignatureDoesNotMatch", "the store does not accept the credentials; check AWS_PROFILE"),
        ("400 ExpiredToken", "the credentials have expired; renew them"),
        ("301 PermanentRedirect", "the bucket is in another region; set AWS_REGION"),
    ],
)
def test_a_refusal_is_one_line_and_not_repeated(s3, through, fault, says):
    with faulty(s3.port, Rule(fault)) as proxy:
        through(proxy)
        for work in (
            lambda: stores.matching(f"{s3.url}/*"),
            lambda: stores.write_bytes(f"{s3.url}/x", b"1"),
        ):
            with pytest.raises(StoreError) as error:
                work()
            assert says in str(error.value) and "\n" not in str(error.value)
            assert "tests-secret" not in str(error.value)
        assert len(proxy.requests()) < 8


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("400 ExpiredToken", "the credentials have expired"),
        ("403 SignatureDoesNotMatch", "the store does not accept the credentials"),
        ("403 InvalidAccessKeyId", "the store does not accept the credentials"),
        ("403 RequestTimeTooSkewed", "set this machine's clock"),
        ("403 AccessDenied", "permission denied, or no such object"),
    ],
)
def test_a_refused_read_names_the_cause(s3, through, fault, says):
    with faulty(s3.port, Rule(fault)) as proxy:
        through(proxy)
        with pytest.raises(StoreError, match=says):
            stores.read_bytes(f"{s3.url}/x")  # an answer to HEAD has no text


def test_a_refused_read_may_be_of_what_is_not_there(s3, through):
    """S3 answers 403 about a key that is not there, unless the keys may be listed."""
    with faulty(s3.port, Rule("403 AccessDenied", part="HEAD /")) as proxy:
        through(proxy)
        with pytest.raises(StoreError, match="permission denied, or no such object: .*; check the URL, the bucket's"):
            stores.read_bytes(f"{s3.url}/x")


def test_objects_are_asked_about_several_at_once_and_in_order():
    """A log of many small objects waits for the store, and files of this machine need no threads."""
    meet = threading.Barrier(4, timeout=10)

    def ask(path):
        meet.wait()
        return path.upper()

    paths = [f"s3://bucket/{number}" for number in range(8)]
    assert stores.in_parallel(ask, paths) == [path.upper() for path in paths]
    names: set[str] = set()
    assert stores.in_parallel(lambda path: names.add(threading.current_thread().name), ["a", "b"]) == [None, None]
    assert names == {threading.current_thread().name}
    with pytest.raises(ZeroDivisionError):
        stores.in_parallel(lambda path: 1 / (path != paths[3]), paths)


class Hesitant:
    """An object of 100 bytes. Only the bytes 0, 50 and 51 are answered before `told` is set."""

    size, tag = 100, "1"

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.told, self.all_threads_wait = threading.Event(), threading.Event()

    def read_at(self, start: int, length: int) -> bytes:
        self.asked.append(start)
        if start == 52:
            self.all_threads_wait.set()
        assert start in (0, 50, 51) or self.told.wait(10)
        return bytes(length)


def test_a_closed_file_requests_no_further_blocks(monkeypatch):
    monkeypatch.setattr(stores, "BLOCK_BYTES", 1)
    source = Hesitant()
    file = stores.ObjectFile("s3://bucket/a", source, start=0)
    file.read(1)
    file.seek(50)
    file.read(1)
    file.read(1)  # three threads wait for what followed the first byte, and the last one for byte 52
    assert source.all_threads_wait.wait(10)
    file.close()
    source.told.set()
    for thread in threading.enumerate():
        if thread.name.startswith("store_"):
            thread.join(10)
    assert sorted(source.asked) == [0, 1, 2, 3, 50, 51, 52]


def test_a_bucket_that_is_not_there(store):
    url = store.url.replace("://", "://none-") + "/a/*"
    with pytest.raises(StoreError, match="no such bucket; check the name"):
        stores.matching(url)


def test_a_store_that_does_not_come_back_is_one_line(store, through, monkeypatch):
    monkeypatch.setenv(stores.RETRY_SECONDS, "2")
    with faulty(store.port, Rule("slow_down")) as proxy:
        through(proxy)
        with pytest.raises(UnreachableError, match=r"still fails after \d+ tries .*; try again later"):
            stores.read_bytes(f"{store.url}/x")
        assert 1 < len(proxy.requests()) < 40  # the client of Google waits half a second by itself
    through(Proxy(port=free_port()))
    with pytest.raises(UnreachableError, match="does not answer .*; try again later, or correct"):
        stores.read_bytes(f"{store.url}/x")


def test_an_endpoint_that_speaks_no_tls_is_said_soon(s3, monkeypatch):
    monkeypatch.setattr(stores, "_FIRST_SECONDS", 0.2)
    monkeypatch.setattr(stores, "_answered", set())
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{s3.port}")
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="does not answer .*correct AWS_ENDPOINT_URL"):
        stores.read_bytes(f"{s3.url}/x")
    assert time.monotonic() - began < 9  # of the 10 s that other faults are repeated for


# A process of its own: Azure's client, left to itself, may end the process while that ends.
_READ_FROM_AZURE = """
import os
from ctrpipe.common import stores
stores._SILENT_SECONDS = 1
try:
    stores.{request}
except (stores.StoreError, FileNotFoundError) as error:
    print(f"{{type(error).__name__}}: {{error}}", flush=True)
os._exit(0)
"""
_NO_BLOB = b"HTTP/1.1 404 Not Found\r\nx-ms-error-code: BlobNotFound\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "silent", "says"),
    [
        ("read_bytes(URL)", 1, r"FileNotFoundError: .*/x'\n"),  # the second try is answered
        ("read_bytes(URL)", 99, r"UnreachableError: .*still fails after \d tries \(timed out: no answer in 1 s\).*\n"),
        ("write_bytes(URL, b'1')", 99, r"UnreachableError: .*\(timed out: no answer in 1 s\); try again later.*\n"),
    ],
)
def test_an_azure_that_takes_a_request_and_never_answers_is_left_in_time(request_, silent, says):
    held = []

    def serve():
        while True:
            connection, _ = listener.accept()
            held.append(connection)
            if len(held) > silent:
                connection.recv(65536)
                connection.sendall(_NO_BLOB)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = {
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "AZURE_STORAGE_KEY": "a2V5",
            stores.RETRY_SECONDS: "20" if silent == 1 else "0.5",
        }
        code = _READ_FROM_AZURE.format(request=request_.replace("URL", "'abfs://box@account.dfs.core.windows.net/x'"))
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **settings}, capture_output=True, text=True, timeout=40
        )
        assert re.fullmatch(says, done.stdout), done.stdout + done.stderr


def test_a_missing_object_is_not_found(store):
    with pytest.raises(FileNotFoundError):
        stores.read_bytes(f"{store.url}/none")
    assert not stores.is_file(f"{store.url}/none")


def test_a_server_without_ranges_is_read_too(web):
    url, folder = web
    (folder / "log.csv").write_bytes(contents := random_bytes(300_000))
    assert stores.read_bytes(f"{url}/log.csv") == contents
    assert stores.is_file(f"{url}/log.csv") and not stores.is_file(f"{url}/none.csv")
    with pytest.raises(StoreError, match="a web server cannot list files"):
        stores.matching(f"{url}/*.csv")
    with pytest.raises(StoreError, match="a web server is read-only"):
        stores.write_bytes(f"{url}/x", b"1")


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("https://none.invalid/x", UnreachableError, r"the store does not answer \(Transport: .*none.invalid"),
        ("https://127.0.0.1:PORT/x", StoreError, "the server does not speak TLS; write http:// in place of https://$"),
    ],
)
def test_a_web_server_that_cannot_be_reached_is_said_soon(web, monkeypatch, url, error, says):
    monkeypatch.setattr(stores, "_FIRST_SECONDS", 0.2)
    monkeypatch.setattr(stores, "_answered", set())
    began = time.monotonic()
    with pytest.raises(error, match=says):
        stores.read_bytes(url.replace("PORT", web[0].rpartition(":")[2]))
    assert time.monotonic() - began < 9  # of the 10 s that other faults are repeated for


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_that_is_not_trusted_is_said_soon(tmp_path, monkeypatch):
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "certificate.pem")]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *files, *names]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    (tmp_path / "log.csv").write_bytes(b"a,b")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://localhost:{server.server_port}/log.csv"
        began = time.monotonic()
        with pytest.raises(StoreError, match="certificate is not trusted .*; set SSL_CERT_FILE"):
            stores.read_bytes(url)
        assert time.monotonic() - began < 9
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        stores._pool.cache_clear()  # of a process that began without it
        assert stores.read_bytes(url) == b"a,b"
        server.shutdown()
    stores._pool.cache_clear()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:secret@bucket/x", "the URL has credentials in it"),
        ("https://user:secret@host/x", "the URL has credentials in it"),
        ("https://host/x?X-Amz-Signature=secret", "the URL has credentials in it"),
        ("https://account.blob/x?sv=1&sig=secret", "the URL has credentials in it"),
        ("s3:///x", "names no bucket"),
        ("ftp://host/x", "ftp:// is not a known store"),
    ],
)
def test_a_url_that_is_refused(url, says):
    with pytest.raises(InputError) as error:
        stores.check_scheme(url)
    assert says in str(error.value) and "secret" not in str(error.value)


def test_a_path_is_no_url():
    assert stores.check_scheme("file:///a/b.csv") == "/a/b.csv"
    assert stores.check_scheme("s3.csv") == "s3.csv"
    assert not stores.is_url("file:///a") and stores.is_url("S3://a/b")


@pytest.mark.parametrize("name", ["log.csv.gz", "log.bz2", "log.zst"])
def test_what_a_name_says_of_compression_changes_no_byte(store, name):
    contents = random_bytes(5_000)
    stores.write_bytes(f"{store.url}/{name}", contents)
    assert stores.read_bytes(f"{store.url}/{name}") == contents
