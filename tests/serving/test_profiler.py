"""The profiler's requests end with their clients, are few, and leave nothing behind."""

import concurrent.futures
import contextlib
import threading
import time

import grpc
import pytest

from ctrpipe.serving.server import profiler
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.grpc_arrivals import Arrivals

SERVICE = "/tensorflow.ProfilerService/"
METHOD = f"{SERVICE}Profile"


def field(number, content):
    """A text of a message, of up to 16 kB."""
    size = len(content)
    return bytes([number << 3 | 2, *([size] if size < 128 else [size & 127 | 128, size >> 7])]) + content


def recording(session, folder=b"/traces"):
    """A ProfileRequest: its folder and its session."""
    return field(5, folder) + field(6, session)


def handler(budget=None):
    budget = budget or Budget(1 << 30, resident=lambda: 0)
    return profiler.ProfilerHandler(Arrivals(budget), budget)


class Endless(grpc.GenericRpcHandler):
    """A profiler that records until its client leaves.

    Attributes:
        begun: Released by each request.
        ended: Released by each request whose client has left.
        asked: The methods that were asked, in order.
    """

    def __init__(self):
        self.begun, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.asked = []

    def service(self, details):
        self.asked.append(details.method.removeprefix(SERVICE))
        return grpc.unary_unary_rpc_method_handler(self._record)

    def _record(self, body, context):
        if not body.endswith((b"long", b"wrong")):
            return b"recorded"
        if body.endswith(b"wrong"):
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
    monkeypatch.setattr(profiler, "_LOOK_SECONDS", 0.05)
    recorder = Endless()
    with serving(recorder) as inner:
        monkeypatch.setattr(profiler, "_profiler", lambda: inner)
        yield recorder


def test_a_recording_ends_when_its_client_leaves(recorder):
    """A client may ask for an hour, and leave: each such request kept a thread for so long."""
    with serving(handler()) as channel:
        ask = channel.unary_unary(METHOD)
        calls = [ask.future(recording(b"long"), timeout=60) for _ in range(4)]
        assert all(recorder.begun.acquire(timeout=10) for _ in calls)
        fifth = ask.future(recording(b"short"), timeout=10)
        assert fifth.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        assert all(recorder.ended.acquire(timeout=10) for _ in calls)
        assert _answered(ask, recording(b"short")).result() == b"recorded"
        refused = _answered(ask, recording(b"wrong"))
        assert (refused.code(), refused.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "none such")


def _answered(ask, body):
    """Returns the call once a place is free: those of ended calls become free a moment later."""
    end = time.monotonic() + 10
    while True:
        call = ask.future(body, timeout=10)
        if call.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > end:
            return call


def test_a_recording_ends_when_memory_has_run_out(recorder):
    """TensorFlow keeps a kilobyte and more of each request that any client asks meanwhile."""
    taken = [0]
    with serving(handler(Budget(1 << 30, resident=lambda: taken[0]))) as channel:
        call = channel.unary_unary(METHOD).future(recording(b"long"), timeout=60)
        assert recorder.begun.acquire(timeout=10)
        taken[0] = 1 << 40
        assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "memory has run out" in call.details()
        assert recorder.ended.acquire(timeout=10)


def test_a_session_is_ended_only_while_it_is_recorded(recorder):
    """TensorFlow remembers each id of a session that is to end, of up to a megabyte, until it is recorded."""
    with serving(handler()) as channel:
        end = channel.unary_unary(f"{SERVICE}Terminate")
        assert end(field(1, b"other"), timeout=10) == b"" and recorder.asked == []
        call = channel.unary_unary(METHOD).future(recording(b"long"), timeout=60)
        assert recorder.begun.acquire(timeout=10)
        assert end(field(1, b"other"), timeout=10) == b"" and recorder.asked == ["Profile"]
        ended = end.future(field(1, b"long"), timeout=10)
        assert recorder.begun.acquire(timeout=10)
        ended.cancel()
        assert recorder.asked == ["Profile", "Terminate"]
        call.cancel()
        with pytest.raises(grpc.RpcError) as error:
            end(field(1, b"a" * 1025), timeout=10)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", ["StartContinuousProfiling", "GetSnapshot", "StopContinuousProfiling"])
def test_a_recording_without_an_end_is_not_begun(recorder, method):
    with serving(handler()) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(f"{SERVICE}{method}")(recording(b"short"), timeout=10)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED and recorder.asked == []


@pytest.mark.parametrize("folder", [b"", b"traces", b"../traces"])
def test_a_trace_is_not_written_where_the_server_happens_to_run(recorder, folder):
    with serving(handler()) as channel:
        ask = channel.unary_unary(METHOD)
        with pytest.raises(grpc.RpcError) as error:
            ask(recording(b"short", folder), timeout=10)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT and recorder.asked == []
        assert "absolute" in error.value.details()
        in_the_answer = recording(b"short", folder) + bytes([9 << 3, 1])  # emit_xspace: nothing is written
        assert ask(in_the_answer, timeout=10) == b"recorded"
        assert _answered(ask, recording(b"short", b"gs://bucket/traces")).result() == b"recorded"


def test_what_is_no_request_of_the_profiler_is_refused(recorder):
    with serving(handler()) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(METHOD)(b"\x07", timeout=10)
    assert error.value.code() is grpc.StatusCode.INTERNAL and recorder.asked == []
