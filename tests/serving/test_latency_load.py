"""Load on small servers that stall, fail, cut connections or say nothing."""

import concurrent.futures
import contextlib
import socket
import socketserver
import threading
import time

import grpc
import numpy as np
import pytest

from ctrpipe.serving.latency.drive import drive
from ctrpipe.serving.latency.generators import Generators
from ctrpipe.serving.latency.load import Endpoint, Load, poisson
from ctrpipe.serving.latency.responder import responder, sized

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Behaviour:
    """The test server's behaviour: it answers at once, unless told to stall, to fail or to cut the connection."""

    def __init__(self, stall: tuple[float, float] = (0.0, 0.0), fail_every: int = 0, cut_every: int = 0, mute=False):
        self.stall, self.fail_every, self.cut_every, self.mute = stall, fail_every, cut_every, mute
        self.requests: list[int] = []  # lengths of the bodies
        self.connections = 0
        self._lock = threading.Lock()

    def begin(self, begin: float) -> None:
        self._from, self._to = (begin + offset for offset in self.stall)

    def ask(self, length: int) -> str:
        """`ok`, `fail` or `cut`, after the stall."""
        with self._lock:
            self.requests.append(length)
            number = len(self.requests)
        if self.mute:
            time.sleep(5)
        if self._from <= time.perf_counter() < self._to:
            time.sleep(self._to - time.perf_counter())
        if self.fail_every and number % self.fail_every == 0:
            return "fail"
        return "cut" if self.cut_every and number % self.cut_every == 0 else "ok"


@contextlib.contextmanager
def rest_server(behaviour: Behaviour):
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            behaviour.connections += 1
            with contextlib.suppress(OSError):
                while self.rfile.readline():
                    length = 0
                    while (line := self.rfile.readline().strip()) != b"":
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    verdict = behaviour.ask(len(self.rfile.read(length)))
                    if verdict == "cut":
                        return
                    self.wfile.write(ANSWER if verdict == "ok" else ANSWER.replace(b"200 OK", b"503 Busy"))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = block_on_close = False
        request_queue_size = 64

    Server.daemon_threads = True
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Endpoint("rest", f"127.0.0.1:{server.server_address[1]}", "/v1/models/ctr:predict")
        server.shutdown()


