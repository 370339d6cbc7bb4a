"""Servers of object stores on this machine, and a proxy that puts faults between them and a client.

Each is a process of its own: pyarrow holds Python's lock in some requests, and a server in a thread of the client could
not answer them.
"""

import contextlib
import dataclasses
import http.client
import http.server
import json
import pathlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests-secret-8f3a", "AWS_EC2_METADATA_DISABLED": "true"}
_SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_BROKEN = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>We failed.</Message></Error>"
_STATUS = {"slow_down": (503, "Slow Down", _SLOW_DOWN), "error": (500, "Internal Server Error", _BROKEN)}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], port: int, folder: pathlib.Path | None = None) -> Iterator[None]:
    """Runs a server, in a folder, until the block ends. Waits until it listens."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        else:
            raise RuntimeError(f"{command}: does not listen")
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def s3_server() -> Iterator[int]:
    """Runs moto's server of S3 until the block ends, and yields its port."""
    port = free_port()
    with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        yield port


def make_bucket(port: int, bucket: str) -> None:
    """Makes a bucket in a server of S3."""
    ask(port, "PUT", f"/{bucket}", b"")


def ask(port: int, method: str, path: str, body: bytes) -> None:
    """Sends a request to a server of this machine. Raises RuntimeError if it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    if answer.status not in (200, 201):
        raise RuntimeError(f"{method} {path}: {answer.status} {said[:200]!r}")


# Faults --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rule:
    """The requests that have a fault, and the kind of fault.

    Attributes:
        fault: slow_down (503), error (500), cut (half the body, then the end of the connection), reset (no answer),
            slow (a wait of `seconds`), or a status with an error's code, as "403 AccessDenied". "" for none.
        share: The share of the requests that have it.
        seed: Of the choice of these.
        part: What a request's method and path must contain to have it.
        seconds: Of the wait.
    """

    fault: str = ""
    share: float = 1.0
    seed: int = 0
    part: str = ""
    seconds: float = 1.0


class Proxy:
    """A proxy between ctrpipe and a server, in its own process.

    Attributes:
        port: The proxy's port on 127.0.0.1.
    """

    def __init__(self, port: int):
        self.port = port

    def follow(self, rule: Rule) -> None:
        """Applies a rule to all further requests, and clears the record of earlier ones."""
        self._tell("/__rule", json.dumps(dataclasses.asdict(rule)).encode())

    def requests(self) -> list[str]:
        """Returns the method and path of each request since the last rule."""
        urls: list[str] = json.loads(self._tell("/__requests"))
        return urls

    def faults(self) -> int:
        """Returns the number of requests with a fault since the last rule."""
        return int(self._tell("/__faults"))

    def _tell(self, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("POST", path, body)
        text = connection.getresponse().read()
        connection.close()
        return text


@contextlib.contextmanager
def faulty(port: int, rule: Rule) -> Iterator[Proxy]:
    """Runs a proxy in front of a server until the block ends."""
    own = free_port()
    with running([sys.executable, "-m", "benchmarks.harness.store_servers", str(own), str(port)], own, ROOT):
        proxy = Proxy(own)
        proxy.follow(rule)
        yield proxy


def _run_proxy(own: int, port: int) -> None:
    """Answers at a port by asking the server at the other, or with a fault."""
    rule, dice = Rule(), random.Random(0)
    requests: list[str] = []
    faults = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _forward(self) -> None:
            nonlocal rule, dice, faults
            body = self._body()
            if self.path.startswith("/__"):
                if self.path == "/__rule":
                    rule = Rule(**json.loads(body))
                    dice, faults = random.Random(rule.seed), 0
                    requests.clear()
                told = json.dumps(faults if self.path == "/__faults" else requests).encode()
                self._answer(200, "OK", [], told)
                return
            requests.append(f"{self.command} {self.path}")
            fault = rule.fault if rule.part in requests[-1] and dice.random() < rule.share else ""
            faults += bool(fault)
            if fault == "reset":
                self._hang_up()
                return
            if fault == "slow":
                time.sleep(rule.seconds)
            elif fault and fault != "cut":
                status, reason, text = _STATUS.get(fault) or _refusal(fault)
                self._answer(status, reason, [("Content-Type", "application/xml")], text)
                return
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            text = answer.read()
            hop = ("connection", "transfer-encoding")
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in hop]
            self._answer(answer.status, answer.reason, headers, text, cut=fault == "cut")
            connection.close()

        def _body(self) -> bytes:
            if "100-continue" in self.headers.get("Expect", ""):
                del self.headers["Expect"]
            if self.headers.get("Transfer-Encoding", "") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            del self.headers["Transfer-Encoding"]
            return b"".join(pieces)

        def _answer(
            self, status: int, reason: str, headers: list[tuple[str, str]], text: bytes, cut: bool = False
        ) -> None:
            is_head = self.command == "HEAD"
            self.send_response_only(status, reason)
            for name, value in headers:
                if is_head and name.lower() == "content-type" and status >= 400:
                    continue  # Azure's client would parse a body, and ends the process where there is none
                if is_head or name.lower() != "content-length":
                    self.send_header(name, value)
            if not is_head:
                self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(OSError):  # the client has hung up
                self.wfile.write(b"" if is_head else text[: len(text) // 2] if cut else text)
            if cut:
                self._hang_up()

        def _hang_up(self) -> None:
            with contextlib.suppress(OSError):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _forward

    server = http.server.ThreadingHTTPServer(("127.0.0.1", own), Handler)
    server.daemon_threads = True
    server.serve_forever()


def _refusal(fault: str) -> tuple[int, str, bytes]:
    status, code = fault.split()
    return int(status), code, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No.</Message></Error>".encode()


if __name__ == "__main__":
    _run_proxy(int(sys.argv[1]), int(sys.argv[2]))
