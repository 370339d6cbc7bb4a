"""Replays the requests recorded in a version's folder before the version is used (contract W1-W3)."""

import logging
import pathlib
from collections.abc import Iterator

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.server import grpc_answers
from ctrpipe.serving.server.errors import ServingError, bad_request, from_tensorflow
from ctrpipe.serving.server.served import ServedVersion

log = logging.getLogger(__name__)

_SHOWN_BYTES = 1000  # of a record; the message becomes the version's status, which every client may ask for
MAX_RECORDS = 1000


def replay_warmup(version: ServedVersion, path: pathlib.Path, iterations: int = 1) -> int:
    """Answers each recorded request `iterations` times.

    The model name and version in a record are ignored; `version` answers.

    Args:
        version: The version to warm up.
        path: The version's folder.
        iterations: How often to answer each request; once if below 1.

    Returns:
        The number of records; 0 if there is no file.

    Raises:
        ServingError: a record cannot be read or answered, or there are more than 1000 (W2).
    """
    file = asset_path(path, Asset.WARMUP)
    if not file.exists():
        return 0
    done = 0
    try:
        for request in read_records(file):
            for _ in range(max(iterations, 1)):
                _replay(version, request)
            done += 1
            if done > MAX_RECORDS:
                raise bad_request(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {file}")
    except tf.errors.DataLossError as error:
        message = f"{error.message}. Please verify your warmup data is in TFRecord format."
        raise ServingError("DATA_LOSS", message) from error
    except tf.errors.OpError as error:
        raise from_tensorflow(error) from error
    log.info("Finished reading warmup data at %s. Number of warmup records read: %d.", file, done)
    return done


def read_records(file: pathlib.Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    """Yields the recorded requests.

    Raises:
        ServingError: a record cannot be read.
        tf.errors.DataLossError: the file is not a TFRecord file.
    """
    for record in tf.compat.v1.io.tf_record_iterator(str(file)):
        yield _parse(record, file)


def _parse(record: bytes, file: pathlib.Path) -> prediction_log_pb2.PredictionLog:
    try:
        return prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise bad_request(f"Failed to parse warmup record: {record[:_SHOWN_BYTES]!r} from {file}") from error


def _replay(version: ServedVersion, log: prediction_log_pb2.PredictionLog) -> None:
    match log.WhichOneof("log_type"):
        case "predict_log":
            grpc_answers.predict(version, log.predict_log.request)
        case "classify_log":
            grpc_answers.classify(version, log.classify_log.request)
        case "regress_log":
            grpc_answers.regress(version, log.regress_log.request)
        case "multi_inference_log":
            grpc_answers.multi_inference(version, log.multi_inference_log.request)
        case None:
            return
        case _ as kind:
            number = log.DESCRIPTOR.fields_by_name[kind].number
            raise ServingError("UNIMPLEMENTED", f"Unsupported log_type for warmup: {number}")
