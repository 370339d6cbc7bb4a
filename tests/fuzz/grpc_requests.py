"""Strategies for gRPC messages: random bytes, contradictory messages, and valid ones."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from tests.fuzz.servable import NAME

PREDICT = "/tensorflow.serving.PredictionService/Predict"
REGRESS = "/tensorflow.serving.PredictionService/Regress"
MULTI_INFERENCE = "/tensorflow.serving.PredictionService/MultiInference"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
METHODS: dict[str, type[Message]] = {
    PREDICT: predict_pb2.PredictRequest,
    "/tensorflow.serving.PredictionService/Classify": classification_pb2.ClassificationRequest,
    REGRESS: regression_pb2.RegressionRequest,
    MULTI_INFERENCE: inference_pb2.MultiInferenceRequest,
    "/tensorflow.serving.PredictionService/GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
    "/tensorflow.serving.ModelService/GetModelStatus": get_model_status_pb2.GetModelStatusRequest,
    RELOAD: model_management_pb2.ReloadConfigRequest,
}
_UNKNOWN = ("/tensorflow.serving.PredictionService/Absent", "/Absent/Predict", "/", "/tensorflow.serving.ModelService/")


@dataclasses.dataclass(frozen=True)
class Call:
    """A call and its expected answer.

    Attributes:
        method: Its path.
        message: Its bytes.
        manner: "wait", "expire" (with a deadline of a few microseconds) or "cancel".
        expected: The values of the only output.
    """

    method: str
    message: bytes
    manner: str = "wait"
    expected: tuple[float, ...] | None = None

    def parsed(self) -> Message | None:
        """Returns the message as the method's class parses it; None if it cannot."""
        if self.method not in METHODS:
            return None
        try:
            return METHODS[self.method].FromString(self.message)
        except DecodeError:
            return None

    def __repr__(self) -> str:
        parsed = self.parsed()
        text = f"{self.message[:1000]!r}" if parsed is None else str(parsed)[:2000]
        return f"Call {self.method} {self.manner}, {len(self.message)} bytes: {text} expected {self.expected}"


# Parts ------------------------------------------------------------------------------------------------------------

_dims = st.sampled_from([0, 1, 1, 2, 2, 3, 4, -1, -(2**63), 1 << 20, 1 << 26, 1 << 31, 1 << 40, (1 << 63) - 1])
_dtypes = st.sampled_from([*types_pb2.DataType.values(), types_pb2.DT_FLOAT, types_pb2.DT_STRING, 99, -1])
_floats = st.floats(width=32)


@st.composite
def tensors(draw: Any) -> tensor_pb2.TensorProto:
    """Draws a tensor of any type, shape and content, which fit together by chance."""
    proto = tensor_pb2.TensorProto(dtype=draw(st.one_of(_dtypes, st.sampled_from([1, 3, 7, 9, 10]))))
    proto.tensor_shape.unknown_rank = draw(st.integers(0, 9)) == 0
    for size in draw(st.lists(_dims, max_size=3)):
        proto.tensor_shape.dim.add(size=size)
    if draw(st.booleans()):
        proto.tensor_content = draw(st.one_of(st.binary(max_size=33), st.just(bytes(4096))))
    count = draw(st.integers(0, 4))
    if draw(st.booleans()):
        proto.float_val.extend(draw(st.lists(_floats, min_size=count, max_size=count)))
    if draw(st.booleans()):
        proto.string_val.extend(draw(st.lists(st.binary(max_size=5), min_size=count, max_size=count)))
    if draw(st.booleans()):
        proto.int64_val.extend(draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count)))
    if draw(st.booleans()):
        proto.int_val.extend(draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=count, max_size=count)))
    if draw(st.booleans()):
        proto.bool_val.extend([True] * count)
    if draw(st.integers(0, 9)) == 0:
        proto.version_number = draw(st.integers(-5, 5))
        proto.resource_handle_val.add(device="d", name="n")
        proto.variant_val.add(type_name="t", metadata=b"\xff")
    return proto


@st.composite
def specs(draw: Any, signatures: tuple[str, ...]) -> model_pb2.ModelSpec | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    spec = model_pb2.ModelSpec(name=draw(st.sampled_from([NAME] * 6 + ["", "absent", "../ctr"])))
    choice = draw(st.integers(0, 7))
    if choice == 0:
        spec.version.value = draw(st.sampled_from([0, 1, 2, -1, 2**63 - 1]))
    elif choice == 1:
        spec.version_label = draw(st.sampled_from(["stable", "", "é"]))
    spec.signature_name = draw(st.sampled_from(["", *signatures, "absent"]))
    return spec


@st.composite
def _examples(draw: Any) -> bytes:
    example = example_pb2.Example()
    for name in draw(st.lists(st.sampled_from(["x", "x", "y", ""]), max_size=3)):
        feature = example.features.feature[name]
        kind = draw(st.integers(0, 3))
        if kind == 0:
            feature.float_list.value.extend(draw(st.lists(_floats, max_size=3)))
        elif kind == 1:
            feature.int64_list.value.extend(draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)))
        elif kind == 2:
            feature.bytes_list.value.extend(draw(st.lists(st.binary(max_size=4), max_size=3)))
    return example.SerializeToString()


