"""Calls the model in this process, without a server: a lower bound of a request's latency."""

import gc
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from ctrpipe.common.sessions import load_session
from ctrpipe.serving.latency.sample import LatencySample, Recorder
from ctrpipe.serving.loader import Servable

Arrays = dict[str, np.ndarray]
Call = Callable[[Arrays], Any]


class Session:
    """A version in the TF1/C++ loader, called through the public `Session.make_callable`.

    Args:
        version: The version's folder.
        config: The session's settings, equal to the server's.
    """

    def __init__(self, version: pathlib.Path, config: config_pb2.ConfigProto | None = None):
        self._session, self._signatures = load_session(version, config)

    def call(self, signature: str) -> Call:
        """Returns a function from the signature's inputs by name to all outputs, sorted by name."""
        definition = self._signatures[signature]
        names = sorted(definition.inputs)
        fetches = [definition.outputs[name].name for name in sorted(definition.outputs)]
        run = self._session.make_callable(fetches, [definition.inputs[name].name for name in names])
        return lambda inputs: run(*[inputs[name] for name in names])


def loader_call(servable: Servable, signature: str) -> Call:
    """Returns the server's own call, which is faster than the public `Session.make_callable`."""
    return lambda inputs: servable.run(signature, inputs)


def saved_model_call(path: str, signature: str) -> Call:
    """Returns a call as in TensorFlow's SavedModel guide: `tf.saved_model.load`, numpy in, numpy out."""
    loaded = tf.saved_model.load(path)

    def call(inputs: Arrays) -> dict[str, np.ndarray]:
        # Looked up in each call: a reference to the signature alone does not keep the model's variables alive.
        outputs = loaded.signatures[signature](**{name: tf.constant(values) for name, values in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return call


def measure_calls(call: Call, batches: Sequence[Arrays], threads: int, warm_up: float, seconds: float) -> LatencySample:
    """Measures a closed loop of `threads` threads that each call with the batches in turn."""
    clock = time.perf_counter
    opens = clock() + warm_up
    recorder = Recorder(opens, opens + seconds)

    def client(first: int) -> None:
        index = first
        while (started := clock()) < recorder.closes:
            call(batches[index % len(batches)])
            recorder.answered(started, clock())
            index += 1

    others = [threading.Thread(target=client, args=(index,)) for index in range(1, threads)]
    collecting = gc.isenabled()
    gc.disable()  # avoid pauses, like the generators
    try:
        for thread in others:
            thread.start()
        client(0)
        for thread in others:
            thread.join()
    finally:
        if collecting:
            gc.enable()
    return recorder.sample(0.0)
