"""Attacks over gRPC."""

import concurrent.futures
import contextlib
import gzip
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import grpc
import numpy as np
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import GrpcClient
from tests.attack.http_attacks import statuses
from tests.attack.target import (
    LEAST_QUIET_ASIDE,
    Bystander,
    GrpcBystander,
    Measure,
    Target,
    costs,
    p99,
    patience,
    until_idle,
)
from tests.fuzz.rest_requests import request as rest_request
from tests.fuzz.servable import NAME
from tests.serving.raw_grpc import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    UnfinishedMessage,
    asked_calls,
    connect,
    frame,
    opened_calls,
    reset_calls,
)

SERVICE = "/tensorflow.serving.PredictionService"
PREDICT = f"{SERVICE}/Predict"
_UNKNOWN = 0x42  # a type of HTTP/2 frames that nobody has defined
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def _many_strings() -> predict_pb2.PredictRequest:
    """Returns a request whose tensor has the shape of 262,143 strings and contains none."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = NAME, "regress"
    tensor = request.inputs["inputs"]
    tensor.dtype = 7  # DT_STRING
    tensor.tensor_shape.dim.add(size=(1 << 18) - 1)
    return request


def string_fill(target: Target) -> list[Measure]:
    """A tensor of 262,143 strings that contains one string of a megabyte for all of them."""
    if not target.server.grpc:
        return []
    request = _many_strings()
    request.inputs["inputs"].string_val.append(b"a" * target.take(1 << 20, 1 << 14))
    with Bystander(target) as other, costs(target) as cost:
        code = _code(target.server.grpc, request)
    found = [Measure(f"answers other than INVALID_ARGUMENT ({code})", code != "INVALID_ARGUMENT", 0)]
    if cost.peak_bytes is not None:
        found.append(Measure("memory", cost.peak_bytes / (1 << 20), 64, "MiB"))
    return [*found, *other.measures()]


def _code(address: str, request: predict_pb2.PredictRequest) -> str:
    """Sends a request; returns the name of its status."""
    with grpc.insecure_channel(address) as channel:
        try:
            prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def unsent_messages(target: Target) -> list[Measure]:
    """Calls that are opened on one or several connections, and whose message never arrives."""
    if not target.server.grpc:
        return []
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = NAME
    slowest = 0.0
    with ExitStack() as stack, Bystander(target) as other, costs(target) as cost:
        for calls in [8, *[90] * target.take(20, 4)]:
            attacker = stack.enter_context(connect(target.server.grpc))
            attacker.sendall(opened_calls("/tensorflow.serving.PredictionService/Predict", calls))
        time.sleep(0.5)
        with grpc.insecure_channel(target.server.grpc) as channel:
            for _ in range(20):
                before = time.perf_counter()
                with contextlib.suppress(grpc.RpcError):
                    model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=20)
                slowest = max(slowest, time.perf_counter() - before)
    found = [Measure("another client's slowest answer over gRPC", slowest * 1000, 2000, "ms")]
    if cost.peak_bytes is not None:
        found.append(Measure("memory", cost.peak_bytes / (1 << 20), 64, "MiB"))
    return [*found, *other.measures()]


def health_watchers(target: Target) -> list[Measure]:
    """Clients that watch the health, on many connections; a server keeps 4,096 of them."""
    if not target.models:
        return []
    with target.another("--enable_grpc_healthcheck_service") as watched, ExitStack() as stack:
        assert watched.server.grpc

        def attack() -> Counter[str]:
            for _ in range(target.take(180, 15)):
                attacker = stack.enter_context(connect(watched.server.grpc))
                attacker.sendall(asked_calls("/grpc.health.v1.Health/Watch", b"", 30))
                time.sleep(0.1)  # to open a call costs as much as any other does, and 256 wait at most
            return Counter()

        return _measured(watched, attack)


def _eight(target: Target, body: bytes, clients: int = 8, method: str = PREDICT) -> list[Measure]:
    """Clients in another process send a body repeatedly and at once; bystanders send requests over gRPC and REST."""
    address = target.server.grpc
    assert address

    def attack() -> Counter[str]:
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            arguments = [address, method, file.name, str(target.take(10, 0)), str(clients)]
            command = ["nice", "-n", "19", sys.executable, "-m", "tests.attack.grpc_sender", *arguments]
            return Counter(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))

    return _measured(target, attack)


def _measured(target: Target, attack: Callable[[], Counter[str]]) -> list[Measure]:
    with Bystander(target) as alone, GrpcBystander(target) as alone_rpc:
        time.sleep(target.take(5, 1))
    with Bystander(target) as other, GrpcBystander(target) as rpc, costs(target) as cost:
        codes = attack()
        until_idle(target)
    bound = patience(alone.seconds, target, LEAST_QUIET_ASIDE)
    rpc_bound = patience(alone_rpc.seconds, target, LEAST_QUIET_ASIDE)
    found = [
        Measure(f"answers that break off ({dict(codes)})", codes["UNAVAILABLE"] + codes["INTERNAL"], 0),
        Measure(
            f"another client's slowest hundredth of {len(other.seconds)}", 1e3 * p99(other.seconds), 1e3 * bound, "ms"
        ),
        Measure(f"the same over gRPC of {len(rpc.seconds)}", 1e3 * p99(rpc.seconds), 1e3 * rpc_bound, "ms"),
        _failed(rpc),
    ]
    if cost.peak_bytes is not None:
        found.append(Measure("memory", cost.peak_bytes / (1 << 20), 768, "MiB"))
    return found


def _failed(rpc: GrpcBystander) -> Measure:
    what = f"its calls over gRPC that failed, of {len(rpc.seconds):,} {dict(rpc.failures) or ''}"
    return Measure(what.rstrip(), rpc.failures.total(), 0)


def filled_strings(target: Target) -> list[Measure]:
    """60 bytes: a tensor of 262,143 empty strings, none of which is sent; eight at once."""
    if not target.server.grpc:
        return []
    return _eight(target, _many_strings().SerializeToString())


def many_sizes(target: Target) -> list[Measure]:
    """770 bytes of gzip: a tensor of 30,000 dimensions of 2^62; eight at once."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    request.inputs["x"].dtype = 1
    for _ in range(30_000):
        request.inputs["x"].tensor_shape.dim.add(size=1 << 62)
    return _eight(target, gzip.compress(request.SerializeToString()))


