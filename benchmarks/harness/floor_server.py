"""Runs a servable's graph in one way, behind the peers' line protocol: `python -m benchmarks.harness.floor_server`.

The parent process sets what a process has only once: the environment and the intra-op thread pool of all sessions.
Requests:

    {"cmd": "load", "version": folder, "signature": name, "session": ConfigProto as text, "call": one of CALLS} -> {}
    {"cmd": "measure", "rows": 1, "seconds": 0.5} -> {"p50_ms": float, "cpu_ms": float, "calls": int}
    {"cmd": "answers", "rows": 1} -> {"probabilities": [float]}
"""

import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import text_format

from benchmarks.peers.line_server import Answer, serve_lines
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.sessions import load_session
from ctrpipe.serving.layout import Asset, asset_path

CALLS = ("make_callable", "callable", "frozen", "xla")
WARM_UP = 5
Run = Callable[..., Any]


class Server:
    """Answers requests with the most recently loaded graph."""

    def __init__(self):
        self.run: Run | None = None
        self.inputs: dict[str, np.ndarray] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        commands = {"load": self.load, "measure": self.measure, "answers": self.answers}
        return commands[request.pop("cmd")](**request)

    def load(self, version: str, signature: str, session: str, call: str) -> dict[str, Any]:
        self.inputs = golden_inputs(pathlib.Path(version), signature)
        self.run = _RUNS[call](version, signature, session)
        return {}

    def arguments(self, rows: int) -> list[np.ndarray]:
        """Returns the golden rows, repeated to `rows` rows, sorted by input name."""
        return [np.resize(self.inputs[name], (rows, *self.inputs[name].shape[1:])) for name in sorted(self.inputs)]

    def measure(self, rows: int, seconds: float) -> dict[str, Any]:
        arguments = self.arguments(rows)
        for _ in range(WARM_UP):
            self.run(*arguments)
        times, cpu, end = [], time.process_time(), time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            self.run(*arguments)
            times.append(time.perf_counter() - start)
        cpu_ms = 1000 * (time.process_time() - cpu) / len(times)
        return {"p50_ms": 1000 * statistics.median(times), "cpu_ms": cpu_ms, "calls": len(times)}

    def answers(self, rows: int) -> dict[str, Any]:
        return {"probabilities": np.ravel(self.run(*self.arguments(rows))[0]).tolist()}


def golden_inputs(version: pathlib.Path, signature: str) -> dict[str, np.ndarray]:
    """Returns the version's golden rows as inputs of `serving_packed` or `serving_raw`."""
    prefix = "packed." if signature == "serving_packed" else "raw."
    with np.load(asset_path(version, Asset.GOLDEN)) as golden:
        arrays = {name.removeprefix(prefix): golden[name] for name in golden.files if name.startswith(prefix)}
    types = {"S": object, "f": np.float32, "i": np.int32}
    return {name: value.astype(types[value.dtype.kind]) for name, value in arrays.items()}


# The ways to run -------------------------------------------------------------------------------------------------


def _session(version: str, session: str):
    import tensorflow as tf  # loaded by `start`: no start-up messages, and stdout is redirected before

    config = text_format.Parse(session, tf.compat.v1.ConfigProto())
    return load_session(pathlib.Path(version), config)


def _tensors(definition: Any) -> tuple[list[str], list[str]]:
    feeds = [definition.inputs[name].name for name in sorted(definition.inputs)]
    return feeds, [definition.outputs[name].name for name in sorted(definition.outputs)]


def make_callable(version: str, signature: str, session: str) -> Run:
    """Returns the baseline: the public Session.make_callable, which calls Session.run if there are feeds."""
    opened, signatures = _session(version, session)
    feeds, fetches = _tensors(signatures[signature])
    return opened.make_callable(fetches, feeds)


def session_callable(version: str, signature: str, session: str) -> Run:
    """Returns a callable of the C++ Session::MakeCallable."""
    opened, signatures = _session(version, session)
    return _cpp_callable(opened, *_tensors(signatures[signature]))


def _cpp_callable(session: Any, feeds: list[str], fetches: list[str]) -> Run:
    # See _session.
    from tensorflow.core.protobuf import config_pb2

    return session._make_callable_from_options(config_pb2.CallableOptions(feed=feeds, fetch=fetches))


def frozen(version: str, signature: str, session: str) -> Run:
    """Returns a C++ callable of the graph with its variables as constants, which grappler can fold."""
    # See _session.
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    model = tf.saved_model.load(version)
    function = convert_variables_to_constants_v2(model.signatures[signature])
    config = text_format.Parse(session, tf.compat.v1.ConfigProto())
    opened = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with opened.graph.as_default():
        tf.import_graph_def(function.graph.as_graph_def(), name="")
    feeds = sorted(tensor.name for tensor in function.inputs)
    return _cpp_callable(opened, feeds, [tensor.name for tensor in function.outputs])


def xla(version: str, signature: str, session: str) -> Run:
    """Returns the graph as a function compiled by XLA, once per number of rows."""
    import tensorflow as tf  # see _session

    model = tf.saved_model.load(version)
    function = model.signatures[signature]
    names = sorted(function.structured_input_signature[1])

    @tf.function(jit_compile=True)
    def compiled(*tensors):
        return function(**dict(zip(names, tensors, strict=True)))

    def run(*arrays, model=model):  # the default argument keeps the model, and thus its variables, alive
        outputs = compiled(*[tf.constant(array) for array in arrays])
        return [outputs[name].numpy() for name in sorted(outputs)]

    return run


_RUNS = dict(zip(CALLS, (make_callable, session_callable, frozen, xla), strict=True))


def start() -> Answer:
    load_tensorflow()
    return Server().answer


if __name__ == "__main__":
    serve_lines(start)
