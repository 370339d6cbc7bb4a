"""A gRPC server that shuts down answers all received calls; its clients lose none."""

import collections
import concurrent.futures
import contextlib
import pathlib
import socket
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import GrpcClient
from ctrpipe.serving.server import ServerOptions, grpc_api, grpc_server, running_server
from tests.serving.raw_grpc import asked_calls

CLIENTS = 8


class Double(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(self, x):
        return {"y": 2 * x}


@pytest.fixture(scope="module", name="options")
def server_options(tmp_path_factory) -> ServerOptions:
    folder, model = tmp_path_factory.mktemp("model"), Double()
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.serve})
    return ServerOptions(pathlib.Path(folder), "m", enable_grpc_healthcheck_service=True)


@pytest.mark.slow
def test_no_call_is_lost_where_another_server_takes_over(options):
    """Eight busy clients, three servers that end one after another; `make attack` has twenty."""
    found: collections.Counter[str] = collections.Counter()
    stop = threading.Event()
    with running_server(options) as last:
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                first = stack.enter_context(running_server(options))
                addresses = f"ipv4:{first.grpc},{last.grpc}"
                stop.clear()

                def ask(addresses=addresses):
                    with GrpcClient(addresses, "m") as client:
                        while not stop.is_set():
                            try:
                                right = client.predict({"x": np.float32([3])}, "serving_default")["y"].tolist() == [6]
                                found["right" if right else "wrong"] += 1
                            except InputError as error:
                                found[str(error)] += 1

                threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                time.sleep(0.3)
                stack.close()
                time.sleep(0.3)
                stop.set()
                for thread in threads:
                    thread.join()
    assert list(found) == ["right"], found
    assert found["right"] > 100


def test_calls_without_a_message_and_who_watches_do_not_keep_a_server(options):
    running = contextlib.ExitStack()
    server = running.enter_context(running_server(options))
    with contextlib.ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(server.grpc))
        silent, never = threading.Event(), channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        calls = [never.future((b"" for _ in iter(silent.wait, True)), timeout=60) for _ in range(8)]
        stack.callback(silent.set)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        left = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(left).status == health_pb2.HealthCheckResponse.SERVING
        left.cancel()
        began = time.monotonic()
        statuses = []
        reader = threading.Thread(target=lambda: statuses.extend(answer.status for answer in watch))
        reader.start()
        running.close()
        assert time.monotonic() - began < 15  # of a grace of 30
        reader.join(20)
        assert {call.code() for call in calls} <= {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
    assert statuses == [health_pb2.HealthCheckResponse.NOT_SERVING]


def test_a_client_that_is_gone_without_a_word_does_not_keep_a_server(options, monkeypatch):
    """It has no call, and never answers what a client of gRPC answers when the server ends."""
    monkeypatch.setattr(grpc_server, "_ARRIVAL_SECONDS", 0.1)
    running = contextlib.ExitStack()
    server = running.enter_context(running_server(options))
    host, port = server.grpc.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as gone:
        gone.sendall(asked_calls("/grpc.health.v1.Health/Check", b"", 1))
        found = b""
        while b"grpc-status" not in found:
            found += gone.recv(1 << 16)
        began = time.monotonic()
        running.close()
        assert time.monotonic() - began < 10  # of a grace of 30


def test_a_call_that_runs_keeps_a_server_whose_other_clients_are_gone(options, monkeypatch):
    monkeypatch.setattr(grpc_server, "_ARRIVAL_SECONDS", 0.1)
    begun, answer = threading.Event(), grpc_api.GrpcApi._predict

    def late(api, *arguments):
        begun.set()
        time.sleep(1)
        return answer(api, *arguments)

    monkeypatch.setattr(grpc_api.GrpcApi, "_predict", late)
    running = contextlib.ExitStack()
    server = running.enter_context(running_server(options))
    with GrpcClient(server.grpc, "m") as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.predict, {"x": np.float32([3])}, "serving_default")
        assert begun.wait(10)
        running.close()
        assert asked.result()["y"].tolist() == [6]
