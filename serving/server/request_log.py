"""Writes a sample of the answered requests to files, from which drift is measured and models are trained again.

The records are TF Serving's PredictionLogs (apis/prediction_log.proto) with its LogMetadata. TF Serving has this log
as an interface without an implementation (core/request_logger.h, core/log_collector.h); the counter and what a record
holds are those of core/request_logger.cc.
"""

import dataclasses
import logging
import os
import pathlib
import queue
import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import Message
from tensorflow_serving.apis import classification_pb2, model_pb2, regression_pb2
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from common.errors import InputError, one_line
from serving.server import grpc_answers
from serving.server.grpc_tensors import to_proto
from serving.server.metrics import Metrics
from serving.server.served import ServedVersion

log = logging.getLogger(__name__)

# A file is closed, and can be read, once it has so many bytes or is so old.
FILE_BYTES = 64 << 20
FILE_SECONDS = 60.0
# What waits to be written takes no more memory than this; beyond it requests are answered, and not logged.
WAITING_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class _Sampled:
    """A request that was picked: its record is made by the writing thread."""

    spec: model_pb2.ModelSpec
    make: Callable[[], PredictionLog]
    size: int
    time: int


class RequestLog:
    """A random sample of the answered requests, in TFRecord files below FOLDER/MODEL; made and written by one thread.

    A file that is being written ends in `.part`, and loses that ending once it is complete.

    Args:
        folder: Where to write; made where it is not there.
        sampling_rate: The share of the requests to write, above 0 and at most 1.
        tags: The tags of the served graphs, for the records.
        metrics: Counts what is written and what is not.
        file_bytes: The size at which a file is closed.
        file_seconds: The age at which a file is closed.

    Raises:
        InputError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        sampling_rate: float,
        tags: Sequence[str],
        metrics: Metrics,
        file_bytes: int = FILE_BYTES,
        file_seconds: float = FILE_SECONDS,
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f".{os.getpid()}").touch()
            (folder / f".{os.getpid()}").unlink()
        except OSError as error:
            reason = f"{error.strerror}; choose another --request_log"
            raise InputError(f"{folder}: requests cannot be logged there: {reason}") from error
        self._folder = folder
        self._rate = sampling_rate
        self._tags = list(tags)
        self._metrics = metrics
        self._file_bytes, self._file_seconds = file_bytes, file_seconds
        self._waiting: queue.SimpleQueue[_Sampled | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._thread = threading.Thread(target=self._write_all, name="request-log", daemon=True)
        self._thread.start()

    def picks(self) -> bool:
        """Returns whether the next request is to be logged, at random."""
        return random.random() < self._rate

    def add(self, version: ServedVersion, signature: str, size: int, make: Callable[[], PredictionLog]) -> None:
        """Hands a record to the writing thread; counts it as lost where too much waits already.

        Args:
            version: The version that answered.
            signature: The signature that was asked.
            size: About how many bytes the request and its answer take until they are written.
            make: Makes the record, without its metadata.
        """
        spec = model_pb2.ModelSpec(name=version.name, signature_name=signature)
        spec.version.value = version.number
        with self._lock:
            if self._waiting_bytes + size > WAITING_BYTES:
                self._metrics.record_logged(version.name, "RESOURCE_EXHAUSTED")
                return
            self._waiting_bytes += size
        self._waiting.put(_Sampled(spec, make, size, int(time.time())))

    def close(self) -> None:
        """Writes what waits and closes the files."""
        self._waiting.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while True:
            try:
                sampled = self._waiting.get(timeout=self._file_seconds / 4)
            except queue.Empty:
                self._close_files(lambda file: file.age() >= self._file_seconds)
                continue
            if sampled is None:
                self._close_files(lambda file: True)
                return
            self._metrics.record_logged(sampled.spec.name, self._write(sampled))
            with self._lock:
                self._waiting_bytes -= sampled.size
            self._close_files(lambda file: file.size >= self._file_bytes or file.age() >= self._file_seconds)

    def _write(self, sampled: _Sampled) -> str:
        """Writes a record; returns the name of its status code."""
        try:
            record = sampled.make()
            metadata = record.log_metadata
            metadata.model_spec.CopyFrom(sampled.spec)
            metadata.sampling_config.sampling_rate = self._rate
            metadata.saved_model_tags.extend(self._tags)
            metadata.timestamp_secs = sampled.time
            self._file(sampled.spec.name).write(record.SerializeToString())
        except (OSError, tf.errors.OpError) as error:
            log.error("A request could not be logged: %s", one_line(error))
            self._files.pop(sampled.spec.name, None)
            return "INTERNAL"
        return "OK"

    def _file(self, model: str) -> "_File":
        if model not in self._files:
            folder = self._folder / urllib.parse.quote(model, safe="")
            folder.mkdir(parents=True, exist_ok=True)
            self._files[model] = _File(folder)
        return self._files[model]

    def _close_files(self, is_due: Callable[["_File"], bool]) -> None:
        for model, file in list(self._files.items()):
            if is_due(file):
                del self._files[model]
                try:
                    file.close()
                except (OSError, tf.errors.OpError) as error:
                    log.error("A file of logged requests could not be closed: %s", one_line(error))


class _File:
    """A TFRecord file that is being written.

    Attributes:
        size: The bytes of its records.
    """

    def __init__(self, folder: pathlib.Path):
        stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{time.monotonic_ns()}"
        self._part = folder / f"{stamp}.tfrecord.part"
        self._writer = tf.io.TFRecordWriter(str(self._part))
        self._opened = time.monotonic()
        self.size = 0

    def age(self) -> float:
        """Returns the seconds since it was opened."""
        return time.monotonic() - self._opened

    def write(self, record: bytes) -> None:
        self._writer.write(record)
        self.size += len(record)

    def close(self) -> None:
        self._writer.close()
        self._part.rename(self._part.with_suffix(""))


# Records -----------------------------------------------------------------------------------------------------------


def predict_record(
    version: ServedVersion, signature: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> PredictionLog:
    """Returns the record of a Predict that came as JSON, as if it had come over gRPC."""
    record = PredictionLog()
    request = record.predict_log.request
    _set_request(request.model_spec, version, signature)
    for name, array in inputs.items():
        request.inputs[name].CopyFrom(to_proto(array))
    record.predict_log.response.CopyFrom(grpc_answers.predict_response(version, signature, outputs))
    return record


def classify_record(
    version: ServedVersion,
    signature: str,
    examples: Sequence[bytes],
    classes: np.ndarray | None,
    scores: np.ndarray | None,
) -> PredictionLog:
    """Returns the record of a Classify that came as JSON."""
    record = PredictionLog()
    _set_examples(record.classify_log.request, version, signature, examples)
    response = grpc_answers.classification_response(version, signature, classes, scores)
    record.classify_log.response.CopyFrom(response)
    return record


def regress_record(
    version: ServedVersion, signature: str, examples: Sequence[bytes], values: np.ndarray
) -> PredictionLog:
    """Returns the record of a Regress that came as JSON."""
    record = PredictionLog()
    _set_examples(record.regress_log.request, version, signature, examples)
    record.regress_log.response.CopyFrom(grpc_answers.regression_response(version, signature, values))
    return record


def message_record(kind: str, request: Message, response: Message) -> PredictionLog:
    """Returns the record of a gRPC request; `kind` is the field of PredictionLog, such as predict_log."""
    record = PredictionLog()
    getattr(record, kind).request.CopyFrom(request)
    getattr(record, kind).response.CopyFrom(response)
    return record


def _set_request(spec: model_pb2.ModelSpec, version: ServedVersion, signature: str) -> None:
    spec.name, spec.signature_name = version.name, signature


def _set_examples(
    request: classification_pb2.ClassificationRequest | regression_pb2.RegressionRequest,
    version: ServedVersion,
    signature: str,
    examples: Sequence[bytes],
) -> None:
    _set_request(request.model_spec, version, signature)
    for example in examples:
        request.input.example_list.examples.add().MergeFromString(example)
