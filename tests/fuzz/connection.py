"""One connection to a server under test, and the check of its answers."""

import json
import re
import socket
import struct
import time
from collections.abc import Collection

from tests.fuzz.rest_requests import Script, Sent

LIMIT_SECONDS = 15.0  # of one script; a client that sends half of its headers is dropped after ten
# What a request of these kinds may be answered with; an error at the server is never among them.
STATUSES = {200, 400, 404, 405, 408, 411, 413, 414, 417, 426, 431, 499}
NO_HTTP_1_1 = {501, 505}  # also what is no right HTTP/1.1: another transfer coding, another version


class Fault(AssertionError):
    """A request with a wrong answer."""


class Connection:
    """Raw bytes to HOST:PORT, and HTTP responses back."""

    def __init__(self, address: tuple[str, int]):
        self._socket = socket.create_connection(address, LIMIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Raises OSError: the server has closed."""
        self._socket.settimeout(LIMIT_SECONDS)
        self._socket.sendall(data)

    def finish_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Resets the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def closed(self) -> bool:
        """Returns whether the server has answered or closed, without waiting."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        return True

    def response(self, deadline: float, has_body: bool = True) -> tuple[int, dict[str, str], bytes] | None:
        """Returns the next response; None if the server has closed instead.

        Raises:
            Fault: it takes too long, or is cut off.
        """
        while True:
            head = self._until(deadline, lambda: (end := self._buffer.find(b"\r\n\r\n")) >= 0 and end + 4)
            if head is None:
                return None
            first, *lines = head.decode("latin-1").rstrip().split("\r\n")
            found = re.fullmatch(r"HTTP/1\.1 (\d{3})( .*)?", first)
            if not found:
                raise Fault(f"no HTTP response: {head[:200]!r}")
            status = int(found[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if status != 100:
                break
        size = int(headers.get("content-length", "0")) if has_body else 0
        body = self._until(deadline, lambda: len(self._buffer) >= size and size) if size else b""
        if body is None:
            raise Fault(f"the connection ended within a response of {size} bytes")
        return status, headers, body

    def _until(self, deadline: float, complete) -> bytes | None:
        while not (size := complete()):
            left = deadline - time.monotonic()
            if left <= 0:
                raise Fault(f"no answer within {LIMIT_SECONDS:.0f} s; so far {self._buffer[:200]!r}")
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError:
                data = b""
            if not data:
                if self._buffer:
                    raise Fault(f"the connection ended within a response: {self._buffer[:200]!r}")
                return None
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def play(address: tuple[str, int], script: Script) -> list[int]:
    """Sends a script and checks the answers; returns their status codes.

    Raises:
        Fault: a wrong answer, none, or too late.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    with Connection(address) as connection:
        if script.manner in ("cut", "reset", "deaf"):
            return _leave(connection, script)
        if not script.http:
            return _malformed(connection, script, deadline)
        statuses = []
        if script.manner == "pipelined":
            connection.send(b"".join(sent.data for sent in script.sent))
        for sent in script.sent:
            if script.manner == "slowly":
                at = int(len(sent.data) * script.share)
                connection.send(sent.data[:at])
                time.sleep(0.002)
                connection.send(sent.data[at:])
            elif script.manner == "in turn":
                connection.send(sent.data)
            answer = connection.response(deadline)
            if answer is None:
                raise Fault(f"the connection ended in place of an answer to {sent}")
            statuses.append(judge(sent, *answer))
        return statuses


def judge(sent: Sent, status: int, headers: dict[str, str], body: bytes, statuses: Collection[int] = STATUSES) -> int:
    """Returns the status of a correct answer. Raises Fault for any other."""
    if sent.expected is not None:
        if status != 200 or _parsed(body) != sent.expected:
            raise Fault(f"{sent} was answered {status} {body[:500]!r}")
    elif status not in statuses:
        raise Fault(f"{sent} was answered {status} {body[:500]!r}")
    elif headers.get("content-type", "").startswith("application/json") and body:
        answer = _parsed(body)
        if not isinstance(answer, dict) or (status != 200) != (list(answer) == ["error"]):
            raise Fault(f"{sent} was answered {status} with {body[:500]!r}")
    return status


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise Fault(f"a response that is no JSON ({error}): {body[:500]!r}") from error


def _leave(connection: Connection, script: Script) -> list[int]:
    data = script.sent[0].data
    connection.send(data if script.manner == "deaf" else data[: int(len(data) * script.share)])
    if script.manner == "reset":
        connection.reset()
    return []


def _malformed(connection: Connection, script: Script, deadline: float) -> list[int]:
    """Checks that the server answers or closes after the last byte."""
    (sent,) = script.sent
    at = int(len(sent.data) * script.share) if script.manner == "slowly" else 0
    try:
        connection.send(sent.data[:at])
        connection.send(sent.data[at:])
        connection.finish_sending()
    except OSError:  # it was refused before all had been sent
        return []
    statuses = []
    while answer := connection.response(deadline, has_body=not sent.data.startswith(b"HEAD")):
        statuses.append(judge(sent, *answer, STATUSES | NO_HTTP_1_1))
    return statuses