def deep_strings(target: Target) -> list[Measure]:
    """Strings with more dimensions than TensorFlow can read from numpy, over REST and gRPC."""
    others = []
    for dimensions in (33, 63):
        lists = b"[" * dimensions + b'"a"' + b"]" * dimensions
        body = b'{"signature_name": "regress", "instances": %b}' % lists
        answers = statuses(target, rest_request(body, headers=("Connection: close",)))
        others += [f"REST {answers}"] * (answers != [400])
        if target.server.grpc:
            request = predict_pb2.PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = NAME, "regress"
            request.inputs["inputs"].dtype = 7  # DT_STRING
            request.inputs["inputs"].string_val.append(b"a")
            for _ in range(dimensions):
                request.inputs["inputs"].tensor_shape.dim.add(size=1)
            code = _code(target.server.grpc, request)
            others += [f"gRPC {code}"] * (code != "INVALID_ARGUMENT")
    return [Measure(f"answers other than 400 and INVALID_ARGUMENT {others or ''}".rstrip(), len(others), 0)]


def strings_in_content(target: Target) -> list[Measure]:
    """20 kB of gzip: 20 million empty strings in the content of a tensor; eight at once."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = NAME, "regress"
    tensor, count = request.inputs["inputs"], target.take(20_000_000, 2_000_000)
    tensor.dtype, tensor.tensor_content = 7, bytes(count)
    tensor.tensor_shape.dim.add(size=count)
    return _eight(target, gzip.compress(request.SerializeToString()))


def empty_grpc_strings(target: Target) -> list[Measure]:
    """10 MB of strings of two bytes each; eight at once."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = NAME, "regress"
    request.inputs["inputs"].dtype = 7
    request.inputs["inputs"].string_val.extend([b""] * target.take(5_000_000, 1_200_000))
    return _eight(target, request.SerializeToString())