@st.composite
def _inputs(draw: Any) -> input_pb2.Input:
    sent = input_pb2.Input()
    examples = [example_pb2.Example.FromString(data) for data in draw(st.lists(_examples(), max_size=4))]
    kind = draw(st.integers(0, 3))
    if kind == 0:
        sent.example_list.examples.extend(examples)
    elif kind == 1:
        sent.example_list_with_context.examples.extend(examples)
        sent.example_list_with_context.context.ParseFromString(draw(_examples()))
    elif kind == 2:
        sent.example_list.SetInParent()
    return sent


_SIGNATURES = ("serving_default", "mixed", "regress", "classify")


def _with_spec(message: Any, spec: model_pb2.ModelSpec | None) -> Any:
    if spec is not None:
        message.model_spec.CopyFrom(spec)
    return message


@st.composite
def _predict(draw: Any) -> Message:
    request = _with_spec(predict_pb2.PredictRequest(), draw(specs(_SIGNATURES)))
    names = st.lists(st.sampled_from(["x", "x", "f", "i", "l", "s", "b", "m", "inputs", "absent", ""]), max_size=7)
    for name in draw(st.one_of(names, st.just(["x"]), st.just(["inputs"]), st.just(list("filsbm")))):
        request.inputs[name].CopyFrom(draw(tensors()))
    request.output_filter.extend(draw(st.lists(st.sampled_from(["y", "sum", "text", "absent", ""]), max_size=3)))
    return request


@st.composite
def _with_examples(draw: Any, kind: Callable[[], Any]) -> Message:
    request = _with_spec(kind(), draw(specs(("regress", "classify", "mixed"))))
    if draw(st.booleans()):
        request.input.CopyFrom(draw(_inputs()))
    return request


@st.composite
def _multi(draw: Any) -> Message:
    request = inference_pb2.MultiInferenceRequest()
    for _ in range(draw(st.integers(0, 3))):
        task = request.tasks.add(method_name=draw(st.sampled_from(["", "absent", *_METHOD_NAMES])))
        _with_spec(task, draw(specs(("regress", "classify"))))
    request.input.CopyFrom(draw(_inputs()))
    return request


_METHOD_NAMES = ("tensorflow/serving/regress", "tensorflow/serving/classify", "tensorflow/serving/predict")


@st.composite
def _metadata(draw: Any) -> Message:
    request = _with_spec(get_model_metadata_pb2.GetModelMetadataRequest(), draw(specs(())))
    request.metadata_field.extend(draw(st.lists(st.sampled_from(["signature_def", "absent", ""]), max_size=3)))
    return request


@st.composite
def _status(draw: Any) -> Message:
    return _with_spec(get_model_status_pb2.GetModelStatusRequest(), draw(specs(())))


@st.composite
def _refused_config(draw: Any) -> Message:
    """Draws a config that changes nothing: TF Serving refuses it, or it is empty."""
    request = model_management_pb2.ReloadConfigRequest()
    models = request.config.model_config_list
    kind = draw(st.integers(0, 4))
    if kind == 0:
        models.config.add(name=NAME, base_path="models/ctr", model_platform="tensorflow")
    elif kind == 1:
        models.config.add(name=NAME, base_path="/absent", model_platform="pytorch")
    elif kind == 2:
        for _ in range(2):
            models.config.add(name=NAME, base_path="/absent", model_platform="tensorflow")
    elif kind == 3:
        request.config.custom_model_config.type_url = draw(st.text(max_size=5))
    return request


_messages: dict[str, st.SearchStrategy] = {
    PREDICT: _predict(),
    "/tensorflow.serving.PredictionService/Classify": _with_examples(classification_pb2.ClassificationRequest),
    REGRESS: _with_examples(regression_pb2.RegressionRequest),
    MULTI_INFERENCE: _multi(),
    "/tensorflow.serving.PredictionService/GetModelMetadata": _metadata(),
    "/tensorflow.serving.ModelService/GetModelStatus": _status(),
    RELOAD: _refused_config(),
}
_manners = st.sampled_from(["wait"] * 12 + ["expire", "cancel"])


# Calls ------------------------------------------------------------------------------------------------------------


@st.composite
def right(draw: Any) -> Call:
    """Draws a prediction with a known answer."""
    rows = draw(st.lists(st.integers(-4096, 4096).map(lambda value: value / 4), min_size=1, max_size=100))
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name=NAME))
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(rows, tf.float32))
    return Call(PREDICT, request.SerializeToString(), expected=tuple(row / 2 + 2 for row in rows))


@st.composite
def calls(draw: Any) -> Call:
    """Draws a valid call, a wrong message, or bytes that are no message."""
    kind = draw(st.integers(0, 11))
    if kind < 2:
        return draw(right())
    method = draw(st.sampled_from([PREDICT] * 5 + list(METHODS)))
    data = draw(_messages[method]).SerializeToString()
    if kind == 2:
        method = draw(st.sampled_from(_UNKNOWN))
    elif kind == 3:
        data = draw(st.binary(max_size=200))
    elif kind == 4 and data:
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    call = Call(method, data, draw(_manners))
    if method == RELOAD and kind in (3, 4) and _would_change(call.parsed()):
        return Call(RELOAD, b"")
    return call


def _would_change(message: Any) -> bool:
    return message is not None and message.config.WhichOneof("config") == "model_config_list"
