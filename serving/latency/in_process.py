"""The floor: the model called in this process, with no server before it."""

import gc
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from serving.latency.sample import Recorder, Sample
from serving.loader import Servable

Arrays = dict[str, np.ndarray]
Call = Callable[[Arrays], Any]


def session_call(servable: Servable, signature: str) -> Call:
    """TF Serving's way: a function made by `Session.make_callable` in the loader that the server uses."""
    return lambda inputs: servable.run(signature, inputs)


def saved_model_call(path: str, signature: str) -> Call:
    """Anybody's way: `tf.saved_model.load`, numpy in, numpy out."""
    loaded = tf.saved_model.load(path)
    function = loaded.signatures[signature]

    def call(inputs: Arrays) -> dict[str, np.ndarray]:
        found = function(**{name: tf.constant(values) for name, values in inputs.items()})
        return {name: value.numpy() for name, value in found.items()}

    call.loaded = loaded  # type: ignore[attr-defined]  # the function alone does not keep the variables
    return call


def measure_calls(call: Call, batches: Sequence[Arrays], threads: int, warm_up: float, seconds: float) -> Sample:
    """A closed loop of `threads` threads, each of which calls with the batches in turn."""
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
    gc.disable()  # as in the generators
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
