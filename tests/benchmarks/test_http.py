"""benchmarks.http: the medians, their intervals, and the applications behind the libraries' servers."""

import asyncio

import numpy as np
import pytest

from benchmarks import http
from benchmarks.harness.http_server import Application
from ctrpipe.serving.server.http_protocol import Response


def test_differences_are_those_of_the_medians_with_an_interval_around_them():
    draw = np.random.default_rng(1)
    times = {"a": list(draw.normal(0.010, 0.001, 2000)), "b": list(draw.normal(0.012, 0.001, 2000))}
    first, second = http.differences(times, 7, {"a": 1.0, "b": 2.0})
    assert (first.side, first.rows, first.cpu_ms, first.difference_ms) == ("a", 7, 1.0, 0.0)
    assert second.difference_ms == pytest.approx(1e3 * (np.median(times["b"]) - np.median(times["a"])))
    # The standard error of a median of n normal values is 1.2533 s / sqrt(n).
    half = 1.96 * 1.2533 * 2**0.5 / 2000**0.5
    assert second.low_ms == pytest.approx(2 - half, abs=0.06) and second.high_ms == pytest.approx(2 + half, abs=0.06)


def test_calls_are_made_in_one_random_order():
    made = []
    times = http.in_random_order({name: lambda name=name: made.append(name) for name in "ab"}, 50)
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 50, "b": 50}
    assert made.count("a") == 50 and made != sorted(made) and made[:50] != ["a", "b"] * 25


class Api:
    def is_short(self, request):
        return request.target == "/short"

    def answer(self, request):
        return Response(200, f"{request.method} {request.target} ".encode() + request.body)


@pytest.mark.parametrize("path", ["/short", "/long"])
def test_the_asgi_application_answers_with_the_api(path):
    sent = []

    async def send(message):
        sent.append(message)

    async def call():
        parts = iter([b"a", b"b"])

        async def receive():
            body = next(parts)
            return {"type": "http.request", "body": body, "more_body": body == b"a"}

        await Application(Api()).asgi({"method": "POST", "path": path, "headers": []}, receive, send)

    asyncio.run(call())
    start, body = sent
    assert start["status"] == 200 and (b"content-length", b"%d" % len(body["body"])) in start["headers"]
    assert body["body"] == f"POST {path} ab".encode()


def test_the_rsgi_application_answers_with_the_api():
    answered = []

    class Protocol:
        async def __call__(self):
            return b"ab"

        def response_bytes(self, *arguments):
            answered.append(arguments)

    class Scope:
        method, path, headers = "POST", "/short", {"host": "a"}

    asyncio.run(Application(Api()).rsgi(Scope(), Protocol()))
    assert answered == [(200, [("content-type", "application/json")], b"POST /short ab")]


def test_a_server_may_cost_so_much():
    def one(side, rows, low, high):
        return http.Difference(side, rows, 0.1, 1.0, (low + high) / 2, low, high)

    found = http.verdicts(
        [one("ours", 100, 0, 0), one("a", 100, 0, 9), one("ours", 1, 0, 0), one("a", 1, 0.07, 0.2)]
        + [one("b", 1, -0.1, 0.06), one("c", 1, 0.05, 0.07)]
    )
    assert [line.partition(", ")[0] for line in found] == ["a", "b", "c"]
    assert found[0].endswith("costs more than 0.06 ms: ours stays") and "+0.0700 to +0.2000 ms" in found[0]
    assert found[1].endswith("costs at most 0.06 ms: it can replace ours")
    assert "not decided at 0.06 ms" in found[2]
