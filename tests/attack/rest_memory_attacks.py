"""Many bodies at once that are small alone or never complete: the memory that they take together."""

import concurrent.futures
import contextlib
import gzip
import json
import socket
import time
from collections.abc import Callable

from tests.attack.target import Bystander, Measure, Target, costs, until_idle
from tests.fuzz.rest_requests import MODEL, request

_MEBIBYTE = 1 << 20
_BODY = 60 * _MEBIBYTE
MAX_MEMORY = 1024 * _MEBIBYTE  # of the attacked server, whose model and libraries take about half
# Memory that no request holds: what the threads' allocators keep, and what the sockets have received.
_SLACK = 96 * _MEBIBYTE
_SECONDS = 60.0


def _attacked(target: Target, attack: Callable[[Target], None]) -> list[Measure]:
    """Measures the memory of a server with a limit, and the waiting time of another client."""
    if not target.models:
        return []
    with target.another(f"--max_memory={MAX_MEMORY}") as limited:
        process = limited.server.process
        assert process
        before = process.memory_info().rss
        with Bystander(limited) as other, costs(limited) as cost:
            attack(limited)
        until_idle(limited)
        assert cost.peak_bytes is not None
        peak = (before + cost.peak_bytes) / _MEBIBYTE
        return [Measure("memory of the process", peak, (MAX_MEMORY + _SLACK) / _MEBIBYTE, "MiB"), *other.measures()]


def unfinished_bodies(target: Target) -> list[Measure]:
    """20 to 90 clients that send 60 MiB except for the last byte, and stay connected."""
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {_BODY}\r\n\r\n".encode()

    def attack(limited: Target) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(target.take(90, 20)):
                connection = stack.enter_context(socket.create_connection(limited.rest, 10))
                with contextlib.suppress(OSError):  # refused: 503, and the rest is not read for ever
                    connection.sendall(head + b" " * (_BODY - 1))
            time.sleep(1)

    return _attacked(target, attack)


def bodies_in_advance(target: Target) -> list[Measure]:
    """17 bodies of 60 MiB on one connection, whose client reads no answer."""
    one = f"POST {MODEL}:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {_BODY}\r\n\r\n".encode() + b" " * _BODY

    def attack(limited: Target) -> None:
        with socket.create_connection(limited.rest, 10) as connection, contextlib.suppress(OSError):
            for _ in range(17):
                connection.sendall(one)

    return _attacked(target, attack)


def packed_strings(target: Target) -> list[Measure]:
    """Eight clients, each with 340,000 empty strings in 1,077 bytes of gzip, several times."""
    text = b'{"signature_name": "regress", "instances": [' + b",".join([b'""'] * 340_000) + b"]}"
    return _attacked(target, _together(target, request(gzip.compress(text), headers=("Content-Encoding: gzip",))))


def packed_numbers(target: Target) -> list[Measure]:
    """The same with numbers, and with rows that are objects."""
    numbers = gzip.compress(b'{"instances": [' + b",".join([b"1"] * 500_000) + b"]}")
    rows = gzip.compress(b'{"instances": [' + b",".join([b'{"x":1}'] * 150_000) + b"]}")

    def attack(limited: Target) -> None:
        for packed in (numbers, rows):
            _together(target, request(packed, headers=("Content-Encoding: gzip",)))(limited)

    return _attacked(target, attack)


def packed_white_space(target: Target) -> list[Measure]:
    """Eight clients, each with a number and 60 MB of white space in 58 kB of gzip, several times."""
    text = b'{"instances": [1.0' + b" " * target.take(60_000_000, 8_000_000) + b"]}"
    return _attacked(target, _together(target, request(gzip.compress(text, 1), headers=("Content-Encoding: gzip",))))


def broken_base64(target: Target) -> list[Measure]:
    """Eight clients, each with 5 MB of base64 whose last character is invalid, in 5 kB of gzip, several times."""
    text = (
        b'{"signature_name": "regress", "instances": [{"b64": "' + b"A" * target.take(5_000_000, 1_000_000) + b'!"}]}'
    )
    return _attacked(target, _together(target, request(gzip.compress(text), headers=("Content-Encoding: gzip",))))


def contexts(target: Target) -> list[Measure]:
    """Eight clients, each with a context of 500 kB in 33 examples, in 600 bytes of gzip, several times."""
    context, examples = b"b" * target.take(500_000, 100_000), b",".join([b'{"x": 1.5}'] * 33)
    text = b'{"signature_name": "classify", "context": {"a": "%b"}, "examples": [%b]}' % (context, examples)
    packed = request(gzip.compress(text), f"{MODEL}:classify", headers=("Content-Encoding: gzip",))
    return _attacked(target, _together(target, packed))


def repeated_names(target: Target) -> list[Measure]:
    """Eight clients, each with a row and an example that have 300,000 values of one name, in 3.5 kB of gzip."""
    members = b",".join([b'"x":1.0'] * target.take(300_000, 100_000))

    def attack(limited: Target) -> None:
        for method, text in (("predict", b'{"instances":[{%b}]}'), ("regress", b'{"examples":[{%b}]}')):
            packed = request(gzip.compress(text % members), f"{MODEL}:{method}", headers=("Content-Encoding: gzip",))
            _together(target, packed)(limited)

    return _attacked(target, attack)


def unread_answers(target: Target) -> list[Measure]:
    """400 clients whose 6 kB of gzip ask for an echo of 6 MB, which they do not read."""
    row = {"f": 1.0, "i": 1, "l": 1, "s": "a" * 6_000_000, "b": True, "m": [1.0, 2.0]}
    body = gzip.compress(json.dumps({"signature_name": "mixed", "instances": [row]}).encode())
    data = request(body, headers=("Content-Encoding: gzip",))

    def attack(limited: Target) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(target.take(400, 100)):
                connection = stack.enter_context(socket.create_connection(limited.rest, 10))
                connection.sendall(data)
                time.sleep(0.02)
            time.sleep(1)

    return _attacked(target, attack)


def _together(target: Target, data: bytes) -> Callable[[Target], None]:
    def ask(limited: Target) -> None:
        for _ in range(target.take(5, 1)):
            with limited.connect() as connection:
                connection.send(data)
                answer = connection.response(time.monotonic() + _SECONDS)
                assert answer and answer[0] in (200, 400, 503, 504), answer

    def attack(limited: Target) -> None:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, [limited] * 8))

    return attack


ATTACKS = (
    unfinished_bodies,
    bodies_in_advance,
    packed_strings,
    packed_numbers,
    packed_white_space,
    broken_base64,
    contexts,
    repeated_names,
    unread_answers,
)
