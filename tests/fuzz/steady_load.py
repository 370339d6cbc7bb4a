"""Clients over REST and gRPC with a steady rate, and the server's memory under this load."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable

import click
import grpc
import httpx
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.fuzz.rest_requests import MODEL
from tests.fuzz.servable import NAME
from tests.fuzz.server import Server, Usage

LOOK_SECONDS = 60.0
GROWTH = 0.05
ROWS = 50


@dataclasses.dataclass
class _Answers:
    """A client's answers: their seconds since the last look, and the first fault."""

    api: str
    seconds: list[float] = dataclasses.field(default_factory=list)
    fault: str = ""


def soak(server: Server, seconds: float, rate: float, clients: int) -> list[str]:
    """Runs the load and prints a line a minute; returns the faults."""
    stop = threading.Event()
    seen = [_Answers("REST") for _ in range(clients)] + [_Answers("gRPC") for _ in range(clients)]
    threads = [threading.Thread(target=_ask, args=(server, answers, rate, stop)) for answers in seen]
    for thread in threads:
        thread.start()
    began, first, last = time.monotonic(), None, None
    try:
        while time.monotonic() - began < seconds and not any(answers.fault for answers in seen):
            stop.wait(min(LOOK_SECONDS, max(0.0, began + seconds - time.monotonic())))
            last = server.usage()
            _report((time.monotonic() - began) / 60, last, seen)
            server.check()
            first = first or last  # a minute after the start: buffers and pools have their size
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    faults = [answers.fault for answers in seen if answers.fault]
    if first and last:
        faults += _growth(first, last)
    return faults


def _report(minute: float, usage: Usage | None, seen: list[_Answers]) -> None:
    parts = []
    for api in ("REST", "gRPC"):
        seconds: list[float] = []
        for answers in seen:
            if answers.api == api:
                taken, answers.seconds = answers.seconds, []
                seconds += taken
        p50, p99 = np.percentile(seconds, (50, 99)) * 1e3 if seconds else (float("nan"), float("nan"))
        parts.append(f"{api} {len(seconds):,} answers, p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    click.echo(f"minute {minute:.0f}: {usage}; {'; '.join(parts)}")


def _growth(first: Usage, last: Usage) -> list[str]:
    growth = last.megabytes / first.megabytes - 1
    click.echo(f"memory {growth:+.2%} since the first minute, threads {last.threads - first.threads:+}")
    return [f"memory grew from {first} to {last}"] if growth >= GROWTH else []


def _ask(server: Server, answers: _Answers, rate: float, stop: threading.Event) -> None:
    """Sends one request after the other, at the times of the rate."""
    try:
        with contextlib.closing(_CLIENTS[answers.api](server)) as client:
            turn = time.monotonic()
            values = np.arange(ROWS, dtype=np.float32)
            while not stop.wait(max(0.0, turn - time.monotonic())):
                turn += 1 / rate
                values = np.roll(values, 1)
                began = time.perf_counter()
                found = client(values)
                answers.seconds.append(time.perf_counter() - began)
                if not np.array_equal(found, values / 2 + 2):
                    raise AssertionError(f"{values.tolist()} was answered {found}")
    except Exception as error:
        answers.fault = f"{answers.api}: {type(error).__name__}: {error}"


class _Rest:
    def __init__(self, server: Server):
        self._client = httpx.Client(base_url=server.url, trust_env=False, timeout=30)
        self._path = f"{MODEL}:predict"

    def __call__(self, values: np.ndarray) -> np.ndarray:
        answer = self._client.post(self._path, json={"instances": values.tolist()})
        answer.raise_for_status()
        return np.array(answer.json()["predictions"], np.float32)

    def close(self) -> None:
        self._client.close()


class _Grpc:
    def __init__(self, server: Server):
        self._channel = grpc.insecure_channel(str(server.grpc))
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(values))
        return tf.make_ndarray(self._stub.Predict(request, timeout=30).outputs["y"])

    def close(self) -> None:
        self._channel.close()


_CLIENTS: dict[str, Callable[[Server], _Rest | _Grpc]] = {"REST": _Rest, "gRPC": _Grpc}
