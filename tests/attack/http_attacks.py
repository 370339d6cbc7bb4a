"""Attacks by HTTP/1.1 itself: pipelines, trailers, lines that RFC 9112 forbids."""

import concurrent.futures
import contextlib
import json
import socket
import threading
import time

from tests.attack.target import METADATA, Bystander, LoopWatch, Measure, Target
from tests.fuzz.connection import Connection
from tests.fuzz.rest_requests import MODEL

_BODY = b'{"instances": [1.0]}'
_POST = f"POST {MODEL}:predict HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".encode()
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_CHUNK = b"%x\r\n%s\r\n" % (len(_BODY), _BODY)
PIPELINED_BYTES = 235_000
TAKEN_BYTES = 8 << 20  # of what does not end; nearly all lies in the buffers of both kernels


def pipelined_client_gone(target: Target) -> list[Measure]:
    """235 KB of pipelined metadata requests, the client gone after 50 ms."""
    with Bystander(target) as other, LoopWatch(target) as loop:
        for _ in range(target.take(20, 3)):
            with target.connect() as connection:
                connection.send(METADATA * (PIPELINED_BYTES // len(METADATA)))
                time.sleep(0.05)
        time.sleep(0.5)
    return [*loop.measures(), *other.measures()]


def pipelined_without_reading(target: Target) -> list[Measure]:
    """The same from clients that stay connected and read nothing."""
    with Bystander(target) as other, LoopWatch(target) as loop, contextlib.ExitStack() as stack:
        for _ in range(target.take(20, 5)):
            connection = stack.enter_context(target.connect())
            with contextlib.suppress(OSError):
                connection.send(METADATA * (PIPELINED_BYTES // len(METADATA)))
        time.sleep(target.take(10, 1))
    return [*loop.measures(), *other.measures()]


def pipelined_and_read(target: Target) -> list[Measure]:
    """The same from a client that reads its answers at full speed: other clients are served only in turns."""
    requests = METADATA * (PIPELINED_BYTES // len(METADATA))
    with Bystander(target) as other, LoopWatch(target) as loop:
        for _ in range(target.take(20, 3)):
            with socket.create_connection(target.rest) as client:
                reader = threading.Thread(target=_read_until_closed, args=[client])
                reader.start()
                client.sendall(requests + METADATA.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                reader.join()
    return [*loop.measures(), *other.measures()]


def _read_until_closed(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while client.recv(1 << 20):
            pass


def endless_trailer(target: Target) -> list[Measure]:
    """A complete chunked body, and a trailer whose value does not end."""
    return _endless(target, _CHUNKED + _CHUNK + b"0\r\nX-Endless: ")


def endless_header(target: Target) -> list[Measure]:
    """A header whose value does not end."""
    return _endless(target, b"POST / HTTP/1.1\r\nHost: a\r\nX-Endless: ")


def many_headers(target: Target) -> list[Measure]:
    """60,000 headers without a value: 240 KB, 60 KB of them names and values."""
    answer = statuses(target, b"POST / HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * 60_000 + b"\r\n")
    return [Measure("answers other than 431", answer != [431], 0)]


def headers_without_values(target: Target) -> list[Measure]:
    """Eight clients that repeatedly send 8,000 header names in 51 kB."""
    names = b"".join(b"%x:\r\n" % number for number in range(8000))
    end = time.monotonic() + target.take(10, 1)
    answers: list[list[int]] = []

    def ask(_: int) -> None:
        while time.monotonic() < end:
            answers.append(statuses(target, b"GET / HTTP/1.1\r\nHost: a\r\n" + names + b"\r\n"))

    with Bystander(target) as other, LoopWatch(target) as loop, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    wrong = sum(answer not in ([431], []) for answer in answers)  # none: the client was still sending
    return [Measure("answers other than 431", wrong, 0), *loop.measures(), *other.measures()]


def endless_chunk_extension(target: Target) -> list[Measure]:
    """A chunk's line that does not end."""
    return _endless(target, _CHUNKED + b"5;name=")


def folded_header(target: Target) -> list[Measure]:
    """A header whose value continues over many lines."""
    return _endless(target, b"POST / HTTP/1.1\r\nHost: a\r\nX-Folded: ", (b"a" * 98 + b"\r\n ") * 640)


def _endless(target: Target, start: bytes, more: bytes = b"a" * 65536) -> list[Measure]:
    sent = 0
    end = time.monotonic() + target.take(15, 3)
    with Bystander(target) as other, target.connect() as connection, contextlib.suppress(OSError):
        connection.send(start)
        while time.monotonic() < end and not connection.closed():
            connection.send(more)
            sent += len(more)
        sent = _refused_after(connection, sent)
    return [Measure("bytes taken of it", sent, TAKEN_BYTES), *other.measures()]


def _refused_after(connection: Connection, sent: int) -> int:
    """Returns the number of bytes sent; 2**62 without an answer."""
    if not connection.closed():
        return 1 << 62
    return sent


def tiny_chunks(target: Target) -> list[Measure]:
    """A body in chunks of one byte."""
    sent = 0
    end = time.monotonic() + target.take(15, 3)
    with Bystander(target) as other, target.connect() as connection, contextlib.suppress(OSError):
        connection.send(_CHUNKED)
        while time.monotonic() < end and not connection.closed():
            connection.send(b"1\r\na\r\n" * 10_000)
            sent += 60_000
        sent = _refused_after(connection, sent)
    return [Measure("bytes taken of it", sent, TAKEN_BYTES), *other.measures()]


def trailer_is_no_header(target: Target) -> list[Measure]:
    """A trailer that names an encoding or a host changes nothing."""
    trailers = (b"Content-Encoding: gzip", b"Host: b", b"Connection: close", b"Expect: 100-continue")
    answers = [statuses(target, _CHUNKED + _CHUNK + b"0\r\n" + line + b"\r\n\r\n") for line in trailers]
    return [Measure("answers other than 200", sum(answer != [200] for answer in answers), 0)]


def large_trailers(target: Target) -> list[Measure]:
    """70 KB of trailers are refused, like 70 KB of headers."""
    answer = statuses(target, _CHUNKED + _CHUNK + b"0\r\n" + (b"X: " + b"a" * 1000 + b"\r\n") * 70 + b"\r\n")
    return [Measure("answers other than 431", answer != [431], 0)]


def slow_trailers(target: Target) -> list[Measure]:
    """Trailers that arrive a byte per second get the headers' time limit, 10 s, not the body's, 60 s."""
    if not target.long:
        return []
    began = time.monotonic()
    with target.connect() as connection:
        connection.send(_CHUNKED + _CHUNK + b"0\r\nX: ")
        while time.monotonic() - began < 70 and not connection.closed():
            connection.send(b"a")
            time.sleep(1)
    return [Measure("until they were refused", time.monotonic() - began, 15, "s")]


def request_lines(target: Target) -> list[Measure]:
    """The rules of RFC 9112 for versions, Host, framing and 100 Continue."""
    line, length = f"POST {MODEL}:predict HTTP/1.1\r\n", f"Connection: close\r\nContent-Length: {len(_BODY)}\r\n"
    body = "\r\n" + _BODY.decode()
    chunked = f"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{_CHUNK.decode()}0\r\n\r\n"
    upgrade = "Host: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    old = line.replace("1.1", "1.0")
    wanted: list[tuple[str, list[int]]] = [
        (line + length + body, [400]),
        (line + "Host: a\r\nHost: a\r\n" + length + body, [400]),
        (line + "Host: a b\r\n" + length + body, [400]),
        (line + "Host: a/b\r\n" + length + body, [400]),
        (line + "Host: u@a\r\n" + length + body, [400]),
        (line + "Host: a:b\r\n" + length + body, [400]),
        (line + "Host: \r\n" + length + body, [200]),
        (line + "Host: [::1]:8501\r\n" + length + body, [200]),
        (line + "Host: a_b.c-d:8501\r\n" + length + body, [200]),
        (old + length + body, [200]),
        (old + "Expect: 100-continue\r\n" + length + body, [200]),
        (line + "Host: a\r\nExpect: 100-continue\r\n" + length + body, [100, 200]),
        (line.replace("1.1", "2.0") + "Host: a\r\n" + length + body, [505]),
        (line.replace("1.1", "0.9") + "Host: a\r\n" + length + body, [505]),
        (f"GET {MODEL}\r\n", [505]),
        (line + "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + _CHUNK.decode() + "0\r\n\r\n", [501]),
        (line + "Host: a\r\nTransfer-Encoding: gzip\r\n" + body, [501]),
        (old + "Host: a\r\n" + chunked, [400]),
        (line + "Host: a\r\n" + length + chunked, [400]),
        (line + "Host: a\r\n" + chunked, [200]),
        (line + upgrade + length + body, [200]),
        (line + upgrade + chunked, [200]),
    ]
    wrong = []
    for text, expected in wanted:
        found = statuses(target, text.encode())
        if found != expected:
            wrong.append(f"{text.encode()!r}: {found} in place of {expected}")
    return [Measure("answered otherwise " + "; ".join(wrong), len(wrong), 0)]


def half_closed(target: Target) -> list[Measure]:
    """Clients that close their sending side after their requests get all answers."""
    one = b"POST %s:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (MODEL.encode(), len(_BODY), _BODY)
    missing = 0
    for count in (1, 2, 50):
        missing += count - statuses(target, one * count, half_close=True).count(200)
    return [Measure("missing answers of 53", missing, 0)]


def error_bodies(target: Target) -> list[Measure]:
    """Errors that echo invalid UTF-8 are 4xx with JSON around those bytes, or an HTML page without them."""
    requests = [
        b"GET /v1/\xff\xfe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        _post(b'{"instances": ["\xff\xfe"]}'),
        _post(b'{"instances": ["\\ud800"]}'),
        _post(b'{"signature_name": "\xff", "instances": [1]}'),
        _post(b'{"signature_name": "\\udcff", "instances": [1]}'),
        _post(b'{"instances": [{"\xff": 1}]}'),
        _post(b'{"examples": [{"\xff": [[]]}]}', b"regress"),
    ]
    wrong = []
    for data in requests:
        raw = exchange(target, data)
        head, _, body = raw.partition(b"\r\n\r\n")
        try:
            is_whole = b"text/html" in head or set(json.loads(body.decode("utf-8", "surrogateescape"))) == {"error"}
        except ValueError:
            is_whole = False
        if not is_whole or not 400 <= int(raw[9:12]) < 500:
            wrong.append(f"{data!r}: {raw!r}")
    return [Measure("not so " + "; ".join(wrong), len(wrong), 0)]


def _post(body: bytes, method: bytes = b"predict") -> bytes:
    return _POST.replace(b":predict", b":" + method) + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def exchange(target: Target, data: bytes, half_close: bool = False, seconds: float = 2.0) -> bytes:
    """Sends data, and returns the answer until the server closes or is silent for `seconds`."""
    with socket.create_connection(target.rest, seconds) as connection:
        parts = []
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                parts.append(part)
    return b"".join(parts)


def statuses(target: Target, data: bytes, half_close: bool = False) -> list[int]:
    """Sends data, and returns the status codes of the answers."""
    return [int(part[:3]) for part in exchange(target, data, half_close).split(b"HTTP/1.1 ")[1:]]


ATTACKS = (
    pipelined_client_gone,
    pipelined_without_reading,
    pipelined_and_read,
    endless_trailer,
    endless_header,
    many_headers,
    headers_without_values,
    endless_chunk_extension,
    folded_header,
    tiny_chunks,
    trailer_is_no_header,
    large_trailers,
    slow_trailers,
    request_lines,
    half_closed,
    error_bodies,
)
