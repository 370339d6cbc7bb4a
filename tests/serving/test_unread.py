"""Answers that nobody reads take a part of the budget, and no more."""

import contextlib
import socket
import threading
import time

import pytest

from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.grpc_arrivals import Arrivals
from ctrpipe.serving.server.http_protocol import HttpServer, Response, uvicorn_server
from ctrpipe.serving.server.http_request import Limits
from ctrpipe.serving.server.unread import Unread
from tests.serving.http_app import App

MIB = 1 << 20
REQUEST = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"


def budget_of(size):
    return Budget(size, resident=lambda: 0)


def test_the_answer_that_has_waited_longest_is_dropped():
    budget, dropped = budget_of(400), []
    unread = Unread(budget)
    for name in "abcd":
        unread.add(name, 40, lambda name=name: dropped.append(name))
    assert (dropped, unread.size, budget.held_bytes) == (["a", "b"], 80, 80)  # of 100
    unread.remove("a")  # what was dropped is told so later
    unread.remove("d")
    assert (unread.size, budget.held_bytes) == (40, 40)
    unread.add("large", 101, lambda: dropped.append("large"))  # larger than all may be, and alone
    assert (dropped, unread.size) == (["a", "b", "c"], 101)
    unread.remove("large")
    with budget.hold(390):  # other requests have the memory
        unread.add("e", 20, lambda: dropped.append("e"))
    assert (dropped, unread.size, budget.held_bytes) == (["a", "b", "c", "e"], 0, 0)


def test_an_answer_is_dropped_after_its_time():
    unread, dropped = Unread(budget_of(1 << 20)), []
    unread.add("old", 10, lambda: dropped.append("old"))
    time.sleep(0.05)
    unread.add("new", 10, lambda: dropped.append("new"))
    unread.expire(1.0)
    assert dropped == []
    unread.expire(0.03)
    assert (dropped, unread.size) == (["old"], 10)


def test_answers_that_are_not_read_make_room_before_calls_that_wait(monkeypatch):
    taken = [100]
    arrivals, call = Arrivals(Budget(80 * MIB, resident=lambda: taken[0])), Call()
    arrivals.answered(call, MIB)
    monkeypatch.setattr("ctrpipe.serving.server.grpc_arrivals._QUICK_SECONDS", 0.0)
    arrivals.relieve()
    assert not call.cancelled
    taken[0] = 81 * MIB
    arrivals.relieve()
    assert call.cancelled


class Call:
    """A call of gRPC: its callbacks are called when its client has read the answer."""

    def __init__(self, has_ended=False):
        self.cancelled, self._has_ended, self._callbacks = False, has_ended, []

    def cancel(self):
        self.cancelled = True

    def add_callback(self, callback):
        self._callbacks.append(callback)
        return not self._has_ended

    def end(self):
        for callback in self._callbacks:
            callback()


def test_an_answer_of_grpc_is_held_until_its_client_has_read_it():
    budget = budget_of(80 * MIB)
    arrivals = Arrivals(budget)
    calls = [Call() for _ in range(12)]
    for call in calls:
        arrivals.answered(call, MIB)
    assert budget.held_bytes == 20 * MIB  # a quarter, and each answer twice
    assert [call.cancelled for call in calls] == [True] * 2 + [False] * 10
    for call in calls:
        call.end()
    assert budget.held_bytes == 0
    arrivals.answered(Call(has_ended=True), MIB)
    arrivals.answered(Call(), 1000)  # a short one is not counted
    assert budget.held_bytes == 0


@contextlib.contextmanager
def served(budget, size):
    """HOST and PORT of a server with answers of `size` bytes, and the server."""
    http = HttpServer(App(lambda request: Response(200, bytes(size))), 4, Limits(1000, 5.0), budget)
    server = uvicorn_server(http)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname(), http
        server.should_exit = True
        thread.join(30)


def ask(address):
    """A connection that has asked and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    connection.connect(address)
    connection.settimeout(10)
    connection.sendall(REQUEST)
    return connection


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


@pytest.mark.slow
def test_an_answer_over_rest_is_held_until_its_client_has_read_it():
    size, budget = 8 * MIB, budget_of(100 * MIB)
    with served(budget, size) as (address, http), contextlib.ExitStack() as stack:
        clients = []
        for count in range(1, 6):
            clients.append(stack.enter_context(ask(address)))
            wait_until(lambda count=count: http.unread.size == min(count, 3) * size)
        assert budget.held_bytes == 3 * size
        for gone in clients[:2]:
            assert sum(map(len, iter(lambda gone=gone: gone.recv(MIB), b""))) < size
        received = b""
        while len(received) < received.find(b"\r\n\r\n") + 4 + size:
            received += clients[2].recv(MIB)
        wait_until(lambda: http.unread.size == 2 * size)
        clients[3].close()
        wait_until(lambda: budget.held_bytes == size)
        clients[2].sendall(REQUEST)  # who reads is answered on
        assert clients[2].recv(100).startswith(b"HTTP/1.1 200")
