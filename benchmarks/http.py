"""Measures the cost of HTTP and JSON per request, compared with libraries: `python -m benchmarks.http`.

HTTP: the same API, model and requests behind each server, on loopback, request by request in random order. JSON: the
same bodies and tensors, in this process, call by call in random order.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
import httptools
import numpy as np
import orjson
import psutil
from rich.console import Group

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    chosen_names,
    positive_numbers,
)
from benchmarks.harness.result_table import result_table
from benchmarks.peers.line_process import ProcessError
from ctrpipe.common.processes import start_command, stop_command
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.run.sample_export import make_export

SERVERS = ("ctrpipe", "uvicorn", "granian")
MODEL, HOST = "ctr", "127.0.0.1"
START_SECONDS, STOP_SECONDS = 180.0, 20.0
WARM_UP = 50
RESAMPLES = 2000
MOST_MS = 0.06  # what a library may cost a request of one row before a server of our own is worth its code
RECEIVE = 1 << 20

PARTS = {
    "http": "POST :predict, raw columns as row JSON, one connection",
    "parse": "Parse the request's JSON",
    "write": "Write the response's JSON",
}

Times = dict[str, list[float]]


@dataclasses.dataclass(frozen=True)
class Difference:
    """CPU time and median of a side's calls, and its median above the first side's with a 95% interval, in ms."""

    side: str
    rows: int
    cpu_ms: float
    p50_ms: float
    difference_ms: float
    low_ms: float
    high_ms: float


class Connection:
    """A keep-alive connection to a server."""

    def __init__(self, port: int, rows: Sequence[bytes]):
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = rows
        self._at = 0

    def ask(self) -> bytes:
        """Sends the next request, and returns the response's body."""
        self._socket.sendall(self._requests[self._at % len(self._requests)])
        self._at += 1
        self._complete = False
        self._body = b""
        parser = httptools.HttpResponseParser(self)
        while not self._complete:
            data = self._socket.recv(RECEIVE)
            if not data:
                raise ProcessError("a server closed the connection")
            parser.feed_data(data)
        if parser.get_status_code() != 200:
            raise ProcessError(f"a server answers {parser.get_status_code()}: {self._body[:200]!r}")
        return self._body

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._complete = True

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def _server(side: str, base_path: pathlib.Path) -> Iterator[tuple[int, psutil.Process]]:
    """Runs a side in a separate process until the block ends. Yields its port and process."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as errors:
        arguments = [sys.executable, "-m", "benchmarks.harness.http_server", side, str(base_path.resolve()), str(port)]
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "2"}
        process = start_command(arguments, stdout=errors, stderr=errors, env=environment)
        try:
            end = time.monotonic() + START_SECONDS
            while not _listens(port):
                if time.monotonic() > end:
                    raise ProcessError(f"{side}: it does not listen after {START_SECONDS:.0f} s")
                if process.poll() is not None:
                    errors.seek(0)
                    lines = errors.read().decode(errors="replace").strip().splitlines()
                    raise ProcessError(f"{side}: {lines[-1] if lines else 'it ended without a word'}")
                time.sleep(0.1)
            yield port, psutil.Process(process.pid)
        finally:
            stop_command(process, STOP_SECONDS)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False


def in_random_order(calls: dict[str, Callable[[], Any]], repeats: int, seed: int = 0) -> Times:
    """Returns the seconds of each call by name. All repeats of all calls are in one random order."""
    order = [name for name in calls for _ in range(repeats)]
    random.Random(seed).shuffle(order)
    seconds: Times = {name: [] for name in calls}
    for name in order:
        started = time.perf_counter()
        calls[name]()
        seconds[name].append(time.perf_counter() - started)
    return seconds


def differences(times: Times, rows: int, cpu_ms: Mapping[str, float]) -> list[Difference]:
    """Returns each side's median compared with the first side's, with a bootstrap interval of the difference."""
    rng = np.random.default_rng(0)
    medians = {
        name: np.median(rng.choice(seconds, (RESAMPLES, len(seconds))), axis=1) for name, seconds in times.items()
    }
    first = next(iter(times))
    of_sides = []
    for name, seconds in times.items():
        low, high = np.quantile(medians[name] - medians[first], [0.025, 0.975]) if name != first else (0.0, 0.0)
        p50 = float(np.median(seconds))
        of_first = float(np.median(times[first]))
        above = (1e3 * (p50 - of_first), 1e3 * float(low), 1e3 * float(high))
        of_sides.append(Difference(name, rows, cpu_ms[name], 1e3 * p50, *above))
    return of_sides


def verdicts(results: Sequence[Difference]) -> list[str]:
    """Returns a line for each further server: could it replace the first? Requests of the fewest rows decide."""
    fewest = min(one.rows for one in results)
    first, *others = [one for one in results if one.rows == fewest]
    lines = []
    for one in others:
        if one.low_ms > MOST_MS:
            word = f"costs more than {MOST_MS} ms: {first.side} stays"
        elif one.high_ms <= MOST_MS:
            word = f"costs at most {MOST_MS} ms: it can replace {first.side}"
        else:
            word = f"not decided at {MOST_MS} ms: repeat it on a quiet machine, or with more --repeats"
        lines.append(f"{one.side}, {fewest} rows: {one.low_ms:+.4f} to {one.high_ms:+.4f} ms, {word}")
    return lines


def measure_servers(
    names: Sequence[str], base_path: pathlib.Path, bodies: dict[int, list[bytes]], repeats: int
) -> list[Difference]:
    """Returns the latency of each server for each number of rows.

    Raises:
        ProcessError: a server does not start, or answers otherwise than the first one.
    """
    of_sizes = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_server(name, base_path)) for name in names}
        for rows, some in bodies.items():
            requests = [_request(body) for body in some]
            sides = {
                name: stack.enter_context(contextlib.closing(Connection(port, requests)))
                for name, (port, _) in servers.items()
            }
            for _ in range(WARM_UP):
                if len({side.ask() for side in sides.values()}) > 1:
                    raise ProcessError(f"the servers answer a request of {rows} rows differently")
            count = max(repeats // (1 + rows // 50), 100)
            before = {name: _cpu_seconds(process) for name, (_, process) in servers.items()}
            calls: dict[str, Callable[[], Any]] = {name: side.ask for name, side in sides.items()}
            times = in_random_order(calls, count)
            cpu_ms = {
                name: 1e3 * (_cpu_seconds(process) - before[name]) / count for name, (_, process) in servers.items()
            }
            of_sizes += differences(times, rows, cpu_ms)
            announce(f"servers, {rows} rows")
    return of_sizes


def _cpu_seconds(process: psutil.Process) -> float:
    """Returns the processor time of a process and its children."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def _request(body: bytes) -> bytes:
    head = f"POST /v1/models/{MODEL}:predict HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def measure_json(bodies: dict[int, list[bytes]], repeats: int) -> dict[str, list[Difference]]:
    """Returns the times of parsing a request and of writing a response, for each number of rows."""
    from ctrpipe.serving.server.json_body import parse_body, parse_unusual_body
    from ctrpipe.serving.server.json_response import format_predict

    parts: dict[str, list[Difference]] = {"parse": [], "write": []}
    for rows, (body, *_) in bodies.items():
        parsers: dict[str, Callable[[], Any]] = {
            "ctrpipe": lambda body=body: parse_body(body),
            "ctrpipe, unusual bodies": lambda body=body: parse_unusual_body(body),
            "json": lambda body=body: json.loads(body),
        }
        without_nan = body.replace(b"NaN", b"null")  # orjson and msgspec refuse the word
        parsers["orjson, no NaN"] = lambda body=without_nan: orjson.loads(body)
        with contextlib.suppress(ImportError):
            import msgspec  # type: ignore[import-not-found]  # no dependency: a peer

            parsers["msgspec, no NaN"] = lambda body=without_nan: msgspec.json.decode(body)
        with contextlib.suppress(ImportError):
            import rapidjson  # type: ignore[import-not-found]  # no dependency: a peer

            parsers["rapidjson"] = lambda body=body: rapidjson.loads(
                body, number_mode=rapidjson.NM_NATIVE | rapidjson.NM_NAN
            )
        parts["parse"] += _compared(parsers, max(repeats // (1 + rows // 10), 100), rows)
        outputs = {"probabilities": np.random.default_rng(0).random((rows, 1), np.float32)}
        listed = {"predictions": outputs["probabilities"].tolist()}
        writers: dict[str, Callable[[], Any]] = {
            "ctrpipe": lambda outputs=outputs: format_predict(outputs, True),
            "orjson, other digits": lambda outputs=outputs: orjson.dumps(
                {"predictions": outputs["probabilities"]}, option=orjson.OPT_SERIALIZE_NUMPY
            ),
            "json, other digits": lambda listed=listed: json.dumps(listed),
        }
        parts["write"] += _compared(writers, max(repeats // (1 + rows // 100), 100), rows)
    return parts


def _compared(calls: dict[str, Callable[[], Any]], repeats: int, rows: int) -> list[Difference]:
    in_random_order(calls, WARM_UP)
    times = in_random_order(calls, repeats)
    return differences(times, rows, {name: 1e3 * float(np.mean(seconds)) for name, seconds in times.items()})


def tables(report: Mapping[str, Any]) -> Group:
    columns = {
        "side": "{side}",
        "rows": "{rows}",
        "CPU ms": "{cpu_ms:.4f}",
        "p50 ms": "{p50_ms:.4f}",
        "ms above the first": "{difference_ms:+.4f}",
        "95% interval": "{low_ms:+.4f} .. {high_ms:+.4f}",
    }
    parts = [result_table(title, columns, report[part]) for part, title in PARTS.items()]
    return Group(*parts, *report.get("verdicts", []))


@Benchmark("benchmarks.http", tables)
@click.argument("version", required=False, type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False))
@click.option("--rows", default="1,100,1000", help="Numbers of rows per request, separated by commas.")
@click.option("--servers", default=",".join(SERVERS), help="Servers; compared with the first.")
@click.option("--repeats", type=click.IntRange(100), default=4000, help="Requests of one row per server.")
def main(report: Report, version: pathlib.Path | None, rows: str, servers: str, repeats: int) -> None:
    """Compare ctrpipe's HTTP server and JSON with libraries.

    VERSION is the folder of a version written by `ctrpipe run` or benchmarks.exports; by default a DCN-v2 is exported.
    granian, msgspec and python-rapidjson are no dependencies: without granian, leave it out of --servers.
    """
    names = chosen_names("--servers", servers, SERVERS)
    sizes = positive_numbers("--rows", rows)
    report.add_load()
    with tempfile.TemporaryDirectory() as folder:
        version = version or make_export("dcn_v2", pathlib.Path(folder))
        from ctrpipe.serving.latency.requests import read_rows  # imports TensorFlow
        from ctrpipe.serving.loader import Servable

        servable = Servable(version)
        requests = read_rows(version, servable, None, max(sizes))
        servable.close()
        bodies = {size: requests.bodies("rest_row", size, MODEL) for size in sizes}
        base = pathlib.Path(folder) / MODEL
        base.mkdir()
        (base / "1").symlink_to(version.resolve())
        http = measure_servers(names, base, bodies, repeats)
        parts = {"http": http, **measure_json(bodies, repeats)}
    report["repeats"] = repeats
    report["verdicts"] = verdicts(http)
    report |= {name: [dataclasses.asdict(one) for one in results] for name, results in parts.items()}


if __name__ == "__main__":
    main()
