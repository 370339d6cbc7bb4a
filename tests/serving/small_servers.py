"""Fake servers that give the answers of a test."""

import concurrent.futures
import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

METADATA = {
    "model_spec": {"name": "ctr", "signature_name": "", "version": "7"},
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_raw": {"outputs": {"ctr": {"dtype": "DT_FLOAT"}}},
                "log_spec": {"outputs": {"log_spec": {"dtype": "DT_STRING"}}},
            }
        }
    },
}


class Post(NamedTuple):
    """A received request."""

    path: str
    body: dict[str, Any]
    connection: tuple[str, int]


@contextlib.contextmanager
def rest_server(*answers: tuple | Callable) -> Iterator[tuple[str, list[Post]]]:
    """Answers POST requests with these answers in turn, and then with the last one; yields (URL, requests).

    An answer is (status, body), (status, body, headers), or is called with the handler. GET .../metadata is METADATA.
    """
    posts: list[Post] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posts.append(Post(self.path, body, self.client_address))
            answer = answers[min(len(posts), len(answers)) - 1]
            if callable(answer):
                answer(self)
            else:
                self.answer(*answer)

        def do_GET(self):
            self.answer(200, json.dumps(METADATA))

        def answer(self, status, body, headers=()):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/models/ctr", posts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def cut(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


class GrpcServer(prediction_service_pb2_grpc.PredictionServiceServicer, model_service_pb2_grpc.ModelServiceServicer):
    """Gives the answers in turn, and then the last one: a dictionary of outputs, a status code, or (code, message).

    Attributes:
        requests: The received requests, of all methods.
        states: (version, state) of GetModelStatus.
    """

    def __init__(self, *answers: Any, states: tuple[tuple[int, str], ...] = ()):
        self.requests: list[Any] = []
        self.states = states
        self._answers = answers

    def _next(self, request, context) -> Any:
        self.requests.append(request)
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if callable(answer):
            answer = answer(context)
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "as the test\nsays")
        return answer

    def Predict(self, request, context):
        answer = self._next(request, context)
        response = predict_pb2.PredictResponse()
        response.model_spec.version.value = 7
        for name, values in answer.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response

    def GetModelStatus(self, request, context):
        self._next(request, context)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state in self.states:
            number = get_model_status_pb2.ModelVersionStatus.State.Value(state)
            response.model_version_status.add(version=version, state=number)
        return response

    def HandleReloadConfigRequest(self, request, context):
        self._next(request, context)
        return model_management_pb2.ReloadConfigResponse()


@contextlib.contextmanager
def grpc_server(servicer: GrpcServer, port: int = 0) -> Iterator[str]:
    """Runs the server until the block ends, and yields its address."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)
