"""The server to measure: the benchmark starts it, or it already runs."""

import contextlib
import dataclasses
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import urllib3
from tensorflow_serving.apis import predict_pb2

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.processes import start_command, stop_command
from ctrpipe.serving.latency.grpc_load import OPTIONS
from ctrpipe.serving.latency.load import Endpoint
from ctrpipe.serving.latency.requests import GRPC_PATH, KINDS

LOCAL_NAME = "ctr"
START_SECONDS, STOP_SECONDS = 120.0, 20.0
TOLERANCE = 1e-4  # between a response and the same call in this process
_URL = re.compile(
    r"http://(?P<address>(\[[^]]+\]|[^/:]+):\d+)/v1/models/(?P<name>[^/:]+)(?P<version>/(versions|labels)/[^/:]+)?/?"
)


@dataclasses.dataclass(frozen=True)
class ServerTarget:
    """A model on a server.

    Attributes:
        address: HOST:PORT of the REST API.
        path: `/v1/models/NAME`, optionally followed by /versions/N or /labels/L.
        name: The model's name on the server.
        grpc: HOST:PORT of the gRPC API, or None.
        flags: The flags of a server that the benchmark started; None: unknown.
    """

    address: str
    path: str
    name: str
    grpc: str | None
    flags: tuple[str, ...] | None = None

    def endpoint(self, kind: str) -> Endpoint:
        """Returns the endpoint for requests of a kind. Raises InputError without a gRPC address."""
        if KINDS[kind].protocol == "rest":
            return Endpoint("rest", self.address, f"{self.path}:predict")
        if self.grpc is None:
            raise InputError("no gRPC address; give --grpc HOST:PORT")
        return Endpoint("grpc", self.grpc, GRPC_PATH)

    def describe(self) -> dict[str, Any]:
        """Returns the server's URL, gRPC address, Server header and flags, for the report."""
        response = request(self.address, "GET", self.path)
        url = f"http://{self.address}{self.path}"
        server = response.headers.get("server", "").strip() or None
        return {"url": url, "grpc": self.grpc, "server": server, "flags": self.flags}


def request(address: str, method: str, path: str, body: bytes | None = None) -> urllib3.BaseHTTPResponse:
    """Sends one request, and returns the response with its `data`. Raises InputError without a response."""
    try:
        headers = {"Connection": "close"}  # an idle connection would be one more in what is measured
        return urllib3.request(method, f"http://{address}{path}", body=body, headers=headers, timeout=60, retries=False)
    except urllib3.exceptions.HTTPError as error:
        raise InputError(f"http://{address}: no answer ({error}); is the server running?") from error


def at_url(url: str, grpc_address: str | None, option: str = "--target") -> ServerTarget:
    """Returns the model on a running server. `option` names the URL in errors.

    Raises:
        InputError: the URL is not a model's URL, or the server does not respond or reports an error.
    """
    match = _URL.fullmatch(url)
    if not match:
        either = "local, or " if option == "--target" else ""
        raise InputError(f"{option} {url}: expected {either}a URL like http://127.0.0.1:8501/v1/models/ctr")
    path = f"/v1/models/{match['name']}{match['version'] or ''}"
    response = request(match["address"], "GET", path)
    if response.status != 200:
        answer = response.data.decode("utf-8", "replace")
        raise InputError(f"{option} {url}: answers {response.status}: {one_line(answer, 200)}")
    return ServerTarget(match["address"], path, match["name"], grpc_address)


@contextlib.contextmanager
def started(command: Sequence[str], model: pathlib.Path, flags: Sequence[str] = ()) -> Iterator[ServerTarget]:
    """Runs ctrpipe's server in a separate process, on free ports, until the block ends.

    Args:
        command: The command that starts the server, without flags.
        model: The folder of the model's versions, or of the version to serve.
        flags: Flags in addition to those for the model and the ports.

    Raises:
        InputError: the server exits, or has no available model in time.
    """
    rest, rpc = _free_port(), _free_port()
    own = [
        f"--model_base_path={model.absolute()}",
        f"--model_name={LOCAL_NAME}",
        f"--rest_api_port={rest}",
        f"--port={rpc}",
    ]
    target = ServerTarget(f"127.0.0.1:{rest}", f"/v1/models/{LOCAL_NAME}", LOCAL_NAME, f"127.0.0.1:{rpc}", tuple(flags))
    with tempfile.TemporaryFile("w+") as output:
        process = start_command([*command, *own, *flags], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            _wait(target, process, output)
            yield target
        finally:
            stop_command(process, STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(target: ServerTarget, process: subprocess.Popen[bytes], output: Any) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            output.seek(0)
            last = (output.read().strip().splitlines() or ["nothing"])[-1]
            raise InputError(f"the server ended with exit code {process.returncode}; its last lines: {last[:300]}")
        try:
            if b'"AVAILABLE"' in request(target.address, "GET", target.path).data:
                return
        except InputError:
            pass
        time.sleep(0.1)
    raise InputError(f"the server has no model after {START_SECONDS:.0f} s")


# A single request -----------------------------------------------------------------------------------------------------


def ask(endpoint: Endpoint, body: bytes, task: str) -> np.ndarray:
    """Sends a request and returns the probabilities in the response, float32 [N].

    Raises:
        InputError: the response is an error.
    """
    if endpoint.protocol == "grpc":
        return _ask_grpc(endpoint, body, task)
    response = request(endpoint.address, "POST", endpoint.path, body)
    if response.status != 200:
        text = response.data.decode("utf-8", "replace")
        raise InputError(f"HTTP {response.status}: {one_line(text, 200)}")
    answer = json.loads(response.data)
    values = answer.get("predictions", answer.get("outputs"))
    if isinstance(values, dict):
        values = values[task]
    elif values and isinstance(values[0], dict):
        values = [row[task] for row in values]
    return np.array(values, np.float32)


def _ask_grpc(endpoint: Endpoint, body: bytes, task: str) -> np.ndarray:
    with grpc.insecure_channel(endpoint.address, OPTIONS) as channel:
        try:
            answer = channel.unary_unary(endpoint.path)(body, timeout=60, wait_for_ready=False)
        except grpc.RpcError as error:
            raise InputError(f"gRPC {error.code().name}: {one_line(error.details(), 200)}") from error
    return np.asarray(tf.make_ndarray(predict_pb2.PredictResponse.FromString(answer).outputs[task]))


def compare(endpoint: Endpoint, body: bytes, task: str, expected: np.ndarray) -> float:
    """Returns the largest difference between a response and the same call in this process.

    Raises:
        InputError: the response is an error, has another number of rows, or differs by more than TOLERANCE.
    """
    answered = ask(endpoint, body, task)
    if answered.shape != expected.shape:
        raise InputError(f"{len(answered)} probabilities for {len(expected)} rows")
    difference = float(np.abs(answered - expected).max())
    if not difference <= TOLERANCE:
        raise InputError(
            f"its probabilities differ by {difference:.2g} from those of --model; does it serve that model?"
        )
    return difference
