"""The HTTP server below REST: what it does with clients that are slow, large, in a hurry or gone."""

import asyncio
import contextlib
import http.client
import select
import socket
import struct
import threading
import time
import types

import pytest

from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.busy_poll import BusyPoll
from ctrpipe.serving.server.http_protocol import SLICE_BYTES, HttpProtocol, HttpServer, Response, uvicorn_server
from ctrpipe.serving.server.http_request import MAX_HEADER_BYTES, Limits
from tests.serving.http_app import App

LIMITS = {"max_request_bytes": 1000, "request_timeout": 5.0, "check_interval": 0.05}
LINE = "X: " + "a" * 1000 + "\r\n"
CORES = "ctrpipe.serving.server.http_protocol.cores"


def echo(request):
    return Response(200, request.target.encode() + b" " + request.body)


def never(request):
    return False


@contextlib.contextmanager
def served(answer=echo, is_short=None, threads=2, budget=None, **limits):
    """connect() for a server that echoes target and body."""
    http_server = HttpServer(App(answer, is_short), threads, Limits(**{**LIMITS, **limits}), budget or Budget())
    server = uvicorn_server(http_server)
    server.install_signal_handlers = lambda: None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        connections = []

        def connect(text=""):
            connections.append(socket.create_connection(listener.getsockname(), timeout=10))
            connections[-1].sendall(text.encode())
            return connections[-1]

        connect.server = http_server
        try:
            yield connect
        finally:
            for connection in connections:
                connection.close()
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def read_all(connection):
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def post(body, path="/x", **headers):
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines) + "\r\n\r\n" + body


def status_of(raw):
    return [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]]


def test_a_connection_is_kept_until_it_is_idle_too_long():
    with served(idle_timeout=0.3) as connect:
        connection = connect(post("a"))
        assert b"/x a" in connection.recv(1 << 16)
        connection.sendall(post("b").encode())
        assert b"/x b" in connection.recv(1 << 16)
        started = time.monotonic()
        assert read_all(connection) == b""
        assert 0.1 < time.monotonic() - started < 5


@pytest.mark.parametrize("head", ["Connection: close\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n"])
def test_a_connection_ends_when_asked_or_when_it_cannot_go_on(head):
    with served() as connect:
        raw = read_all(connect(f"POST /x HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 1\r\n\r\na"))
    assert status_of(raw) == [200] and b"Connection: close" in raw and raw.endswith(b"/x a")


def test_http_1_0_ends_after_the_answer():
    with served() as connect:
        raw = read_all(connect("POST /x HTTP/1.0\r\nContent-Length: 1\r\n\r\na"))
    assert raw.endswith(b"/x a")


