"""Calls to a server's gRPC services, and the files that configure one."""

import shutil
import time

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    input_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.contract import models, servers

# TF Serving takes whole seconds here.
POLL = f"--file_system_poll_wait_seconds={0.1 if servers.IS_OURS else 1}"


class Rpc:
    """A connection to both services."""

    def __init__(self, address, credentials=None):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if credentials:
            self.channel = grpc.secure_channel(address, credentials, options)
        else:
            self.channel = grpc.insecure_channel(address, options)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def predict(self, inputs, timeout=30, **fields):
        """(outputs by name, model_spec of the response)."""
        answer = self.prediction.Predict(request(inputs, **fields), timeout=timeout)
        return {name: tf.make_ndarray(value) for name, value in answer.outputs.items()}, answer.model_spec

    def answering(self, name=models.NAME, **spec):
        """Returns the version that answers, or the code and message of the error."""
        try:
            return self.predict({"x": np.float32([1.0])}, name=name, **spec)[1].version.value
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def states(self, name=models.NAME):
        """Returns version -> state; empty for an unknown model."""
        wanted = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": name})
        try:
            rows = self.model.GetModelStatus(wanted, timeout=30).model_version_status
        except grpc.RpcError as error:
            assert error.code().name == "NOT_FOUND"
            return {}
        return {row.version: get_model_status_pb2.ModelVersionStatus.State.Name(row.state) for row in rows}


def request(inputs, name=models.NAME, signature="", version=None, label=None, outputs=()):
    found = predict_pb2.PredictRequest(output_filter=outputs)
    found.model_spec.name = name
    found.model_spec.signature_name = signature
    if version is not None:
        found.model_spec.version.value = version
    if label is not None:
        found.model_spec.version_label = label
    for key, value in inputs.items():
        found.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return found


def examples(*features, context=None):
    """An Input of examples given as {name: float}."""
    found = input_pb2.Input()
    if context is None:
        target = found.example_list.examples
    else:
        fill(found.example_list_with_context.context, context)
        target = found.example_list_with_context.examples
    for values in features:
        fill(target.add(), values)
    return found


def fill(example, values):
    for name, value in values.items():
        example.features.feature[name].float_list.value.append(value)


def refusal(call, *arguments, **options):
    """Returns the (code, message) of the error of a call."""
    try:
        answer = call(*arguments, **options)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    raise AssertionError(f"answered: {answer}")


def add_version(source, base, number):
    """Pushes a copy of a version, which appears complete."""
    base.mkdir(exist_ok=True)
    shutil.copytree(source, base / f".{number}")
    return (base / f".{number}").rename(base / str(number))


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def model_config(**entries):
    """Returns the text of a config file, given model -> (base path, further lines)."""
    texts = []
    for name, (base, *more) in entries.items():
        lines = [f'name: "{name}"', f'base_path: "{base}"', 'model_platform: "tensorflow"', *more]
        texts.append("  config {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n")
    return "model_config_list {\n" + "".join(texts) + "}\n"


def label(name, version):
    return f'version_labels {{ key: "{name}" value: {version} }}'
