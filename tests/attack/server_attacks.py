"""Attacks that depend on the server's flags: each starts its own servers, next to the shared one."""

import concurrent.futures
import contextlib
import gzip
import json
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

import grpc
from tensorflow_serving.apis import (
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.attack.target import Measure, Target, until_idle
from tests.fuzz.connection import LIMIT_SECONDS, Fault
from tests.fuzz.rest import ask_good
from tests.fuzz.rest_requests import request
from tests.fuzz.server import NAME, wait_for_version
from tests.fuzz.swap_load import SwapLoad

LATE_SECONDS = 5.0  # that a request may run past its deadline
_LONG_SECONDS = 300.0  # what a request asks for; nobody waits for so long
_IDLE_PERCENT = 20.0
_BATCHING = "max_batch_size { value: 32 } batch_timeout_micros { value: 5000 } num_batch_threads { value: 2 }"


def reload_from_network(target: Target) -> list[Measure]:
    """HandleReloadConfigRequest on a port that other machines reach: another folder, no model, the same model."""
    if not target.models or not target.long:  # tests/contract/test_reload.py has it small
        return []
    base = str(target.models / NAME)
    with tempfile.TemporaryDirectory() as folder, target.another("--host=0.0.0.0") as open_to_all:
        configs = ({NAME: base, "mine": folder}, {"mine": folder}, {}, {NAME: base})
        taken = sum(_reload(open_to_all, **config) != "PERMISSION_DENIED" for config in configs)
        ask_good(open_to_all.rest)
    return [Measure("reloads that were taken", taken, 0)]


def reload_outside_the_roots(target: Target) -> list[Measure]:
    """The same with the flag that allows it: folders outside the allowed ones, also by `..` and by a link."""
    if not target.models or not target.long:
        return []
    base = target.models / NAME
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        for root in ("inside", "outside"):
            shutil.copytree(base, folder / root / "model")
        (folder / "inside" / "link").symlink_to(folder / "outside")
        outside = [f"{folder}/outside/model", f"{folder}/inside/../outside/model", f"{folder}/inside/link/model", "/"]
        flags = ("--allow_reload_from_network", f"--allowed_model_roots={folder}/inside")
        with target.another("--host=0.0.0.0", *flags) as open_to_all:
            taken = sum(_reload(open_to_all, ctr=str(base), mine=path) != "PERMISSION_DENIED" for path in outside)
            refused = _reload(open_to_all, ctr=str(base), mine=f"{folder}/inside/model") != "OK"
            ask_good(open_to_all.rest)
    return [Measure("reloads that were taken", taken, 0), Measure("allowed reloads that were refused", refused, 0)]


def reload_on_loopback(target: Target) -> list[Measure]:
    """A reload that is not refused: of any folder, on a port of this machine."""
    if not target.models:
        return []
    base = target.models / NAME
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(base, pathlib.Path(folder) / "1", dirs_exist_ok=True)
        codes = [_reload(target, ctr=str(base), more=f"{folder}/1"), _reload(target, ctr=str(base))]
    ask_good(target.rest)
    return [Measure("reloads that were refused", sum(code != "OK" for code in codes), 0)]


def _reload(target: Target, **models: str) -> str:
    """Reloads these models, given by name and folder; returns the status code."""
    reload = model_management_pb2.ReloadConfigRequest()
    reload.config.model_config_list.SetInParent()
    for name, path in models.items():
        reload.config.model_config_list.config.add(name=name, base_path=path, model_platform="tensorflow")
    with grpc.insecure_channel(target.server.grpc) as channel:
        return _code(lambda: model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(reload))


def _code(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def spoiled_batches(target: Target) -> list[Measure]:
    """--enable_batching, and a client whose requests do not fit: unknown ids, other shapes and types."""
    if not target.models:
        return []
    parameters = target.models / "batching.config"
    parameters.write_text(_BATCHING)
    flags = ("--enable_batching", f"--batching_parameters_file={parameters}")
    with target.another(*flags) as batching:
        end = time.monotonic() + target.take(20, 3)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            spoilers = [pool.submit(_spoil, batching, end, number) for number in range(4)]
            others = [pool.submit(_ask_batched, batching, end) for _ in range(8)]
            refused = sum(future.result() for future in spoilers)
            answers, failed = (sum(column) for column in zip(*(future.result() for future in others), strict=True))
    if not answers or not refused:
        raise Fault(f"{answers} requests were answered rightly and {refused} wrong ones refused")
    return [
        Measure(f"failures of other clients beside {answers:,} right answers and {refused:,} refusals", failed, 0),
    ]


def _spoil(target: Target, end: float, number: int) -> int:
    """Sends invalid requests until the end; returns the number of refused ones."""
    ids = ([[1000 + number]], [[-1]], [[2**31 - 1]], [[1, 2]], [[[1]]], [["a"]], [[1], [-1]])
    bodies = [{"signature_name": "serving_packed", "inputs": {"ids": value}} for value in ids]
    bodies += [{"inputs": {"x": value}} for value in ([[1.0]], ["a"], [[1.0, 2.0], [1.0]])]
    refused = 0
    with target.connect() as connection:
        while time.monotonic() < end:
            for body in bodies:
                connection.send(request(json.dumps(body).encode()))
                answer = connection.response(time.monotonic() + LIMIT_SECONDS)
                if not answer:
                    raise Fault("the connection ended in place of an answer")
                refused += answer[0] == 400
    return refused


def _ask_batched(target: Target, end: float) -> tuple[int, int]:
    """Sends valid requests until the end; returns the numbers of correct and of other answers."""
    right = wrong = 0
    bodies = [
        ({"signature_name": "serving_packed", "inputs": {"ids": [[3], [99]]}}, {"outputs": [3.0, 99.0]}),
        ({"instances": [1.0, -2.0]}, {"predictions": [2.5, 1.0]}),
    ]
    with target.connect() as connection:
        while time.monotonic() < end:
            for body, expected in bodies:
                connection.send(request(json.dumps(body).encode()))
                answer = connection.response(time.monotonic() + LIMIT_SECONDS)
                is_right = answer is not None and answer[0] == 200 and json.loads(answer[2]) == expected
                right, wrong = right + is_right, wrong + (not is_right)
    return right, wrong


def past_the_deadline(target: Target) -> list[Measure]:
    """A graph that computes for minutes, and a body whose parsing exceeds the deadline of 2 s; REST and gRPC."""
    if not target.models:
        return []
    with target.another("--rest_api_timeout_in_ms=2000") as hasty:
        found = _past_deadline(hasty, 2.0, "a graph", _slow_request())
        # Few enough numbers for the bound on memory, and a mistake at the end, so that slow parsers read them too.
        count, number = target.take(1_400_000, 700_000), b"0.1234567890123456789012345678901234567"
        numbers = b'{"instances": [' + (number + b",") * count + b"x"
        packed = request(gzip.compress(numbers, 1), headers=("Content-Encoding: gzip",))
        found += _past_deadline(hasty, 2.0, "a body", packed)
        return [*found, *_past_grpc_deadline(hasty, 2.0)]


def past_the_default_deadline(target: Target) -> list[Measure]:
    """The same graph with the default deadline, 30 s."""
    return _past_deadline(target, 30.0, "a graph", _slow_request()) if target.long else []


def _slow_request(seconds: float = _LONG_SECONDS) -> bytes:
    return request(json.dumps({"signature_name": "slow", "instances": [seconds]}).encode())


def _past_deadline(target: Target, deadline: float, what: str, raw: bytes) -> list[Measure]:
    began = time.monotonic()
    with target.connect() as connection:
        connection.send(raw)
        answer = connection.response(began + deadline + 10 * LATE_SECONDS)
    answered = time.monotonic() - began
    until_idle(target, _IDLE_PERCENT)
    ended = time.monotonic() - began
    status = answer and answer[0]
    return [
        Measure(f"{what}: answers other than 504 ({status})", status != 504, 0),
        Measure(f"{what}: answered past the deadline", answered - deadline, LATE_SECONDS, "s"),
        Measure(f"{what}: idle past the deadline", ended - deadline, LATE_SECONDS, "s"),
    ]


def _past_grpc_deadline(target: Target, deadline: float) -> list[Measure]:
    slow = predict_pb2.PredictRequest()
    slow.model_spec.name, slow.model_spec.signature_name = NAME, "slow"
    tensor = slow.inputs["seconds"]
    tensor.dtype = 1  # DT_FLOAT
    tensor.tensor_shape.dim.add(size=1)
    tensor.float_val.append(_LONG_SECONDS)
    began = time.monotonic()
    with grpc.insecure_channel(target.server.grpc) as channel:
        code = _code(lambda: prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(slow, timeout=deadline))
    until_idle(target, _IDLE_PERCENT)
    ended = time.monotonic() - began
    return [
        Measure(f"gRPC: answers other than DEADLINE_EXCEEDED ({code})", code != "DEADLINE_EXCEEDED", 0),
        Measure("gRPC: idle past the deadline", ended - deadline, LATE_SECONDS, "s"),
    ]


def sigterm(target: Target) -> list[Measure]:
    """SIGTERM during three long requests: all are answered, and the server ends within its grace period."""
    if not target.models or not target.long:  # tests/serving/test_serve.py has it small
        return []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with target.another() as ending:
            asked = [pool.submit(_ask_slow, ending, seconds) for seconds in (6, 12, 18)]
            time.sleep(2)
            signalled = time.monotonic()
        ended = time.monotonic() - signalled
        statuses = [future.result() for future in asked]
    return [
        Measure(f"answers other than 200 ({statuses})", sum(status != 200 for status in statuses), 0),
        Measure("until the server ended", ended, 30, "s"),
    ]


def _ask_slow(target: Target, seconds: float) -> int:
    try:
        with target.connect() as connection:
            connection.send(_slow_request(seconds))
            answer = connection.response(time.monotonic() + seconds + LIMIT_SECONDS)
    except (OSError, Fault):
        return 0
    return answer[0] if answer else 0


def swaps_under_load(target: Target) -> list[Measure]:
    """Versions that replace one another while clients send requests without a pause: no request fails."""
    if not target.models or not target.long:  # tests/serving/test_hot_swap.py has it small
        return []
    from tests.fuzz.servable import record_warmup, save

    with tempfile.TemporaryDirectory() as name, _served_alone(target, pathlib.Path(name)) as swapping:
        assert swapping.models
        with SwapLoad(swapping.server) as load:
            for number in range(2, 7):
                new = save(pathlib.Path(name) / f"new-{number}", float(number), megabytes=20)
                record_warmup(new)
                new.rename(swapping.models / NAME / str(number))
                wait_for_version(swapping.server, number)
    rights = [[1 + bias, 2 + bias] for bias in range(2, 7)]
    wrong = sum(status != 200 or found not in rights for _, _, status, found in load.answers)
    return [Measure(f"wrong or missing answers beside {len(load.answers) - wrong:,} right ones", wrong, 0)]


@contextlib.contextmanager
def _served_alone(target: Target, folder: pathlib.Path) -> Iterator[Target]:
    """Serves a copy of the models, to which versions may be added."""
    assert target.models
    shutil.copytree(target.models / NAME, folder / NAME)
    copy = Target(target.server, target.long, folder)
    with copy.another("--file_system_poll_wait_seconds=0.2") as swapping:
        yield swapping


ATTACKS = (
    reload_from_network,
    reload_outside_the_roots,
    reload_on_loopback,
    spoiled_batches,
    past_the_deadline,
    past_the_default_deadline,
    sigterm,
    swaps_under_load,
)
