"""gRPC calls that never send their message do not block other clients."""

import contextlib
import pathlib
import socket
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc, predict_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.grpc_arrivals import Arrivals
from tests.serving.raw_grpc import asked_calls, connect, opened_calls

PREDICT = "/tensorflow.serving.PredictionService/Predict"
METHODS = (PREDICT, "/tensorflow.serving.ModelService/GetModelStatus", "/grpc.health.v1.Health/Check")
PROFILE = "/tensorflow.ProfilerService/Profile"


class Double(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(self, x):
        return {"y": 2 * x}


def save_double(folder: pathlib.Path) -> None:
    model = Double()
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.serve})


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("model")
    save_double(folder)
    options = ServerOptions(folder, "m", grpc_max_threads=2, enable_grpc_healthcheck_service=True)
    with running_server(options) as addresses:
        yield addresses.grpc


def answers(channel: grpc.Channel) -> None:
    """Asserts that each service answers soon."""
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "m"
    found = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=20)
    assert found.model_version_status[0].version == 1
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0, 3.0]))
    response = PredictionServiceStub(channel).Predict(request, timeout=20)
    assert list(tf.make_ndarray(response.outputs["y"])) == [2.0, 6.0]
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
    assert health.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("method", [*METHODS, "/grpc.health.v1.Health/Watch", PROFILE])
def test_a_connection_that_opens_calls_and_sends_no_message_keeps_nobody_out(address, method):
    sent = opened_calls(method, 8)
    assert len(sent) < 1200
    with connect(address) as attacker:
        attacker.sendall(sent)
        time.sleep(0.2)
        with grpc.insecure_channel(address) as channel:
            answers(channel)


def test_many_connections_that_send_no_message_keep_nobody_out(address):
    """When more calls wait than allowed, the oldest are cancelled."""
    with contextlib.ExitStack() as connections:
        attackers = [connections.enter_context(connect(address)) for _ in range(8)]
        for attacker in attackers:
            attacker.sendall(opened_calls(PREDICT, 90))
        time.sleep(0.5)
        with grpc.insecure_channel(address) as channel:
            answers(channel)
            answers(channel)


def test_connections_are_a_part_of_the_files_and_of_the_memory(tmp_path, monkeypatch):
    """Those that are too many are closed; the others are answered, and one that leaves makes room."""
    save_double(tmp_path)
    asked = asked_calls("/tensorflow.serving.ModelService/GetModelStatus", b"\x0a\x03\x0a\x01m", 1)

    def is_taken() -> bool:
        attackers.append(connections.enter_context(connect(addresses.grpc)))
        with contextlib.suppress(OSError):
            attackers[-1].sendall(asked)
            return bool(attackers[-1].recv(1))
        return False

    for files, memory, taken in ((16, 1 << 30, 4), (1000, 9 * 32 * 65536, 9), (1000, 1 << 20, 8)):
        monkeypatch.setattr("ctrpipe.serving.server.grpc_server.most_files", lambda files=files: files)
        options = ServerOptions(tmp_path, "m", max_memory=memory)
        with running_server(options) as addresses, contextlib.ExitStack() as connections:
            attackers: list[socket.socket] = []
            assert [is_taken() for _ in range(12)].count(True) == taken
            attackers[0].close()
            end = time.monotonic() + 10
            while not is_taken():
                assert time.monotonic() < end
                time.sleep(0.05)


def test_who_watches_the_health_keeps_no_thread_and_may_leave(address):
    """A server with two threads, and more watchers than threads for waiting calls; some watchers leave meanwhile."""
    with contextlib.ExitStack() as stack:
        kept = []
        for _ in range(6):
            channel = stack.enter_context(grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
            stub = health_pb2_grpc.HealthStub(channel)
            kept.append([stub.Watch(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(90)])
            assert {next(found).status for found in kept[-1]} == {health_pb2.HealthCheckResponse.SERVING}
            for call in kept[-1][::3]:
                call.cancel()
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=20)
        assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        answers(channel)


def test_of_too_many_watchers_the_oldest_of_the_largest_connection_ends(address, monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.server.grpc_health.MOST_WATCHING", 4)
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, own) as good, grpc.insecure_channel(address, own) as other:
        watchers = []
        for channel in (good, *[other] * 5):
            watchers.append(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20))
            assert next(watchers[-1]).status == health_pb2.HealthCheckResponse.SERVING
        assert [watcher.code() for watcher in watchers[1:3]] == [grpc.StatusCode.CANCELLED] * 2
        assert all(watcher.is_active() for watcher in (watchers[0], *watchers[3:]))


@pytest.mark.parametrize("body", [b"\xff" * 10, b"\x0a\x02\xff\xfe"])
def test_a_question_for_the_health_that_is_none_is_refused_without_a_traceback(address, body, caplog):
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check").future(body, timeout=20)
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(body, timeout=20)
        assert check.code() == watch.code() == grpc.StatusCode.INVALID_ARGUMENT
        answers(channel)
    assert caplog.records == []


