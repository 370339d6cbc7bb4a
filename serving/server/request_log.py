"""Writes a sample of the answered requests to files, for measuring drift and retraining models.

The records are TF Serving's PredictionLogs (apis/prediction_log.proto) with LogMetadata. TF Serving has this log only
as an interface (core/request_logger.h, core/log_collector.h). The counter and the content of a record follow
core/request_logger.cc.
"""

import functools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import Message
from tensorflow_serving.apis import classification_pb2, logging_pb2, model_pb2, regression_pb2
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from ctrpipe.serving.server import grpc_answers
from ctrpipe.serving.server.grpc_tensors import fill_proto
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.sampling import FILE_BYTES, FILE_SECONDS, SampleFiles, SamplingThread
from ctrpipe.serving.server.served import ServedVersion


class RequestLog:
    """A random sample of the answered requests, in TFRecord files below FOLDER/MODEL.

    One thread makes and writes the records.

    Args:
        folder: Where to write; created if missing.
        sampling_rate: The share of the requests to write, above 0 and at most 1.
        tags: The tags of the served graphs, for the records.
        metrics: Counts the written and the lost records.
        file_bytes: The size at which a file is closed.
        file_seconds: The age at which a file is closed, in seconds.

    Raises:
        InputError: the folder is not writable.
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
        self._tags = list(tags)
        self._metrics = metrics
        self._files = SampleFiles(folder, ".tfrecord", "--request_log", _open, file_bytes, file_seconds)
        self._thread = SamplingThread("request-log", sampling_rate, self._files.close_due, file_seconds / 4)
        self.picks = self._thread.picks
        self.close = self._thread.close

    def add(self, version: ServedVersion, signature: str, size: int, make: Callable[[], PredictionLog]) -> None:
        """Passes a record to the writing thread. Counts it as lost if too much is waiting.

        Args:
            version: The version that answered.
            signature: The signature that answered.
            size: Approximate bytes of memory that the request and response take until they are written.
            make: Makes the record, without its metadata.
        """
        metadata = logging_pb2.LogMetadata(saved_model_tags=self._tags, timestamp_secs=int(time.time()))
        metadata.sampling_config.sampling_rate = self._thread.rate
        _set_request(metadata.model_spec, version, signature)
        metadata.model_spec.version.value = version.number
        if not self._thread.add(size, functools.partial(self._write, metadata, make)):
            self._metrics.record_logged(version.name, "RESOURCE_EXHAUSTED")

    def _write(self, metadata: logging_pb2.LogMetadata, make: Callable[[], PredictionLog]) -> None:
        status = "INTERNAL"
        try:
            record = make()
            record.log_metadata.CopyFrom(metadata)
            contents = record.SerializeToString()
            if self._files.write(metadata.model_spec.name, contents, len(contents)):
                status = "OK"
        finally:
            self._metrics.record_logged(metadata.model_spec.name, status)


def _open(path: pathlib.Path) -> tf.io.TFRecordWriter:
    return tf.io.TFRecordWriter(str(path))


# Records -----------------------------------------------------------------------------------------------------------


def predict_record(
    version: ServedVersion, signature: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> PredictionLog:
    """Returns the record of a Predict request over REST, as if it had come over gRPC."""
    record = PredictionLog()
    request = record.predict_log.request
    _set_request(request.model_spec, version, signature)
    for name, array in inputs.items():
        fill_proto(request.inputs[name], array)
    record.predict_log.response.CopyFrom(grpc_answers.predict_response(version, signature, outputs))
    return record


def classify_record(
    version: ServedVersion,
    signature: str,
    examples: Sequence[bytes],
    classes: np.ndarray | None,
    scores: np.ndarray | None,
) -> PredictionLog:
    """Returns the record of a Classify request over REST."""
    record = PredictionLog()
    _set_examples(record.classify_log.request, version, signature, examples)
    response = grpc_answers.classification_response(version, signature, classes, scores)
    record.classify_log.response.CopyFrom(response)
    return record


def regress_record(
    version: ServedVersion, signature: str, examples: Sequence[bytes], values: np.ndarray
) -> PredictionLog:
    """Returns the record of a Regress request over REST."""
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