def many_filters(target: Target) -> list[Measure]:
    """58 kB of gzip: the names of 30 million outputs, none of which has a byte; eight at once."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    filters = b"\x1a\x00" * target.take(30_000_000, 3_000_000)
    return _eight(target, gzip.compress(request.SerializeToString() + filters, 1))


def padded_tags(target: Target) -> list[Measure]:
    """60 kB of gzip: 20 million empty inputs, whose tags have two bytes instead of one; eight at once."""
    if not target.server.grpc:
        return []
    body = b"\x92\x00\x00" * target.take(20_000_000, 3_000_000)
    return _eight(target, gzip.compress(body, 1))


def padded_lengths(target: Target) -> list[Measure]:
    """60 kB of gzip: 20 million unknown fields, whose lengths have two bytes instead of one."""
    if not target.server.grpc:
        return []
    body = b"\x4a\x80\x00" * target.take(20_000_000, 3_000_000)
    return _eight(target, gzip.compress(body, 1))


def long_names(target: Target) -> list[Measure]:
    """260 kB of gzip: a signature name of 60 MB; eight at once."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    request.model_spec.signature_name = "a" * target.take(60_000_000, 6_000_000)
    return _eight(target, gzip.compress(request.SerializeToString(), 1))


def grpc_gzip(target: Target) -> list[Measure]:
    """.9 MB of gzip that becomes 900 MB; eight at once."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_content = bytes(target.take(900_000_000, 100_000_000))
    body = gzip.compress(request.SerializeToString(), 1)
    del request
    # The call says nothing of gzip: the server knows it by its first bytes.
    return _eight(target, body)


def large_messages(target: Target) -> list[Measure]:
    """Messages above --max_request_bytes, which are refused by their length."""
    if not target.server.grpc:
        return []
    body = bytes(70_000_000)
    return _eight(target, body, 2)


def unfinished_messages(target: Target) -> list[Measure]:
    """Forty messages of 60 MB that never end, to a server with a limit of a gigabyte."""
    if not target.models or not target.long:  # tests/serving/test_grpc_arrivals.py has it small
        return []
    with target.another(f"--max_memory={1 << 30}") as small, ExitStack() as stack:
        most, process = 0, small.server.process
        assert process and small.server.grpc
        with Bystander(small) as other:
            attackers = [UnfinishedMessage(small.server.grpc, 62_000_000, 60_000_000) for _ in range(40)]
            for attacker in attackers:
                stack.callback(attacker.close)
                attacker.start()
            end = time.monotonic() + 20
            while time.monotonic() < end:
                most = max(most, process.memory_info().rss)
                time.sleep(0.01)
        sent = sum(attacker.sent for attacker in attackers)
    return [
        Measure(f"memory of the process, {sent / 1e6:,.0f} MB sent", most / (1 << 20), 1.25 * (1 << 10), "MiB"),
        *other.measures(),
    ]


def unread_calls(target: Target) -> list[Measure]:
    """2,000 calls of 60 bytes with answers of a megabyte, on connections whose client reads nothing."""
    if not target.models:
        return []
    message = _many_strings().SerializeToString()
    with target.another(f"--max_memory={1 << 30}", "--grpc_max_queued_calls=256") as small, ExitStack() as stack:
        most, process = 0, small.server.process
        assert process and small.server.grpc
        with GrpcBystander(small) as rpc, Bystander(small) as other:
            for _ in range(target.take(40, 8)):
                attacker = stack.enter_context(connect(small.server.grpc))
                attacker.sendall(asked_calls(PREDICT, message, 50))
                end = time.monotonic() + 1
                while time.monotonic() < end:
                    most = max(most, process.memory_info().rss)
                    time.sleep(0.01)
    return [
        Measure("memory of the process", most / (1 << 20), 1.1 * (1 << 10), "MiB"),
        _failed(rpc),
        *other.measures(),
    ]


def rapid_resets(target: Target) -> list[Measure]:
    """One connection that opens and resets calls as fast as it can."""
    if not target.server.grpc:
        return []
    address = target.server.grpc

    def attack() -> Counter[str]:
        end, opened = time.monotonic() + target.take(10, 2), 0
        while time.monotonic() < end:
            with connect(address) as attacker, contextlib.suppress(OSError):
                attacker.sendall(opened_calls(PREDICT, 0))
                while time.monotonic() < end:
                    attacker.sendall(reset_calls(PREDICT, opened % (1 << 28), 100))
                    opened += 100
        return Counter({"reset": opened})

    return _measured(target, attack)


def _floods() -> dict[str, tuple[int, bytes, bytes]]:
    """Returns, by name, the calls that a flood opens, its first bytes, and the bytes that it repeats."""
    entry, named = bytes([0x40, 1]) + b"y\x7f\x81\x1f" + b"b" * 4096, b"\x83\x86"
    literal = b"\0\x01x\x64" + b"a" * 100
    smallest, largest = (frame(SETTINGS, 0, 0, b"\0\4" + size) for size in (b"\0\0\0\1", b"\x7f\xff\xff\xff"))
    return {
        "priorities": (0, b"", frame(PRIORITY, 0, 1, b"\0\0\0\0\x01") * 1000),
        "settings": (0, b"", frame(SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff") * 1000),
        "pings": (0, b"", frame(PING, 0, 0, bytes(8)) * 1000),
        "headers without an end": (0, frame(HEADERS, 0, 1, named), frame(CONTINUATION, 0, 1, literal * 150) * 10),
        "headers of a table": (0, frame(HEADERS, END_HEADERS, 1, named + entry), b""),
        "windows of a call": (1, b"", frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * 1000),
        "windows of a connection": (0, b"", frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 1000),
        "windows of all calls": (100, b"", (smallest + largest) * 500),
        "a message in frames of a byte": (1, frame(DATA, 0, 1, b"\0\3\0\0\0"), frame(DATA, 0, 1, b"\x0a") * 1000),
        "frames of no known type": (0, b"", frame(_UNKNOWN, 0, 0) * 1000),
        "ends of an ended call": (1, b"", frame(RST_STREAM, 0, 1, b"\0\0\0\x08") * 1000),
    }


def frame_floods(target: Target) -> list[Measure]:
    """HTTP/2 frames without a request, each kind from three connections as fast as the server reads them."""
    if not target.models or not target.long:  # tests/serving/test_memory.py has what bounds them
        return []
    with target.another(f"--max_memory={1 << 30}") as small:
        most, process = 0, small.server.process
        assert process and small.server.grpc
        with GrpcBystander(small) as rpc, Bystander(small) as other:
            for calls, start, more in _floods().values():
                with ExitStack() as stack:
                    attackers = [stack.enter_context(connect(small.server.grpc)) for _ in range(3)]
                    end, stream = time.monotonic() + 5, 3
                    for attacker in attackers:
                        attacker.settimeout(1)
                        attacker.sendall(opened_calls(PREDICT, calls) + start)
                    while attackers and time.monotonic() < end:
                        for attacker in list(attackers):
                            try:
                                attacker.sendall(
                                    more or frame(HEADERS, END_HEADERS, stream, b"\x83\x86" + b"\xbe" * 16000)
                                )
                            except OSError:  # it is refused, or no longer read
                                attackers.remove(attacker)
                        stream += 2
                        most = max(most, process.memory_info().rss)
    return [
        Measure("memory of the process", most / (1 << 20), 1.1 * (1 << 10), "MiB"),
        _failed(rpc),
        Measure("another client's slowest hundredth over gRPC", 1e3 * p99(rpc.seconds), 1000, "ms"),
        *other.measures(),
    ]


def endless_reloads(target: Target) -> list[Measure]:
    """Nine reloads of a missing folder and nine of a folder without versions, then a valid one."""
    if not target.models:
        return []
    base = str(target.models / NAME)
    with tempfile.TemporaryDirectory() as empty:
        configs = [{NAME: base, "more": f"{empty}/none"}] * 9 + [{NAME: base, "more": empty}] * 9
        with Bystander(target) as other, GrpcBystander(target) as rpc:
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(18) as pool:
                codes = Counter(pool.map(lambda config: _reload(target, 3, config), configs))
            seconds = time.monotonic() - began
        began = time.monotonic()
        code = _reload(target, 30, {NAME: base})
    return [
        Measure(f"until all had ended ({dict(codes)})", seconds, 10, "s"),
        Measure(f"until a right one had ended ({code})", time.monotonic() - began, 5, "s"),
        Measure("right reloads that were refused", code != "OK", 0),
        _failed(rpc),
        *other.measures(),
    ]


def many_examples(target: Target) -> list[Measure]:
    """300 bytes of gzip: 100,000 examples without features, to MultiInference and to Classify; eight at once."""
    if not target.server.grpc:
        return []
    found = []
    for method, request in (
        ("MultiInference", inference_pb2.MultiInferenceRequest()),
        ("Classify", classification_pb2.ClassificationRequest()),
    ):
        if method == "Classify":
            request.model_spec.name, request.model_spec.signature_name = NAME, "classify"
        else:
            for name in ("classify", "regress"):
                task = request.tasks.add(method_name=f"tensorflow/serving/{name}")
                task.model_spec.name, task.model_spec.signature_name = NAME, name
        request.input.example_list.examples.extend([example_pb2.Example()] * target.take(100_000, 40_000))
        found += _eight(target, gzip.compress(request.SerializeToString()), method=f"{SERVICE}/{method}")
    return found


def names_of_metrics(target: Target) -> list[Measure]:
    """2 kB of gzip: a refused reload that asks for the increase of a million metrics; eight at once."""
    if not target.models:
        return []
    reload = model_management_pb2.ReloadConfigRequest()
    reload.config.model_config_list.config.add(name=NAME, base_path="no absolute path", model_platform="tensorflow")
    reload.metric_names.extend([""] * target.take(1_000_000, 100_000))
    return _eight(target, gzip.compress(reload.SerializeToString()), method=RELOAD)


def _reload(target: Target, timeout: float, models: dict[str, str]) -> str:
    reload = model_management_pb2.ReloadConfigRequest()
    for name, path in models.items():
        reload.config.model_config_list.config.add(name=name, base_path=path, model_platform="tensorflow")
    assert target.server.grpc
    with grpc.insecure_channel(target.server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(reload, timeout=timeout)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def grpc_shutdowns(target: Target) -> list[Measure]:
    """Sends SIGTERM to twenty servers, each with a successor, while eight clients send requests without a pause."""
    if not target.models or not target.long:  # tests/serving/test_grpc_shutdown.py has it small
        return []
    found: Counter[str] = Counter()
    for _ in range(20):
        stop = threading.Event()

        def ask(addresses: str, stop: threading.Event = stop) -> None:
            with GrpcClient(addresses, NAME) as client:
                while not stop.is_set():
                    try:
                        answer = client.predict({"x": np.float32([1])}, "serving_default")
                        found["right" if answer["y"].tolist() == [2.5] else "wrong"] += 1
                    except InputError as error:
                        found[str(error)[-60:]] += 1

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            with target.another() as ending:
                for _ in range(8):
                    pool.submit(ask, f"ipv4:{ending.server.grpc},{target.server.grpc}")
                time.sleep(1)
            time.sleep(0.5)
            stop.set()
    lost = found.total() - found["right"]
    return [Measure(f"calls that were lost beside {found['right']:,} {dict(found) if lost else ''}", lost, 0)]


ATTACKS = (
    string_fill,
    unsent_messages,
    health_watchers,
    filled_strings,
    many_sizes,
    deep_strings,
    strings_in_content,
    empty_grpc_strings,
    many_filters,
    padded_tags,
    padded_lengths,
    long_names,
    grpc_gzip,
    large_messages,
    unfinished_messages,
    unread_calls,
    rapid_resets,
    frame_floods,
    endless_reloads,
    names_of_metrics,
    many_examples,
    grpc_shutdowns,
)