def test_a_call_that_ends_without_a_message_is_told_so(address):
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.stream_unary(PREDICT)(iter(()), timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "requires exactly one request message" in caught.value.details()


class Call:
    """A call whose message arrives when the test releases it; `cancel` ends it as gRPC does."""

    def __init__(self, connection: str = "a"):
        self._connection = connection
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.cancelled = False

    def peer(self):
        return self._connection

    def cancel(self):
        self.cancelled = True
        self.go_on.set()

    def __iter__(self):
        return self

    def __next__(self):
        self.asked.set()
        self.go_on.wait(20)
        if self.cancelled:
            raise grpc.RpcError
        return b"its message"


def test_the_call_that_has_waited_longest_gives_way():
    arrivals, calls, found = Arrivals(Budget(), most=2), [Call() for _ in range(4)], {}

    def wait(number):
        try:
            found[number] = arrivals.message(calls[number], calls[number])
        except grpc.RpcError:
            found[number] = "cancelled"

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for number in (0, 1):
        threads[number].start()
        time.sleep(0.05)
    calls[0].go_on.set()
    threads[0].join(20)
    for number in (2, 3):
        threads[number].start()
        time.sleep(0.05)
    for call in calls:
        call.go_on.set()
    for thread in threads:
        thread.join(20)
    assert found == {0: b"its message", 1: "cancelled", 2: b"its message", 3: b"its message"}


@contextlib.contextmanager
def waiting(arrivals, calls):
    """Runs a thread for each call, in this order; yields their outcomes by index."""
    found = {}

    def wait(number, call):
        try:
            found[number] = arrivals.message(call, call)
        except grpc.RpcError:
            found[number] = "cancelled"

    threads = []
    for number, call in enumerate(calls):
        threads.append(threading.Thread(target=wait, args=(number, call)))
        threads[-1].start()
        time.sleep(0.03)
    yield found
    for call in calls:
        call.go_on.set()
    for thread in threads:
        thread.join(20)


def test_the_connection_with_the_most_calls_gives_way():
    """The age of other clients' calls does not matter."""
    calls = [Call("good"), *[Call("attacker") for _ in range(5)], Call("other")]
    with waiting(Arrivals(Budget(), most=3), calls) as found:
        pass
    message = b"its message"
    assert found == dict(enumerate([message, *["cancelled"] * 4, message, message]))


def test_half_of_the_calls_that_wait_end_where_the_process_takes_too_much(monkeypatch):
    """The oldest calls are cancelled, even if their messages have arrived in part. A recent call stays."""
    taken = [100]
    budget = Budget(1000, resident=lambda: taken[0])
    arrivals, calls = Arrivals(budget), [Call(str(number)) for number in range(5)]
    with waiting(arrivals, calls) as found:
        arrivals.relieve()
        assert not found
        taken[0] = 1001
        monkeypatch.setattr("ctrpipe.serving.server.grpc_arrivals._MOMENT_SECONDS", 60.0)
        arrivals.relieve()
        assert not found
        monkeypatch.setattr("ctrpipe.serving.server.grpc_arrivals._MOMENT_SECONDS", 0.0)
        arrivals.relieve()
        taken[0] = 900
        arrivals.relieve()
    message = b"its message"
    assert found == dict(enumerate([*["cancelled"] * 3, message, message]))


def refuse(arrivals, call, size):
    with contextlib.suppress(ServingError), arrivals.taking(call, size):
        raise bad_request("too many strings")


@pytest.mark.parametrize(("size", "is_known"), [(1 << 20, True), ((1 << 20) - 1, False)])
def test_connections_whose_large_messages_were_refused_are_received_one_at_a_time(monkeypatch, size, is_known):
    """The copy of each message keeps everybody. Others do not wait, nor do those whose latest one was answered."""
    monkeypatch.setattr("ctrpipe.serving.server.grpc_arrivals._TURN_SECONDS", 20.0)
    arrivals, calls = Arrivals(Budget()), [Call("a"), Call("b"), Call("c"), Call("good")]
    for call in calls[:3]:
        refuse(arrivals, call, size)
    with arrivals.taking(calls[2], size):
        pass
    with waiting(arrivals, calls):
        assert [call.asked.wait(0.1) for call in calls] == [True, not is_known, True, True]
        calls[0].go_on.set()
        assert calls[1].asked.wait(20)


def test_a_refused_connection_whose_message_does_not_come_keeps_the_next_one_for_a_moment():
    arrivals, calls = Arrivals(Budget()), [Call("a"), Call("b")]
    for call in calls:
        refuse(arrivals, call, 1 << 20)
    with waiting(arrivals, calls):
        assert calls[1].asked.wait(20) and not calls[0].go_on.is_set()
