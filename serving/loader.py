"""Runs a SavedModel as TF Serving does: the TF1/C++ loader, one session, one callable per signature."""

import pathlib
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from transforms.errors import InputError

MAX_WARMUP_RECORDS = 1000


class Servable:
    """A loaded version of a model; `run` may be called from several threads.

    Args:
        path: The version's folder.
        threads: Intra- and inter-op threads, 0 = one per processor.

    Raises:
        InputError: the folder holds no SavedModel.
    """

    def __init__(self, path: pathlib.Path, threads: int = 0):
        if not (path / "saved_model.pb").exists():
            raise InputError(f"{path}: no SavedModel here (saved_model.pb is absent)")
        self.path = path
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
        self.signatures: dict[str, meta_graph_pb2.SignatureDef] = dict(graph.signature_def)
        self._callables: dict[tuple[str, tuple[str, ...]], Callable[..., list[np.ndarray]]] = {}
        self._lock = threading.Lock()

    def run(self, signature: str, inputs: dict[str, np.ndarray], outputs: list[str] | None = None) -> dict:
        """The signature's outputs by alias. Raises KeyError for an unknown alias and TensorFlow's own errors."""
        names = tuple(sorted(outputs or self.signatures[signature].outputs))
        order = sorted(self.signatures[signature].inputs)
        call = self._callable(signature, names)
        return dict(zip(names, call(*[inputs[name] for name in order]), strict=True))

    def _callable(self, signature: str, outputs: tuple[str, ...]) -> Callable[..., list[np.ndarray]]:
        key = (signature, outputs)
        with self._lock:
            if key not in self._callables:
                definition = self.signatures[signature]
                fetches = [definition.outputs[name].name for name in outputs]
                feeds = [definition.inputs[name].name for name in sorted(definition.inputs)]
                self._callables[key] = self._session.make_callable(fetches, feeds)
            return self._callables[key]

    def close(self) -> None:
        self._session.close()


def replay_warmup(servable: Servable, path: pathlib.Path) -> int:
    """Runs the recorded requests of assets.extra; returns how many. Raises what a failing record raises."""
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    if not file.exists():
        return 0
    done = 0
    for record in tf.compat.v1.io.tf_record_iterator(str(file)):
        if done == MAX_WARMUP_RECORDS:
            raise ValueError(f"Number of warmup records exceeds the maximum ({MAX_WARMUP_RECORDS})")
        _replay(servable, prediction_log_pb2.PredictionLog.FromString(record))
        done += 1
    return done


def _replay(servable: Servable, log: prediction_log_pb2.PredictionLog) -> None:
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        servable.run(request.model_spec.signature_name or "serving_default", inputs, list(request.output_filter))
    elif kind in ("regress_log", "classify_log"):
        request = getattr(log, kind).request
        examples = [example.SerializeToString() for example in request.input.example_list.examples]
        signature = request.model_spec.signature_name or "serving_default"
        servable.run(signature, {"inputs": np.array(examples, object)})
    else:
        raise NotImplementedError(f"Unsupported log_type for warmup: {kind}")
