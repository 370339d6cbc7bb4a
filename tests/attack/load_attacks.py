"""Many clients at once: slow, steady and vanishing ones."""

import concurrent.futures
import contextlib
import gzip
import json
import socket
import struct
import time

from tests.attack.target import Bystander, Measure, Target
from tests.fuzz.attacks import slow_clients
from tests.fuzz.connection import Fault
from tests.fuzz.rest import ask_good
from tests.fuzz.rest_requests import MODEL, request
from tests.serving.raw_grpc import connect, opened_calls


def many_slow_clients(target: Target) -> list[Measure]:
    """1,000 clients that send their headers a byte a second."""
    if not target.long:
        return []
    return [Measure("the last of them was dropped after", slow_clients(target.rest, 1000), 40, "s")]


def steady_clients(target: Target) -> list[Measure]:
    """200 clients that send requests for 60 s, each over new connections: all answers are correct."""
    end = time.monotonic() + target.take(60, 1)

    def ask(_: int) -> tuple[int, int]:
        answered = wrong = 0
        while time.monotonic() < end:
            try:
                ask_good(target.rest)
                answered += 1
            except Fault:
                wrong += 1
        return answered, wrong

    count = target.take(200, 20)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        found = list(pool.map(ask, range(count)))
    answers, wrong = (sum(column) for column in zip(*found, strict=True))
    return [Measure(f"wrong or missing answers beside {answers:,} right ones", wrong, 0)]


def aborted_connections(target: Target) -> list[Measure]:
    """34,000 connections that are reset within a request or before its answer."""
    body = b'{"instances": [1.0]}'
    data = b"POST %s:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (MODEL.encode(), len(body), body)

    def abort(number: int) -> None:
        with socket.create_connection(target.rest, 10) as connection:
            connection.sendall(data[: 1 + number * 7 % len(data)])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    before = target.server.usage()
    with Bystander(target) as other, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(abort, range(target.take(34_000, 400))))
    time.sleep(1)
    found, after = other.measures(), target.server.usage()
    if before and after:
        found.append(Measure("connections that stay", after.files - before.files, 8))
    return found


def idle_connections(target: Target) -> list[Measure]:
    """2,000 idle connections over each protocol, to a server with a limit of 512 files."""
    if not target.models:
        return []
    with target.another(files=512) as small, contextlib.ExitStack() as stack, Bystander(small) as other:
        for _ in range(target.take(2000, 600)):
            stack.enter_context(socket.create_connection(small.rest, 10))
            if small.server.grpc:
                connection = stack.enter_context(connect(small.server.grpc))
                with contextlib.suppress(OSError):  # one too many
                    connection.sendall(opened_calls("/", 0))
        time.sleep(1)
    return other.measures()


def held_headers(target: Target) -> list[Measure]:
    """4,000 connections that hold 60 KB of headers without an end each, to a server with a gibibyte."""
    if not target.models:
        return []
    headers = request(b"", headers=tuple(f"X-{number}: {'a' * 50}" for number in range(950))).removesuffix(b"\r\n")
    with target.another(f"--max_memory={1 << 30}") as small, contextlib.ExitStack() as stack, Bystander(small) as other:
        process = small.server.process
        assert process
        for _ in range(target.take(4000, 100)):
            connection = stack.enter_context(socket.create_connection(small.rest, 10))
            with contextlib.suppress(OSError):  # it was idle, and is closed for a new one
                connection.sendall(headers)
        time.sleep(1)
        most = process.memory_info().rss
    return [Measure("memory of the process", most / (1 << 20), 1.1 * (1 << 10), "MiB"), *other.measures()]


def unread_ends(target: Target) -> list[Measure]:
    """180 clients that stay and do not read one to sixty answers of 60 KB: some leave few bytes to the server."""
    if not target.long:  # they have 50 s
        return []
    row = {"f": 1.0, "i": 1, "l": 1, "s": "a" * 25_000, "b": True, "m": [1.0, 2.0]}
    body = gzip.compress(json.dumps({"signature_name": "mixed", "instances": [row]}).encode())
    data = request(body, headers=("Content-Encoding: gzip",))
    before = target.server.usage()
    with contextlib.ExitStack() as stack, Bystander(target) as other:
        for number in range(180):
            client = stack.enter_context(socket.create_connection(target.rest, 10))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            for _ in range(1 + number // 3):
                client.sendall(data)
                time.sleep(0.002)
        time.sleep(60)
        after = target.server.usage()
    found = other.measures()
    if before and after:
        found.append(Measure("connections that stay", after.files - before.files, 1))
    return found


def concurrent_calls(target: Target) -> list[Measure]:
    """1,000 concurrent calls: all answers are correct."""

    def ask(_: int) -> bool:
        try:
            return ask_good(target.rest) == 200
        except Fault:
            return False

    count = target.take(1000, 100)
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(ask, range(count)))
    return [Measure(f"wrong or missing answers of {count}", answers.count(False), 0)]


ATTACKS = (
    many_slow_clients,
    steady_clients,
    aborted_connections,
    idle_connections,
    held_headers,
    unread_ends,
    concurrent_calls,
)
