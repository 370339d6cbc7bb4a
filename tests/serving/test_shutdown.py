"""A server that stops answers every request that has arrived, and closes no connection under a client's request."""

import contextlib
import ctypes
import socket
import struct
import subprocess
import threading
import time

import httptools
import pytest

from ctrpipe.common.processes import stop_command
from ctrpipe.serving.server import http_protocol
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.http_protocol import HttpServer, Response, _stop_listening, uvicorn_server
from ctrpipe.serving.server.http_request import Limits
from tests.contract import models
from tests.contract.servers import free_port
from tests.serving.http_app import App
from tests.warm_processes import start_warm

CLIENTS = 8
NO_FILTERS = "this sandbox forbids filters of sockets"
ATTACH_FILTER, RETURN = 26, 6  # SO_ATTACH_FILTER and BPF_RET, for which Python has no names


class Client:
    """A client that always asks: a request follows each answer at once.

    Args:
        address: HOST and PORT.
        message: The request.
        keeps: Whether it keeps its connection; otherwise it opens one for each request.
    """

    def __init__(self, address, message, keeps):
        self._address, self._message, self._keeps = address, message, keeps
        self.answered, self.lost, self.told = 0, [], 0
        self._free = self._sent = 0.0  # when its connection began to be without a request, and had one
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self):
        while True:
            try:
                connection = socket.create_connection(self._address, 5)
            except OSError:  # the server is gone: no request was sent
                return
            self._free = time.monotonic()
            with connection:
                try:
                    while self._ask(connection):
                        pass
                except OSError as error:
                    if self._sent - self._free < http_protocol._QUIET_SECONDS / 2:
                        self.lost.append(error)
                    return  # a busy machine stopped this client: its connection was quiet, which the server may close

    def _ask(self, connection):
        """Whether the connection goes on."""
        self._goes_on = None
        self._sent = time.monotonic()
        connection.sendall(self._message)
        self._parser = httptools.HttpResponseParser(self)
        while self._goes_on is None:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("closed without an answer")
            self._parser.feed_data(data)
        self.answered += 1
        self._free = time.monotonic()
        self.told += not self._goes_on
        return self._goes_on and self._keeps

    def on_message_complete(self):
        assert self._parser.get_status_code() == 200
        self._goes_on = self._parser.should_keep_alive()


@contextlib.contextmanager
def served(answer=lambda request: Response(200, b"a")):
    """HOST and PORT of a server, and what stops it."""
    app = App(answer, lambda request: request.target != "/slow")
    http_server = HttpServer(app, 4, Limits(1000, 5.0), Budget())
    server = uvicorn_server(http_server)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)

        def stop():
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()

        yield listener.getsockname(), stop
        stop()


def message(path, body=b"a"):
    return b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_busy_clients_lose_nothing(keeps):
    if not keeps and not takes_filters():
        pytest.skip(NO_FILTERS)
    for _ in range(2):
        with served() as (address, stop):
            clients = [Client(address, message((b"/slow", b"/quick")[at % 2]), keeps) for at in range(CLIENTS)]
            wait_until_all_are_answered(clients)
            stop()
            for client in clients:
                client.join()
        assert [client.lost for client in clients] == [[]] * CLIENTS
        assert not keeps or [client.told for client in clients] == [1] * CLIENTS


def test_a_request_that_comes_while_the_server_stops_is_the_connections_last():
    with served() as (address, stop), socket.create_connection(address, 5) as connection:
        connection.sendall(message(b"/x"))
        assert b"Connection: keep-alive" in connection.recv(1 << 16)
        stopping = threading.Thread(target=stop)
        stopping.start()
        time.sleep(0.2)
        connection.sendall(message(b"/x"))
        answer = connection.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 200") and b"Connection: close" in answer
        assert connection.recv(1) == b""
        connection.close()
        stopping.join()


def test_a_quiet_connection_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(http_protocol, "_QUIET_SECONDS", 0.05)
    with served() as (address, stop), socket.create_connection(address, 5) as connection:
        connection.sendall(message(b"/x"))
        connection.recv(1 << 16)
        time.sleep(0.1)
        began = time.monotonic()
        stop()
        assert time.monotonic() - began < 2
        assert connection.recv(1) == b""


def test_a_request_that_waits_to_be_read_counts_where_the_machine_is_busy(monkeypatch):
    monkeypatch.setattr(http_protocol, "_QUIET_SECONDS", 0.2)

    def answer(request):
        if request.target == "/stall":
            time.sleep(0.6)  # the timers of the loop are late, and are called before anything is read
        return Response(200, b"a")

    with served(answer) as (address, stop), contextlib.ExitStack() as stack:
        stalling, other = (stack.enter_context(socket.create_connection(address, 5)) for _ in range(2))
        for connection in (other, stalling):  # the one that asked last is answered on the loop's thread
            connection.sendall(message(b"/x"))
            connection.recv(1 << 16)
        stopping = threading.Thread(target=stop)
        stopping.start()
        time.sleep(0.15)  # uvicorn looks for the end every 0.1 s
        stalling.sendall(message(b"/stall"))
        time.sleep(0.02)
        other.sendall(message(b"/x"))
        assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")
        stopping.join()


def test_connections_in_the_listeners_queue_are_accepted():
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        clients = [stack.enter_context(socket.create_connection(listener.getsockname(), 5)) for _ in range(3)]
        accepted = [stack.enter_context(one) for one in _stop_listening(listener)]
        assert {one.getpeername() for one in accepted} == {client.getsockname() for client in clients}
        assert not any(one.getblocking() for one in accepted)


def test_a_listener_that_has_stopped_gets_no_further_connection():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        if not takes_filters():
            pytest.skip(NO_FILTERS)
        assert _stop_listening(listener) == []
        with pytest.raises(TimeoutError):  # its first packet is dropped
            socket.create_connection(listener.getsockname(), 0.1)
        with pytest.raises(BlockingIOError):
            listener.accept()


def takes_filters() -> bool:
    """Whether a socket takes a filter, here one that lets everything pass.

    Without filters, a connection that comes while the listener closes is reset.
    """
    passes = ctypes.create_string_buffer(struct.pack("HBBI", RETURN, 0, 0, 0xFFFFFFFF))
    try:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(passes)))
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_sigterm_loses_no_request_of_busy_clients(tmp_path):
    """Clients of both kinds, each over a shutdown of a whole server."""
    models.save(tmp_path / "1")
    path = f"/v1/models/{models.NAME}:predict".encode()
    request = message(path, b'{"signature_name": "half_plus_two", "inputs": [1.0]}')
    for keeps in (True, False) if takes_filters() else (True,):
        address = ("127.0.0.1", free_port())
        flags = (f"--model_base_path={tmp_path}", f"--model_name={models.NAME}", f"--rest_api_port={address[1]}")
        process = start_warm("serve", *flags, "--port=0", stderr=subprocess.DEVNULL)
        try:
            wait_until_it_listens(address)
            clients = [Client(address, request, keeps) for _ in range(CLIENTS)]
            wait_until_all_are_answered(clients)
        finally:
            stop_command(process, 30)
        for client in clients:
            client.join()
        assert process.returncode == 0
        assert [client.lost for client in clients] == [[]] * CLIENTS


def wait_until_all_are_answered(clients):
    end = time.monotonic() + 30
    while min(client.answered for client in clients) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    assert min(client.answered for client in clients) >= 3


def wait_until_it_listens(address):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(address, 1):
            return
        time.sleep(0.1)
