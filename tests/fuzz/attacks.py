"""Clients that exhaust the server's memory and connections, and a client that needs an answer."""

import concurrent.futures
import contextlib
import gzip
import time

from tests.fuzz.connection import LIMIT_SECONDS, Connection, Fault, judge
from tests.fuzz.rest import ask_good
from tests.fuzz.rest_requests import Sent, request

SLOW_CONNECTIONS = 200
END_SECONDS = 40.0  # until the server has got rid of clients that send a byte a second
ANSWER_SECONDS = 2.0  # a right request beside them
_BOMB_BYTES = 200 << 20


def gzip_bombs(address: tuple[str, int], count: int = 16, at_once: int = 4) -> int:
    """200 MiB of white space in 200 kB, each answered with an error; returns how many were sent. Raises Fault."""
    bomb = request(gzip.compress(b" " * _BOMB_BYTES, 1), headers=("Content-Encoding: gzip",))

    def throw(_: int) -> None:
        with Connection(address) as connection:
            connection.send(bomb)
            answer = connection.response(time.monotonic() + LIMIT_SECONDS)
            if answer is None or judge(Sent(bomb), *answer) not in (400, 413):
                raise Fault(f"a gzip bomb was answered {answer and answer[0]}")
        ask_good(address)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return len(list(pool.map(throw, range(count))))


def slow_clients(address: tuple[str, int], count: int = SLOW_CONNECTIONS) -> float:
    """The given number of clients that send their headers a byte a second; returns after how many seconds the last
    was dropped.

    Raises:
        Fault: a right request had to wait for them, or they may stay.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(Connection(address)) for _ in range(count)]
        for step in range(int(END_SECONDS)):
            waiting = [connection for connection in waiting if _drip(connection, b"POST /v1/models/"[step % 16 :][:1])]
            if not waiting:
                return time.monotonic() - began
            asked = time.monotonic()
            ask_good(address)
            if time.monotonic() - asked > ANSWER_SECONDS:
                raise Fault(f"beside {len(waiting)} slow clients an answer took {time.monotonic() - asked:.1f} s")
            time.sleep(max(0.0, began + step + 1 - time.monotonic()))
    raise Fault(f"{len(waiting)} of {count} slow clients are still connected after {END_SECONDS:.0f} s")


def _drip(connection: Connection, data: bytes) -> bool:
    """Whether the server still listens."""
    try:
        if connection.closed():
            return False
        connection.send(data)
    except OSError:
        return False
    return True