@contextlib.contextmanager
def grpc_server(behaviour: Behaviour):
    def call(request: bytes, context: grpc.ServicerContext) -> bytes:
        if behaviour.ask(len(request)) != "ok":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        return b"ok"

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(call)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(64), handlers=(Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Endpoint("grpc", f"127.0.0.1:{port}", "/tensorflow.serving.PredictionService/Predict")
    server.stop(0)


SERVERS = {"rest": rest_server, "grpc": grpc_server}


def run(protocol: str, behaviour: Behaviour, seconds: float = 0.6, body: bytes = b"{}", **options):
    """A load of one generator in this process: warm-up 0.1 s, one connection unless told otherwise."""

    def start() -> float:
        begin = time.perf_counter() + 0.02
        behaviour.begin(begin)
        return begin

    with SERVERS[protocol](behaviour) as endpoint:
        options = {"connections": 1, "warm_up": 0.1, **options}
        return drive(Load(endpoint, seconds=seconds, **options), [body], start)


@pytest.mark.parametrize("protocol", SERVERS)
def test_a_stall_that_a_closed_loop_hides_is_seen_by_an_open_one(protocol):
    """The server stalls for 0.3 of 0.6 s: half of the requests that are due wait, 0.15 s on average."""
    stall = (0.3, 0.6)
    closed = run(protocol, Behaviour(stall))
    assert np.percentile(closed.latencies, 90) < 0.05 and closed.latencies.max() > 0.25
    arrivals = poisson(200, 0.7, seed=3)
    opened = run(protocol, Behaviour(stall), arrivals=arrivals, connections=32)
    assert len(opened.latencies) == np.count_nonzero(arrivals >= 0.1)  # each counts, none is left out
    due_in_stall = np.count_nonzero((arrivals >= 0.3) & (arrivals < 0.6))
    assert np.count_nonzero(opened.latencies > 0.005) >= 0.9 * due_in_stall
    assert 0.12 < np.mean(np.sort(opened.latencies)[-due_in_stall:]) < 0.25
    assert np.percentile(opened.latencies, 90) > 0.15


def test_waiting_for_a_free_connection_is_latency():
    """With one connection, the requests due during the stall queue up behind the stalled request."""
    arrivals = np.arange(0.1, 0.7, 0.02)
    found = run("rest", Behaviour((0.2, 0.5)), arrivals=arrivals, connections=1)
    assert len(found.latencies) == len(arrivals)
    late = np.sort(found.latencies)[-14:]
    assert np.allclose(late, 0.3 - 0.02 * np.arange(14)[::-1] - 0.0, atol=0.05)
    # The server's fault, not the generator's. Not the greatest: a busy machine may start one request late.
    assert np.quantile(found.lags, 0.75) < 0.05


@pytest.mark.parametrize(("protocol", "reason"), [("rest", "HTTP 503"), ("grpc", "RESOURCE_EXHAUSTED")])
def test_error_answers_are_counted_and_are_no_latencies(protocol, reason):
    behaviour = Behaviour(fail_every=4)
    found = run(protocol, behaviour, warm_up=0.0)
    assert set(found.errors) == {reason}
    assert found.errors[reason] == pytest.approx(len(found.latencies) / 3, abs=1)
    assert len(found.latencies) + found.errors[reason] == pytest.approx(len(behaviour.requests), abs=1)


def test_a_cut_connection_is_an_error_and_made_again():
    behaviour = Behaviour(cut_every=10)
    found = run("rest", behaviour, warm_up=0.0)
    assert found.errors["ConnectionResetError"] == pytest.approx(len(behaviour.requests) / 10, abs=1)
    assert behaviour.connections == pytest.approx(len(behaviour.requests) / 10, abs=2)
    assert len(found.latencies) > 5 * found.errors["ConnectionResetError"]


def test_the_generators_cpu_time_is_that_of_the_drive_alone():
    before = time.process_time()
    found = run("rest", Behaviour())
    assert 0 < found.cpu_seconds <= time.process_time() - before


def test_a_connection_is_kept():
    behaviour = Behaviour()
    found = run("rest", behaviour, connections=3)
    assert not found.errors and len(found.latencies) > 50
    assert behaviour.connections == 3


@pytest.mark.parametrize("protocol", SERVERS)
def test_a_request_without_an_answer_is_given_up_and_counts_with_its_time(protocol):
    started = time.perf_counter()
    found = run(protocol, Behaviour(mute=True), seconds=0.2, warm_up=0.0, timeout=0.3)
    assert found.errors == {"timeout": 1} and found.completed == 0
    assert found.latencies == pytest.approx([0.3], abs=0.15)
    assert time.perf_counter() - started < 3


def test_arrivals_that_never_found_a_connection_are_given_up():
    arrivals = np.array([0.01, 0.05, 0.1])
    found = run("rest", Behaviour(mute=True), seconds=0.2, warm_up=0.0, timeout=0.3, arrivals=arrivals)
    assert found.errors == {"timeout": 3} and len(found.latencies) == 3


@pytest.mark.parametrize(("protocol", "reason"), [("rest", "ConnectionRefusedError"), ("grpc", "UNAVAILABLE")])
@pytest.mark.slow
def test_a_port_where_nothing_listens_is_an_error_not_a_hang(protocol, reason):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = Endpoint(protocol, f"127.0.0.1:{free.getsockname()[1]}", "/x")
        found = drive(Load(endpoint, 1, 0.0, 0.3), [b"{}"])
    assert set(found.errors) == {reason} and not len(found.latencies)
    assert found.errors[reason] < 20  # it does not hammer at a closed door


def test_a_body_larger_than_a_sockets_buffer_arrives_whole():
    behaviour = Behaviour()
    found = run("rest", behaviour, body=b"x" * (6 << 20))
    assert not found.errors and len(found.latencies) >= 1
    assert set(behaviour.requests) == {6 << 20}


def test_poisson_arrivals_have_the_rate_and_exponential_gaps():
    arrivals = poisson(1000, 50, seed=7)
    gaps = np.diff(arrivals)
    assert len(arrivals) == pytest.approx(50_000, rel=0.02) and (gaps >= 0).all() and arrivals[-1] < 50
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert np.mean(gaps > 0.001) == pytest.approx(np.exp(-1), rel=0.03)


@pytest.mark.parametrize("protocol", SERVERS)
@pytest.mark.slow
def test_generators_share_clients_and_rate(protocol):
    with Generators(2) as generators, responder(protocol) as endpoint:
        one = generators.closed(endpoint, [b"{}"], 1, 0.05, 0.2)
        three = generators.closed(endpoint, [b"{}"], 3, 0.05, 0.2)
        opened = generators.open(sized(endpoint, 100_000), [b"{}"], 8, 300, 0.05, 1.0)
    assert not one.errors and not three.errors and not opened.errors
    assert one.completed == pytest.approx(len(one.latencies), abs=1)
    assert three.completed == pytest.approx(len(three.latencies), abs=3)
    assert len(opened.latencies) == pytest.approx(300, abs=60)  # 3.5 standard deviations of a Poisson count