def test_headers_that_come_byte_by_byte_run_into_a_timeout():
    with served(headers_timeout=0.3) as connect:
        connection = connect("POST /x HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < 5:
                connection.sendall(b"a")
                connection.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    received = connection.recv(1 << 16)
                    break
        assert time.monotonic() - started < 5
    assert status_of(received) == [408]


def test_a_body_that_does_not_come_runs_into_a_timeout():
    with served(body_timeout=0.3) as connect:
        assert status_of(read_all(connect("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"))) == [408]


def test_a_slow_client_does_not_hold_up_others():
    with served(threads=1) as connect:
        for _ in range(50):
            connect("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        assert b"/x a" in connect(post("a")).recv(1 << 16)


def test_a_large_body_is_refused_before_it_is_sent():
    with served() as connect:
        started = time.monotonic()
        raw = read_all(connect("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"))
        assert time.monotonic() - started < 5
    assert status_of(raw) == [413] and b"1000 bytes (--max_request_bytes)" in raw


def test_a_large_body_without_a_length_is_refused():
    with served() as connect:
        chunk = f"{600:x}\r\n{'a' * 600}\r\n"
        raw = read_all(connect("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + 2 * chunk))
    assert status_of(raw) == [413]


def test_a_client_that_sends_on_still_reads_the_refusal():
    with served() as connect:
        connection = connect("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
        connection.sendall(b"a" * 5_000_000)
        assert status_of(read_all(connection)) == [413]


def test_a_body_of_the_limit_is_taken():
    with served() as connect:
        assert b"a" * 1000 in connect(post("a" * 1000)).recv(1 << 16)


@pytest.mark.parametrize("headers", [{"X": "a" * MAX_HEADER_BYTES}, {f"X{i}": "a" * 1000 for i in range(70)}])
def test_large_headers_are_refused(headers):
    with served() as connect:
        assert status_of(read_all(connect(post("a", **headers)))) == [431]


def test_headers_without_an_end_are_refused():
    with served() as connect:
        connection = connect("POST /x HTTP/1.1\r\nHost: x\r\nX: " + "a" * (2 * MAX_HEADER_BYTES))
        assert status_of(read_all(connection)) == [431]


class Transport:
    """A connection that keeps what is written."""

    def __init__(self):
        self.written, self.closed, self.reading = b"", False, True

    def set_write_buffer_limits(self, high):
        pass

    def write(self, data):
        self.written += data

    def writelines(self, parts):
        self.written += b"".join(parts)

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def is_reading(self):
        return self.reading

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def can_write_eof(self):
        return False


def answers_to(*pieces):
    """The answers to exactly these pieces; the last request ends the connection."""

    async def receive():
        server = HttpServer(App(echo), 1, Limits(**{**LIMITS, "max_request_bytes": 1 << 20}), Budget())
        config, state = types.SimpleNamespace(loaded=True, loaded_app=server), types.SimpleNamespace(connections=set())
        protocol, transport = HttpProtocol(config, state, _loop=asyncio.get_running_loop()), Transport()
        protocol.connection_made(transport)
        for piece in pieces:
            protocol.data_received(piece.encode())
        async with asyncio.timeout(10):
            while not transport.closed:
                await asyncio.sleep(0.001)
        protocol.connection_lost(None)
        return status_of(transport.written)

    return asyncio.run(receive())


@pytest.mark.parametrize("end", ["a", "\n", "a\nb"])
@pytest.mark.parametrize("cut", [1, 10, 25])
def test_a_long_body_is_no_header_of_the_request_behind_it(end, cut):
    first, second = post("a" * 2 * MAX_HEADER_BYTES + end), post("b", Connection="close")
    assert answers_to(first + second[:cut], second[cut:]) == [200, 200]
    assert answers_to(first[:1000], first[1000:] + second[:cut], second[cut:]) == [200, 200]


@pytest.mark.parametrize(
    "pieces",
    [
        [LINE] * 70,
        [35 * LINE] * 2,
        ["X: ", *["a" * 1000] * 70],
        ["X: " + "a" * 2 * MAX_HEADER_BYTES],
        ["X: " + "a" * (MAX_HEADER_BYTES - 100), "a" * 100],
    ],
)
def test_headers_are_counted_however_they_arrive(pieces):
    assert answers_to("POST /x HTTP/1.1\r\nHost: x\r\n", *pieces) == [431]
    assert answers_to(post("a") + "POST /x HTTP/1.1\r\nHost: x\r\n" + pieces[0], *pieces[1:]) == [200, 431]


def test_expect_is_answered_with_continue():
    with served() as connect:
        connection = connect("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"a")
        assert b"/x a" in connection.recv(1 << 16)


def test_what_is_no_http_is_refused_after_what_was():
    with served() as connect:
        raw = read_all(connect(post("a") + "nonsense\r\n\r\n"))
    assert status_of(raw) == [200, 400]


def test_pipelined_requests_are_answered_in_order():
    with served() as connect:
        raw = read_all(connect("".join(post(str(number)) for number in range(100)) + post("end", Connection="close")))
    assert status_of(raw) == [200] * 101
    bodies = [part.partition(b"HTTP/1.1")[0] for part in raw.split(b"/x ")[1:]]
    assert bodies == [str(number).encode() for number in range(100)] + [b"end"]


@pytest.mark.parametrize("path", ["/v1/models/m?x=1", "/v1/models/m?", "/v1/models/m#x", "/v1/m?x=1#y", "/?x", "/"])
def test_a_whole_url_is_all_that_follows_its_host(path):
    """Of `m?` and `m#x` the end was left out, so that another request was answered than the one that was sent."""
    with served() as connect:
        assert b"\r\n\r\n%b a" % path.encode() in connect(post("a", f"http://u:p@host:1{path}")).recv(1 << 16)


def test_the_path_of_a_host_alone_is_a_slash():
    with served() as connect:
        assert b"\r\n\r\n/ a" in connect(post("a", "HTTP://[::1]:80")).recv(1 << 16)
        assert b"\r\n\r\n/?x=1 a" in connect(post("a", "http://host?x=1")).recv(1 << 16)


def test_a_request_that_takes_too_long_is_answered_and_its_result_dropped():
    release = threading.Event()

    def stuck(request):
        release.wait(10)
        return Response(200, b"late")

    with served(stuck, never, request_timeout=0.2) as connect:
        connection = connect(post("a"))
        assert status_of(connection.recv(1 << 16)) == [504]
        release.set()
        connection.sendall(post("b", Connection="close").encode())
        assert status_of(read_all(connection)) == [200]


def test_requests_of_clients_that_are_gone_are_not_run():
    release, seen = threading.Event(), []

    def record(request):
        seen.append(request.body)
        release.wait(10)
        return Response(200, b"")

    with served(record, never, threads=1) as connect:
        first, gone = connect(post("first")), connect(post("gone"))
        end = time.monotonic() + 5
        while connect.server.running < 2 and time.monotonic() < end:
            time.sleep(0.01)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no farewell
        gone.close()
        while len(connect.server.connections) > 1 and time.monotonic() < end:
            time.sleep(0.01)
        last = connect(post("last"))
        while connect.server.running < 3 and time.monotonic() < end:
            time.sleep(0.01)
        release.set()
        assert first.recv(1 << 16) and last.recv(1 << 16)
    assert seen == [b"first", b"last"]


def test_a_client_that_reads_nothing_is_dropped():
    with served(lambda request: Response(200, b"a" * (64 << 20)), idle_timeout=0.3) as connect:
        connect(post("a"))
        end = time.monotonic() + 10
        while not connect.server.connections and time.monotonic() < end:
            time.sleep(0.01)
        while connect.server.connections and time.monotonic() < end:
            time.sleep(0.05)
        assert not connect.server.connections


@pytest.mark.slow
def test_a_client_that_leaves_the_end_of_its_answers_unread_is_dropped():
    """Few bytes wait in the server itself: without a limit of its own, asyncio pauses a protocol at 64 KiB."""
    with served(lambda request: Response(200, b"a" * 20_000), idle_timeout=1.0) as connect:
        client = connect()
        wait_for(lambda: connect.server.connections)
        [connection] = connect.server.connections
        transport = connection._transport
        for buffered, end in ((client, socket.SO_RCVBUF), (transport.get_extra_info("socket"), socket.SO_SNDBUF)):
            buffered.setsockopt(socket.SOL_SOCKET, end, 1 << 12)
        while not transport.get_write_buffer_size():
            client.sendall(get("/x").encode())
            time.sleep(0.02)
        assert transport.get_write_buffer_size() < 1 << 16
        wait_for(lambda: not connect.server.connections)
        assert not connect.server.connections and connect.server.budget.held_bytes == 0


def test_a_request_of_http_clients_library():
    with served() as connect:
        connection = http.client.HTTPConnection(*connect().getpeername())
        for body in ("a", "b"):
            connection.request("POST", "/x", body)
            assert connection.getresponse().read() == f"/x {body}".encode()
        connection.request("HEAD", "/x")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        connection.close()


def test_short_requests_of_one_client_stay_on_the_loops_thread(monkeypatch):
    monkeypatch.setattr(CORES, lambda: 3)
    threads = []

    def where(request):
        threads.append(threading.current_thread().name)
        return Response(200, b"")

    with served(where, lambda request: request.target != "/slow") as connect:
        connection = connect()

        def ask(connection, body="a", path="/x"):
            connection.sendall(post(body, path).encode())
            assert status_of(connection.recv(1 << 16)) == [200]
            return threads.pop().startswith("rest")

        first, *others = [ask(connection) for _ in range(5)]
        assert first and not any(others)  # somebody else may have been asking before
        assert ask(connect())
        assert ask(connection) and not ask(connection)
        assert ask(connection, path="/slow")


@pytest.mark.parametrize(("count", "on_loop"), [(2, True), (3, False)])
def test_on_few_cores_the_loop_answers_the_short_requests_of_several_clients(monkeypatch, count, on_loop):
    monkeypatch.setattr(CORES, lambda: count)

    def name(request):
        return Response(200, threading.current_thread().name.encode())

    with served(name) as connect:
        first, second = connect(), connect()
        for _ in range(2):
            names = []
            for connection in (first, second):
                connection.sendall(post("a").encode())
                names.append(connection.recv(1 << 16).partition(b"\r\n\r\n")[2])
            assert [each.startswith(b"rest") for each in names] == [not on_loop] * 2


def test_on_few_cores_a_short_request_beside_one_of_the_pool_goes_there_too(monkeypatch):
    monkeypatch.setattr(CORES, lambda: 2)
    started, ended = threading.Event(), threading.Event()

    def name(request):
        if request.target == "/slow":
            started.set()
            assert ended.wait(10)
        return Response(200, threading.current_thread().name.encode())

    with served(name, lambda request: request.target != "/slow") as connect:
        slow, short = connect(post("a", "/slow")), connect()
        assert started.wait(10)
        for on_loop in (False, True):
            short.sendall(post("a").encode())
            assert short.recv(1 << 16).partition(b"\r\n\r\n")[2].startswith(b"rest") != on_loop
            ended.set()
            assert on_loop or status_of(slow.recv(1 << 16)) == [200]


def test_the_loop_stays_awake_for_one_client_alone():
    seen = []

    class Recorded(BusyPoll):
        def answered(self, loop):
            seen.append("answered")
            super().answered(loop)

        def stop(self):
            seen.append("stop")
            super().stop()

    with served(echo, lambda request: request.target != "/slow") as connect:
        connect.server.busy_poll = Recorded(0.2)
        connection = connect()
        for path in ("/x", "/x", "/x", "/slow"):
            connection.sendall(post("a", path).encode())
            assert status_of(connection.recv(1 << 16)) == [200]
    assert seen == ["stop", "answered", "answered", "stop"]


def test_a_long_body_is_not_read_on_the_loops_thread(monkeypatch):
    monkeypatch.setattr(CORES, lambda: 3)
    threads = []

    def where(request):
        threads.append(threading.current_thread().name)
        return Response(200, b"")

    with served(where, max_request_bytes=1 << 20) as connect:
        connection = connect()
        for length in (1, 1, 300 << 10):
            connection.sendall(post("a" * length).encode())
            assert status_of(connection.recv(1 << 16)) == [200]
    assert [name.startswith("rest") for name in threads] == [True, False, True]


CLOSE = "Connection: close\r\n"
GOOD = f"Host: x\r\n{CLOSE}"
CHUNKS = "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n"


@pytest.mark.parametrize(
    ("request_line", "rest", "status"),
    [
        ("POST /x HTTP/1.1", "\r\n", 400),
        ("POST /x HTTP/1.1", "Host: x\r\nHost: x\r\n\r\n", 400),
        ("POST /x HTTP/1.1", "Host: x\r\nHost: x\r\nHost: x\r\n\r\n", 400),
        *[("POST /x HTTP/1.1", f"Host: {host}\r\n\r\n", 400) for host in ("a b", "a/b", "u@a", "a:b", "[::1", "a, b")],
        *[
            ("POST /x HTTP/1.1", f"Host: {host}\r\nConnection: close\r\n\r\n", 200)
            for host in ("", "[::1]:80", "a_b.c:", "%41")
        ],
        ("POST /x HTTP/1.0", "\r\n", 200),
        ("POST /x HTTP/1.0", "Host: a b\r\n\r\n", 400),
        ("POST /x HTTP/1.0", "Host: x\r\nHost: x\r\n\r\n", 400),
        ("POST /x HTTP/2.0", f"{GOOD}\r\n", 505),
        ("POST /x HTTP/0.9", f"{GOOD}\r\n", 505),
        ("POST /x HTTP/9.9", f"{GOOD}\r\n", 505),
        ("PRI * HTTP/2.0", "\r\nSM\r\n\r\n", 505),
        ("GET /x", "", 505),
        ("POST /x HTTP/1.1", "Host: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST /x HTTP/1.1", "Host: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST /x HTTP/1.1", "Host: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST /x HTTP/1.0", f"{GOOD}{CHUNKS}\r\n", 400),
        ("POST /x HTTP/1.1", f"{GOOD}Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", 200),
    ],
)
def test_what_rfc_9112_asks_of_a_request(request_line, rest, status):
    with served() as connect:
        raw = read_all(connect(f"{request_line}\r\n{rest}"))
    assert status_of(raw) == [status]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_continue_is_for_http_1_1_alone(version):
    with served() as connect:
        raw = read_all(connect(f"POST /x HTTP/{version}\r\n{GOOD}Expect: 100-continue\r\nContent-Length: 1\r\n\r\na"))
    assert status_of(raw) == ([200] if version == "1.0" else [100, 200])


@pytest.mark.parametrize("framing", [CHUNKS + "\r\n", "Content-Length: 2\r\n\r\nab"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_an_upgrade_is_not_taken_and_its_body_is_read(framing, pieces):
    text = f"PUT /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n{framing}"
    with served(lambda request: Response(200, request.method.encode() + request.body)) as connect:
        connection = connect()
        size = -(-len(text) // pieces)
        for start in range(0, len(text), size):
            connection.sendall(text[start : start + size].encode())
            time.sleep(0.02)
        assert read_all(connection).endswith(b"\r\n\r\nPUTab")


def test_trailers_are_no_headers():
    def headers(request):
        return Response(200, b" ".join(sorted(request.headers)) + b" " + request.body)

    with served(headers) as connect:
        raw = read_all(connect(f"POST /x HTTP/1.1\r\n{GOOD}{CHUNKS}Content-Encoding: gzip\r\nHost: a b\r\n\r\n"))
    assert raw.endswith(b"\r\n\r\nhost transfer-encoding ab")


@pytest.mark.parametrize("text", ["0\r\n" + LINE * 70, "0\r\nX: " + "a" * 90_000, "1;" + "a" * 90_000])
def test_trailers_and_lines_of_chunks_are_limited_as_headers(text):
    with served() as connect:
        raw = read_all(connect(f"POST /x HTTP/1.1\r\n{GOOD}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n{text}"))
    assert status_of(raw) == [431]


def test_chunks_of_a_byte_are_refused_in_great_number():
    head = f"POST /x HTTP/1.1\r\n{GOOD}Transfer-Encoding: chunked\r\n\r\n"
    with served(max_request_bytes=1 << 20) as connect:
        assert status_of(read_all(connect(head + "1\r\na\r\n" * 100_000))) == [400]
        few = read_all(connect(head + "1\r\na\r\n" * 10_000 + "0\r\n\r\n"))
        large = read_all(connect(head + f"3e8\r\n{'a' * 1000}\r\n" * 1000 + "0\r\n\r\n"))
    assert few.endswith(b"/x " + b"a" * 10_000) and large.endswith(b"/x " + b"a" * 1_000_000)


@pytest.mark.parametrize("text", ["1\r\na\r\n0\r\nX: ", "1\r\na\r\n5\r\n"])
def test_trailers_have_the_time_of_headers(text):
    with served(headers_timeout=0.3, body_timeout=30.0) as connect:
        started = time.monotonic()
        raw = read_all(connect(f"POST /x HTTP/1.1\r\n{GOOD}Transfer-Encoding: chunked\r\n\r\n{text}"))
    assert status_of(raw) == [408] and time.monotonic() - started < 5


@pytest.mark.parametrize("count", [1, 3, 60])
def test_a_client_that_sends_no_more_gets_all_answers(count):
    with served(echo, lambda request: request.body != b"1") as connect:
        connection = connect("".join(post(str(number % 2)) for number in range(count)))
        connection.shutdown(socket.SHUT_WR)
        assert status_of(read_all(connection)) == [200] * count


@pytest.mark.parametrize("text", ["", "POST /x HTTP/1.1\r\nHo", post("abc")[:-1]])
def test_a_client_that_ends_within_a_request_gets_no_answer_to_it(text):
    with served() as connect:
        connection = connect(post("a") + text)
        connection.shutdown(socket.SHUT_WR)
        assert status_of(read_all(connection)) == [200]


def slow_get(seconds, seen):
    def answer(request):
        seen.append(request.target)
        if request.target == "/slow":
            time.sleep(seconds)
        return Response(200, b"a" * 1000)

    return answer


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"


def test_pipelined_requests_of_one_client_take_turns_with_others():
    seen = []
    with served(slow_get(0.004, seen)) as connect:
        many = connect(get("/slow") * 300)
        times = []
        for _ in range(10):
            began = time.monotonic()
            connection = connect(get("/quick"))
            assert status_of(connection.recv(1 << 16)) == [200]
            times.append(time.monotonic() - began)
        assert "/slow" in seen[-20:] and seen.count("/slow") < 300
        many.shutdown(socket.SHUT_WR)
        assert status_of(read_all(many)) == [200] * 300
    assert sorted(times)[5] < 0.1


def test_a_connection_is_read_again_once_few_of_its_requests_wait():
    go_on = threading.Event()

    def answer(request):
        go_on.wait(10)
        return Response(200, b"a")

    with served(answer, never, max_request_bytes=1 << 20, headers_timeout=1.0) as connect:
        connection = connect(get("/first"))
        time.sleep(0.1)
        # The slice that ends the data makes more requests wait than may be parsed in advance.
        connection.sendall((post("a" * (SLICE_BYTES - 100)) + get("/x") * 30).encode())
        time.sleep(0.1)
        go_on.set()
        connection.sendall((get("/y") + post("end", Connection="close")).encode())
        assert status_of(read_all(connection)) == [200] * 34


def test_answers_stop_when_the_client_is_gone():
    seen = []
    with served(slow_get(0.002, seen)) as connect:
        gone = connect(get("/slow") * 1000)
        while not seen:
            time.sleep(0.001)
        gone.close()
        end = time.monotonic() + 5
        while connect.server.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert not connect.server.connections
        stopped = len(seen)
        time.sleep(0.1)
    assert len(seen) == stopped < 900


@pytest.mark.slow
def test_answers_wait_where_the_client_does_not_read():
    seen = []

    def large(request):
        seen.append(request.target)
        return Response(200, b"a" * (1 << 20))

    with served(large) as connect:
        connection = connect(get("/x") * 200)
        time.sleep(0.3)
        assert len(seen) < 50
        connection.shutdown(socket.SHUT_WR)
        assert status_of(read_all(connection)) == [200] * 200


def unfinished(length=1_000_000):
    return post("a" * length)[:-1]


def test_a_body_that_does_not_end_makes_room_for_one_that_does():
    """A body may take half of the budget: 5 of 10 MB."""
    with served(max_request_bytes=1 << 21, budget=Budget(10_000_000, resident=lambda: 0)) as connect:
        slow = [connect(unfinished()) for _ in range(5)]
        wait_for(lambda: connect.server.budget.held_bytes > 4_900_000)
        answer = read_all(connect(post("b" * 1_000_000, Connection="close")))
        assert status_of(answer) == [200] and answer.endswith(b"b" * 1000)
        [refused] = select.select(slow, [], [], 10)[0]
        assert status_of(read_all(refused)) == [503]
        slow.remove(refused)
        slow[0].sendall(b"a")
        assert status_of(slow[0].recv(1 << 16)) == [200]
    wait_for(lambda: connect.server.budget.held_bytes == 0)
    assert connect.server.budget.held_bytes == 0


def test_long_bodies_in_advance_are_left_in_the_socket():
    go_on = threading.Event()

    def answer(request):
        go_on.wait(10)
        return Response(200, request.body[:1])

    count, most = 17, 0
    with served(answer, never, max_request_bytes=1 << 22) as connect:
        connection = connect()
        text = (post("a" * 3_000_000) * (count - 1) + post("a" * 3_000_000, Connection="close")).encode()
        sender = threading.Thread(target=connection.sendall, args=[text])
        sender.start()
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            most = max(most, connect.server.budget.held_bytes)
            time.sleep(0.01)
        go_on.set()
        assert status_of(read_all(connection)) == [200] * count
        sender.join()
    assert 3_000_000 < most < 13_000_000  # one is answered, one waits, a third may have begun


def wait_for(condition):
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def test_connections_are_no_more_than_have_room_for_their_headers():
    with served(budget=Budget(1 << 20)) as connect:
        first = connect()
        time.sleep(0.02)
        for _ in range(64):
            connect()
        assert first.recv(1) == b""
        assert len(connect.server.connections) <= 64


def test_idle_connections_make_room_for_others(monkeypatch):
    """The ones that have been idle for longest are closed, and none that is being answered or sends a body."""
    goes_on = threading.Event()

    def answer(request):
        if request.target == "/wait":
            assert goes_on.wait(20)
        return echo(request)

    monkeypatch.setattr("ctrpipe.serving.server.http_protocol.most_files", lambda: 16)
    with served(answer, never) as connect:
        waiting, sending = connect(post("a", "/wait")), connect(post("b" * 10)[:-3])
        time.sleep(0.1)
        idle = []
        for _ in range(12):
            idle.append(connect())
            time.sleep(0.02)
        assert len(connect.server.connections) == 8
        for connection in idle[:6]:
            assert connection.recv(1) == b""
        idle[-1].sendall(post("c").encode())
        assert b"/x c" in idle[-1].recv(1 << 16)
        sending.sendall(b"bbb")
        assert b"/x bbbbbbbbbb" in sending.recv(1 << 16)
        goes_on.set()
        assert b"/wait a" in waiting.recv(1 << 16)
