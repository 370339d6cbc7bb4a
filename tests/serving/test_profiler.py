"""The profiler's requests end with their clients, and are few."""

import concurrent.futures
import contextlib
import threading
import time

import grpc
import pytest

from ctrpipe.serving.server import profiler
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.grpc_arrivals import Arrivals

METHOD = "/tensorflow.ProfilerService/Profile"


class Endless(grpc.GenericRpcHandler):
    """A profiler that records until its client leaves.

    Attributes:
        begun: Released by each request.
        ended: Released by each request whose client has left.
    """

    def __init__(self):
        self.begun, self.ended = threading.Semaphore(0), threading.Semaphore(0)

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self._record)

    def _record(self, body, context):
        if body == b"short":
            return b"recorded"
        if body == b"wrong":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "none such")
        gone = threading.Event()
        context.add_callback(gone.set)
        self.begun.release()
        gone.wait(20)
        self.ended.release()
        return b""


@contextlib.contextmanager
def serving(handler):
    """Yields a channel to a server of this handler."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, [handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            yield channel
        server.stop(None).wait()


@pytest.fixture
def recorder(monkeypatch):
    recorder = Endless()
    with serving(recorder) as inner:
        monkeypatch.setattr(profiler, "_profiler", lambda: inner)
        yield recorder


def test_a_recording_ends_when_its_client_leaves(recorder):
    """A client may ask for an hour, and leave: each such request kept a thread for so long."""
    with serving(profiler.ProfilerHandler(Arrivals(Budget(1 << 30, resident=lambda: 0)))) as channel:
        ask = channel.unary_unary(METHOD)
        calls = [ask.future(b"long", timeout=60) for _ in range(4)]
        assert all(recorder.begun.acquire(timeout=10) for _ in calls)
        fifth = ask.future(b"short", timeout=10)
        assert fifth.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        assert all(recorder.ended.acquire(timeout=10) for _ in calls)
        assert _answered(ask, b"short").result() == b"recorded"
        refused = _answered(ask, b"wrong")
        assert (refused.code(), refused.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "none such")


def _answered(ask, body):
    """Returns the call once a place is free: those of ended calls become free a moment later."""
    end = time.monotonic() + 10
    while True:
        call = ask.future(body, timeout=10)
        if call.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > end:
            return call
