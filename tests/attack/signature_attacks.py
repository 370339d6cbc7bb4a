"""Expensive requests to each signature, over both protocols: empty and long texts, sent, filled and compressed.

Eight clients send requests at once. The bounds apply to a bystander's p99 latency and to the server's memory.
"""

import concurrent.futures
import contextlib
import dataclasses
import gzip
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from tests.attack.target import Bystander, Measure, Target, costs, p99, patience
from tests.fuzz.server import NAME

CLIENTS = 8
MAX_MEMORY = 3 << 30  # tests.attack.exports
_SECONDS = 60.0
_ASKING_SECONDS = 1.0  # after which a client sends no further one of many requests, where each takes long
# What a client may be answered: its answer, that it asks for too much, or that the server is busy.
_FINE = {"200", "400", "413", "429", "503", "504", "OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
_LONG = b"a|b,c d;e.f-g " * 570  # 8 kB of every separator


@dataclasses.dataclass(frozen=True)
class Cell:
    """One kind of request.

    Attributes:
        model: Who is asked.
        signature: Of the model; a method of the example API is `Classify`, `Regress` or `MultiInference`.
        rest: Over REST; else over gRPC.
        packed: As gzip.
        content: `empty` texts, `long` ones, or a few bytes that `filled` a tensor (gRPC only).
        large: One request as large as may be; else many of a row.
    """

    model: str
    signature: str
    rest: bool
    packed: bool
    content: str
    large: bool

    def __str__(self) -> str:
        protocol = f"{'REST' if self.rest else 'gRPC'}{', gzip' if self.packed else ''}"
        return f"{self.model}'s {self.signature}, {protocol}, {'one large' if self.large else 'many'}, {self.content}"


def cells(model: str, signatures: list[str]) -> list[Cell]:
    found = []
    for signature, rest, packed, content in itertools.product(
        signatures, (True, False), (False, True), ("empty", "long", "filled")
    ):
        if content == "filled" and (rest or packed):
            continue
        found += [Cell(model, signature, rest, packed, content, large) for large in (True, False)]
    return found


def cells_in_turns(model: str, signatures: list[str]) -> list[Cell]:
    """Returns each signature's cells with expensive graphs, and some of those with expensive bodies.

    `every_method` asks all of one model. All of three exports, 522, take ten minutes and more: here each signature is
    asked for filled texts and for long ones, plain and as gzip in turns, and every third for empty ones that are sent.
    """
    found = []
    for number, signature in enumerate(signatures):
        for cell in cells(model, [signature]):
            in_turn = cell.packed == bool((number + cell.large) % 2)
            if cell.large if cell.content == "filled" else in_turn and (cell.content == "long" or not number % 3):
                found.append(cell)
    return found


def _inputs(definition: dict[str, Any], cell: Cell, short: bool) -> dict[str, np.ndarray]:
    """Returns the inputs of a request: of candidates, one user's."""
    names = definition["inputs"]
    text = _LONG if cell.content == "long" else b""
    budget = {"empty": 340_000, "long": 1000, "filled": 1 << 18}[cell.content] // (20 if short else 1)
    rows = max(budget // len(names), 1) if cell.large else 1
    arrays = {}
    for name, info in names.items():
        sizes = [int(dim["size"]) for dim in info["tensor_shape"].get("dim", [])]
        shape = [rows if place == 0 else max(size, 1) for place, size in enumerate(sizes)]
        if cell.signature.startswith("serving_candidates") and name in ("user", "seen", "search query", "title"):
            shape = [1, *shape[1:]]
        dtype = tf.as_dtype(getattr(tf.dtypes, info["dtype"].removeprefix("DT_").lower().replace("float", "float32")))
        arrays[name] = np.full(shape, text, object) if dtype == tf.string else np.zeros(shape, dtype.as_numpy_dtype)
    return arrays


class Asker(contextlib.AbstractContextManager["Asker"]):
    """Sends the requests of a cell to the models of a server, each thread over connections of its own.

    A connection for each request takes 25 ms of the machine, more than most requests take of the server.
    """

    def __init__(self, target: Target, short: bool):
        self._url, self._grpc, self._short = target.server.url, target.server.grpc, short
        self._definitions: dict[str, dict[str, Any]] = {}
        self._own = threading.local()
        self._opened = contextlib.ExitStack()

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _client(self) -> httpx.Client:
        if not hasattr(self._own, "client"):
            self._own.client = self._opened.enter_context(httpx.Client(trust_env=False, timeout=_SECONDS))
        client: httpx.Client = self._own.client
        return client

    def _channel(self) -> grpc.Channel:
        if not hasattr(self._own, "channel"):
            assert self._grpc
            self._own.channel = self._opened.enter_context(grpc.insecure_channel(self._grpc, _OPTIONS))
        channel: grpc.Channel = self._own.channel
        return channel

    def signatures(self, model: str) -> list[str]:
        return [name for name in self._of(model) if not name.startswith("__")]

    def _of(self, model: str) -> dict[str, Any]:
        if model not in self._definitions:
            page = httpx.get(f"{self._url}/v1/models/{model}/metadata", trust_env=False, timeout=_SECONDS).json()
            self._definitions[model] = page["metadata"]["signature_def"]["signature_def"]
        return self._definitions[model]

    def prepared(self, cell: Cell) -> Callable[[], Counter[str]]:
        """Returns a function that sends requests as one client, and returns the number of answers by status.

        The requests are made here, because an attacker's work would slow down a bystander in this process.
        """
        times = 1 if cell.large else 3 if self._short else 30
        send = self._rest(cell) if cell.rest else self._rpc(cell)

        def ask() -> Counter[str]:
            found: Counter[str] = Counter()
            end = time.monotonic() + _ASKING_SECONDS
            for number in range(times):
                if number and time.monotonic() > end:
                    break
                try:
                    found[send()] += 1
                except httpx.HTTPError as error:
                    found[repr(error)] += 1
                except grpc.RpcError as error:
                    found[error.code().name] += 1
            return found

        return ask

    def _rest(self, cell: Cell) -> Callable[[], str]:
        method, body = "predict", b""
        count = (20_000 if self._short else 340_000) if cell.large else 1
        if cell.signature in ("Classify", "Regress", "MultiInference"):
            method = "classify" if cell.signature == "Classify" else "regress"
            text = _LONG[:800].decode() if cell.content == "long" else ""
            example = json.dumps({"x": [1.0], "s": [text]}) if text else "{}"
            several = ",".join([example] * (count // (100 if text else 2) or 1))
            body = f'{{"signature_name": "{method}", "examples": [{several}]}}'.encode()
        else:
            columns = {
                name: [value.decode() for value in array] if array.dtype == object else array.tolist()
                for name, array in _inputs(self._of(cell.model)[cell.signature], cell, self._short).items()
            }
            body = json.dumps({"signature_name": cell.signature, "inputs": columns}).encode()
        headers = {"Content-Encoding": "gzip"} if cell.packed else {}
        data = gzip.compress(body, 1) if cell.packed else body
        url = f"{self._url}/v1/models/{cell.model}:{method}"
        return lambda: str(self._client().post(url, content=data, headers=headers).status_code)

    def _rpc(self, cell: Cell) -> Callable[[], str]:
        is_example = cell.signature in ("Classify", "Regress", "MultiInference")
        body = (self._examples(cell) if is_example else self._tensors(cell)).SerializeToString()
        path = f"/tensorflow.serving.PredictionService/{cell.signature if is_example else 'Predict'}"
        packing = grpc.Compression.Gzip if cell.packed else grpc.Compression.NoCompression

        def send() -> str:
            self._channel().unary_unary(path)(body, timeout=_SECONDS, compression=packing)
            return "OK"

        return send

    def _tensors(self, cell: Cell) -> Any:
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = cell.model, cell.signature
        for name, array in _inputs(self._of(cell.model)[cell.signature], cell, self._short).items():
            tensor = request.inputs[name]
            if cell.content == "filled":
                tensor.CopyFrom(tf.make_tensor_proto(array.reshape(-1)[:1]))
                tensor.ClearField("tensor_shape")
                for size in array.shape:
                    tensor.tensor_shape.dim.add(size=size)
            else:
                tensor.CopyFrom(tf.make_tensor_proto(array, tf.string if array.dtype == object else None))
        return request

    def _examples(self, cell: Cell) -> Any:
        kind = {
            "Classify": classification_pb2.ClassificationRequest,
            "Regress": regression_pb2.RegressionRequest,
            "MultiInference": inference_pb2.MultiInferenceRequest,
        }[cell.signature]
        request = kind()
        if cell.signature == "MultiInference":
            for name in ("classify", "regress"):
                task = request.tasks.add(method_name=f"tensorflow/serving/{name}")
                task.model_spec.name, task.model_spec.signature_name = cell.model, name
        else:
            request.model_spec.name, request.model_spec.signature_name = cell.model, cell.signature.lower()
        example = tf.train.Example()
        if cell.content == "long":
            example.features.feature["s"].bytes_list.value.append(_LONG)
        count = (1000 if cell.content == "long" else 1_000_000) // (20 if self._short else 1) if cell.large else 1
        request.input.example_list.examples.extend([example] * count)
        return request


def _groups(table: list[Cell]) -> list[list[Cell]]:
    """Returns the groups of cells that are measured at once: those that differ in their protocol only."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in table:
        groups.setdefault(dataclasses.replace(cell, rest=True), []).append(cell)
    return list(groups.values())


def _asked(target: Target, table: list[Cell], asker: Asker, quiet: list[float]) -> list[Measure]:
    """Runs eight clients at once, half of them over each protocol, beside a bystander."""
    statuses: Counter[str] = Counter()
    waited: list[float] = []
    slowest, slowest_cell, most, most_cell = 0.0, "", 0, ""
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for group in _groups(table):
            name = " and ".join(map(str, group))
            asks = [asker.prepared(cell) for cell in group] * (CLIENTS // len(group))
            with Bystander(target) as other, costs(target) as cost:
                for found in pool.map(lambda ask: ask(), asks):
                    statuses.update({f"{status} of {name}": number for status, number in found.items()})
            waited += other.seconds
            if max(other.seconds, default=0.0) > slowest:
                slowest, slowest_cell = max(other.seconds), name
            if cost.peak_bytes is not None and cost.peak_bytes > most:
                most, most_cell = cost.peak_bytes, name
            target.server.check()
    wrong = {text: number for text, number in statuses.items() if text.partition(" ")[0] not in _FINE}
    bound = patience(quiet, target)
    found = [
        Measure(f"answers of another kind beside {statuses.total():,} {list(wrong)[:3] or ''}", sum(wrong.values()), 0),
        Measure(f"another client's slowest hundredth of {len(waited):,}", 1e3 * p99(waited), 1e3 * bound, "ms"),
        Measure(f"its slowest, at {slowest_cell}", 1e3 * slowest, 2000, "ms"),
    ]
    if target.server.process:
        found.append(Measure(f"memory, at {most_cell}", most / (1 << 20), MAX_MEMORY / (1 << 20), "MiB"))
        resident = target.server.process.memory_info().rss / (1 << 20)
        found.append(Measure("the process in the end", resident, MAX_MEMORY / (1 << 20), "MiB"))
    return found


def _quiet(target: Target) -> list[float]:
    """Returns the latency of a client without other clients."""
    with Bystander(target) as alone:
        time.sleep(target.take(4, 1))
    return alone.seconds


def every_method(target: Target) -> list[Measure]:
    """Each signature of the small model, with its examples over Classify, Regress and MultiInference."""
    if not target.server.grpc:
        return []
    quiet = _quiet(target)
    with Asker(target, not target.long) as asker:
        # `slow` computes for as long as it is asked to.
        own = [name for name in asker.signatures(NAME) if name not in ("slow", "classify", "regress")]
        table = cells(NAME, [*own, "Classify", "Regress", "MultiInference"])
        return _asked(target, table if target.long else table[::9], asker, quiet)


def every_signature(target: Target) -> list[Measure]:
    """Each signature of three exports: columns and an explanation, a text and its candidates, towers and an index."""
    if not target.models or not target.long:  # the exports take half a minute
        return []
    from tests.attack.exports import EXPORTS, exported  # imports what trains a model

    with exported(target) as served, Asker(served, short=False) as asker:
        quiet = _quiet(served)
        table = [cell for model in EXPORTS for cell in cells_in_turns(model, asker.signatures(model))]
        return _asked(served, table, asker, quiet)


def _eight_bodies(target: Target, model: str, body: dict[str, Any], packed: bool = False) -> list[Measure]:
    """Eight clients send a body to an export at once, three times; a bystander's latency is measured meanwhile."""
    from tests.attack.exports import exported

    plain = json.dumps(body).encode()
    data = gzip.compress(plain, 1) if packed else plain
    headers = {"Content-Encoding": "gzip"} if packed else {}
    with exported(target) as served:
        url = f"{served.server.url}/v1/models/{model}:predict"

        def ask(_: int) -> list[str]:
            with httpx.Client(trust_env=False, timeout=_SECONDS) as client:
                return [str(client.post(url, content=data, headers=headers).status_code) for _ in range(3)]

        quiet = _quiet(served)
        with Bystander(served) as other, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool, costs(served) as cost:
            began = time.monotonic()
            statuses = Counter(itertools.chain.from_iterable(pool.map(ask, range(CLIENTS))))
            seconds = time.monotonic() - began
    found = [
        Measure(f"answers of another kind ({dict(statuses)})", sum(statuses[code] for code in {*statuses} - _FINE), 0),
        Measure(f"seconds of 24 requests of {len(data):,} bytes", seconds, 30, "s"),
        Measure("another client's slowest hundredth", 1e3 * p99(other.seconds), 1e3 * patience(quiet, served), "ms"),
    ]
    if cost.peak_bytes is not None:
        found.append(Measure("memory", cost.peak_bytes / (1 << 20), 512, "MiB"))
    return found


def long_texts(target: Target) -> list[Measure]:
    """8 kB of text to a model that tokenises in its graph: a word, punctuation, and many words."""
    if not target.models or not target.long:
        return []
    found = []
    for text in ("a" * 8000, ".,!?" * 2000, "red dress " * 800, "\u4e2d\u6587" * 1300):
        row = {"age": 20.0, "shop": "s1", "place": "1", "search query": text, "title": text}
        found += _eight_bodies(target, "text", {"signature_name": "serving_raw", "instances": [row]})
    return found


def many_separators(target: Target) -> list[Measure]:
    """8.3 million separators of a list and of a history, 8 kB as gzip."""
    if not target.models or not target.long:
        return []
    columns = {name: "" for name in ("c1", "c2", "c3", "hour")} | {name: 1.0 for name in ("n1", "n2", "n3")}
    listed = {"signature_name": "serving_raw", "instances": [{**columns, "tags": "|" * 8_300_000}]}
    seen = {"user": "u1", "item": "f1", "year": 2000.0, "seen": "|" * 8_300_000}
    history = {"signature_name": "serving_raw", "instances": [seen]}
    return [*_eight_bodies(target, "columns", listed, True), *_eight_bodies(target, "towers", history, True)]


def many_users(target: Target) -> list[Measure]:
    """3,000 users at once to an index of items, 407 bytes as gzip."""
    if not target.models or not target.long:
        return []
    found = []
    for signature in ("serving_retrieve", "serving_retrieve_approximate"):
        body = {"signature_name": signature, "instances": [{"user": "u1", "seen": ""}] * 3000}
        found += _eight_bodies(target, "towers", body, True)
    return found


ATTACKS = (every_method, every_signature, long_texts, many_separators, many_users)
