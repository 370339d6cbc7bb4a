"""Attacks on the page of metrics."""

import re
import time

import grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from ctrpipe.serving.server.metrics import METRICS_PATH
from tests.attack.target import Measure, Target
from tests.fuzz.connection import LIMIT_SECONDS, Connection
from tests.fuzz.rest import ask_good
from tests.fuzz.rest_requests import request
from tests.fuzz.server import NAME

NAMES = 1000
_LABEL = re.compile(r'\bmodel(?:_name)?="((?:[^"\\]|\\.)*)"')
_GOOD = re.compile(rf':request_count{{model_name="{NAME}",status="OK"}} (\d+)')


def invented_models(target: Target) -> list[Measure]:
    """1,000 names of unknown models, long and strange ones too, over REST and gRPC."""
    _ask_for(target, ["invented"])
    ask_good(target.rest)
    before = _page(target)
    if before is None:
        return []
    _ask_for(target, [_name(number) for number in range(target.take(NAMES, 300))])
    ask_good(target.rest)
    after = _page(target) or ""
    names = set(_LABEL.findall(after)) - {NAME, ""}
    counted = [int(found[1]) if (found := _GOOD.search(page)) else 0 for page in (before, after)]
    return [
        Measure("series that were added", len(after.splitlines()) - len(before.splitlines()), 0),
        Measure("names of models that there are not", len(names), 0),
        Measure("requests of the real model that were not counted", max(0, 1 + counted[0] - counted[1]), 0),
    ]


def _name(number: int) -> str:
    return f"invented-{number}" + ("%22%0A" if number % 3 == 1 else "a" * 2000 if number % 3 == 2 else "")


def _ask_for(target: Target, names: list[str]) -> None:
    with target.connect() as connection:
        for name in names:
            connection.send(request(b'{"instances": [1.0]}', f"/v1/models/{name}:predict"))
            connection.response(time.monotonic() + LIMIT_SECONDS)
            _get(connection, f"/v1/models/{name}")
    if target.server.grpc:
        with grpc.insecure_channel(target.server.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for name in names:
                wanted = predict_pb2.PredictRequest()
                wanted.model_spec.name = name
                assert stub.Predict.future(wanted, timeout=LIMIT_SECONDS).code() == grpc.StatusCode.NOT_FOUND


def _get(connection: Connection, path: str) -> tuple[int, str]:
    connection.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    answer = connection.response(time.monotonic() + LIMIT_SECONDS)
    return (answer[0], answer[2].decode()) if answer else (0, "")


def _page(target: Target) -> str | None:
    """Returns the page of metrics; None if the server does not have it."""
    with target.connect() as connection:
        status, page = _get(connection, METRICS_PATH)
    return page if status == 200 else None


ATTACKS = (invented_models,)
