"""Answers PredictionService requests from a loaded version (contract G3-G7, G9).

The warm-up makes the same calls.
"""

import functools
import heapq
from collections.abc import Iterable, Mapping

import numpy as np
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from ctrpipe.serving.server import examples
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.examples import CLASSIFY, REGRESS
from ctrpipe.serving.server.grpc_parsing import Contents, varint
from ctrpipe.serving.server.grpc_tensors import Filling, fill_proto, to_array
from ctrpipe.serving.server.served import ServedVersion

_METHODS = ("tensorflow/serving/predict", CLASSIFY, REGRESS)
SIGNATURE_DEF = "signature_def"
_SHOWN_NAMES = 1000
_ROWS = 1000  # of an answer that are parsed at a time
_SCORE, _VALUE = b"\x15", b"\x0d"  # the tags of a class's score and of a regression's value


def predict(
    version: ServedVersion,
    request: predict_pb2.PredictRequest,
    timeout_seconds: float | None = None,
    as_content: bool = False,
    check_method: bool = False,
    contents: Contents | None = None,
) -> predict_pb2.PredictResponse:
    """Answers Predict. `contents` holds large tensor contents kept outside the request.

    Raises ServingError (G4-G6), also for errors of the session.
    """
    signature = request.model_spec.signature_name or examples.DEFAULT_SIGNATURE
    definition = version.signatures.get(signature)
    if definition is None:
        raise ServingError("FAILED_PRECONDITION", f'Serving signature key "{signature}" not found.')
    if check_method and definition.method_name not in _METHODS:
        raise ServingError(
            "INTERNAL",
            f"Expected prediction signature method_name to be one of {{{', '.join(_METHODS)}}}. "
            f"Was: {definition.method_name}",
        )
    inputs = _inputs(definition, request.inputs, contents or {})
    outputs = _outputs(definition, request.output_filter)
    return predict_response(version, signature, version.run(signature, inputs, outputs, timeout_seconds), as_content)


def predict_response(
    version: ServedVersion, signature: str, outputs: Mapping[str, np.ndarray], as_content: bool = False
) -> predict_pb2.PredictResponse:
    """Returns a response with these outputs, by alias."""
    response = predict_pb2.PredictResponse()
    _set_spec(response.model_spec, version, signature)
    for name, value in outputs.items():
        fill_proto(response.outputs[name], np.asarray(value), as_content)
    return response


def arrays(response: predict_pb2.PredictResponse) -> dict[str, np.ndarray]:
    """Returns the outputs of a response by alias."""
    return {name: to_array(proto) for name, proto in response.outputs.items()}


def _inputs(
    definition: meta_graph_pb2.SignatureDef, sent: Mapping[str, tensor_pb2.TensorProto], contents: Contents
) -> dict[str, np.ndarray]:
    if len(sent) > len(definition.inputs) or (len(sent) < len(definition.inputs) and not definition.defaults):
        raise bad_request(
            f"input size does not match signature: {len(sent)}!={len(definition.inputs)} "
            f"len({_braces(sent)}) != len({_braces(definition.inputs)}). "
            f"Sent extra: {_braces(name for name in sent if name not in definition.inputs)}. "
            f"Missing but required: {_braces(name for name in definition.inputs if name not in sent)}."
        )
    arrays, used, filling = {}, [], Filling()
    for alias, info in definition.inputs.items():
        if alias in sent:
            proto = sent[alias]
            used.append(alias)
        elif alias in definition.defaults:
            proto = definition.defaults[alias]
        else:
            raise bad_request(
                f"Signature input alias: {alias}(feed name: {info.name}) not found in request and no default value "
                f"provided. Inputs expected to be in the request {_braces(sent)}, or default input alias set: "
                f"{','.join(sorted(definition.defaults))}"
            )
        try:
            arrays[alias] = to_array(proto, filling, contents.get(alias) if alias in sent else None)
        except ValueError as error:
            raise bad_request(f"tensor parsing error: {alias}") from error
    if len(used) != len(sent):
        raise bad_request(
            f"Inputs contains invalid name. Used request inputs: {','.join(sorted(used))}, "
            f"request input: {','.join(sorted(sent))}"
        )
    return arrays


def _outputs(definition: meta_graph_pb2.SignatureDef, wanted: Iterable[str]) -> list[str] | None:
    outputs: list[str] = []
    for alias in wanted:
        if alias not in definition.outputs:
            raise bad_request(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{_braces(definition.outputs)}."
            )
        if alias in outputs:
            raise bad_request(f"duplicate output tensor alias: {alias}")
        outputs.append(alias)
    return outputs or None


def classify(
    version: ServedVersion,
    request: classification_pb2.ClassificationRequest,
    timeout_seconds: float | None = None,
    check_method: bool = False,
) -> classification_pb2.ClassificationResponse:
    """Answers Classify. Raises ServingError (C5), also for errors of the session."""
    signature = request.model_spec.signature_name or examples.DEFAULT_SIGNATURE
    classes, scores = examples.classify(version, serialized(request.input), signature, timeout_seconds, check_method)
    return classification_response(version, signature, classes, scores)


def classification_response(
    version: ServedVersion, signature: str, classes: np.ndarray | None, scores: np.ndarray | None
) -> classification_pb2.ClassificationResponse:
    """Returns a response with these labels and scores, of shape [N, C]."""
    response = classification_pb2.ClassificationResponse()
    _set_spec(response.model_spec, version, signature)
    _fill_classes(response.result, classes, scores)
    return response


def regress(
    version: ServedVersion,
    request: regression_pb2.RegressionRequest,
    timeout_seconds: float | None = None,
    check_method: bool = False,
) -> regression_pb2.RegressionResponse:
    """Answers Regress. Raises ServingError (C5), also for errors of the session."""
    signature = request.model_spec.signature_name or examples.DEFAULT_SIGNATURE
    values = examples.regress(version, serialized(request.input), signature, timeout_seconds, check_method)
    return regression_response(version, signature, values)


def regression_response(
    version: ServedVersion, signature: str, values: np.ndarray
) -> regression_pb2.RegressionResponse:
    """Returns a response with these values, of shape [N]."""
    response = regression_pb2.RegressionResponse()
    _set_spec(response.model_spec, version, signature)
    _fill_values(response.result, values)
    return response


def multi_inference(
    version: ServedVersion,
    request: inference_pb2.MultiInferenceRequest,
    timeout_seconds: float | None = None,
    check_method: bool = False,
) -> inference_pb2.MultiInferenceResponse:
    """Answers MultiInference: several signatures of one model on the same examples, in one run.

    Raises ServingError.
    """
    outputs = _task_outputs(version, request, check_method)
    batch = examples.as_batch(serialized(request.input))
    with version.holding(examples.held_bytes(batch)):
        answers = version.run_together(outputs, batch, timeout_seconds)
    response = inference_pb2.MultiInferenceResponse()
    for task in request.tasks:
        result = response.results.add()
        signature = task.model_spec.signature_name or examples.DEFAULT_SIGNATURE
        _set_spec(result.model_spec, version, signature)
        answer = {alias: np.asarray(value) for alias, value in answers[signature].items()}
        if task.method_name == CLASSIFY:
            _fill_classes(result.classification_result, *examples.read_classes(answer, len(batch)))
        else:
            _fill_values(result.regression_result, examples.read_values(answer, len(batch)))
    return response


def _task_outputs(
    version: ServedVersion, request: inference_pb2.MultiInferenceRequest, check_method: bool
) -> dict[str, list[str]]:
    """Returns the outputs that the tasks need, by signature. Raises ServingError if a task is invalid."""
    names, outputs = set(), {}
    for task in request.tasks:
        if not task.model_spec.name:
            raise bad_request("Found ModelSpec with an empty model name.")
        names.add(task.model_spec.name)
        if len(names) > 1:
            raise bad_request("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        signature = task.model_spec.signature_name or examples.DEFAULT_SIGNATURE
        if signature in outputs:
            raise bad_request(f"Duplicate evaluation of signature: {signature}")
        if signature not in version.signatures:
            raise bad_request(f"Requested signature not found in model graph: {signature}")
        definition = version.signatures[signature]
        if task.method_name == CLASSIFY:
            outputs[signature] = examples.check_classification(definition, check_method)
        elif task.method_name == REGRESS:
            examples.check_regression(definition, check_method)
            outputs[signature] = [examples.OUTPUTS]
        else:
            raise ServingError("UNIMPLEMENTED", f"Unsupported signature method_name: {task.method_name}")
    return outputs


def metadata(version: ServedVersion) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Answers GetModelMetadata with the version's signatures (G9). Call `check_metadata` first."""
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    _set_spec(response.model_spec, version, "")
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in version.signatures.items():
        signatures.signature_def[name].CopyFrom(definition)
    response.metadata[SIGNATURE_DEF].Pack(signatures)
    return response


def check_metadata(request: get_model_metadata_pb2.GetModelMetadataRequest) -> None:
    """Raises ServingError if the request names no metadata field, or a field other than the signatures (G9)."""
    if not request.metadata_field:
        raise bad_request("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != SIGNATURE_DEF:
            raise bad_request(f"Metadata field {field} is not supported")


def serialized(sent: input_pb2.Input) -> list[bytes]:
    """Returns the serialized examples of an Input, each preceded by the context if there is one (C4)."""
    if sent.WhichOneof("kind") == "example_list_with_context":
        context = sent.example_list_with_context.context.SerializeToString()
        own = [example.SerializeToString() for example in sent.example_list_with_context.examples]
        return examples.with_context(context, own)
    return [example.SerializeToString() for example in sent.example_list.examples]


def count(sent: input_pb2.Input) -> int:
    """Returns the number of examples of an Input."""
    kind = sent.WhichOneof("kind")
    return len(getattr(sent, kind).examples) if kind else 0


def _set_spec(spec: model_pb2.ModelSpec, version: ServedVersion, signature: str) -> None:
    spec.name = version.name
    spec.signature_name = signature
    spec.version.value = version.number


def _fill_classes(
    result: classification_pb2.ClassificationResult, classes: np.ndarray | None, scores: np.ndarray | None
) -> None:
    """Adds a row of classes for each row, written as bytes because a protobuf object takes 5 us per class."""
    shape: tuple[int, int] = (classes if classes is not None else scores).shape  # type: ignore[union-attr]
    rows, width = shape
    heads: dict[bytes, bytes] = {}
    for start in range(0, rows, _ROWS):
        end = min(start + _ROWS, rows)
        labels = [b""] * ((end - start) * width) if classes is None else classes[start:end].reshape(-1).tolist()
        values = np.zeros((end - start, width), np.float32) if scores is None else scores[start:end]
        for label in set(labels) - heads.keys():
            heads[label] = _before_score(label)
        cells = [heads[label] + value for label, value in zip(labels, _four_bytes(values), strict=True)]
        written = [b"".join(cells[row * width : (row + 1) * width]) for row in range(end - start)]
        result.MergeFromString(b"".join(map(_field_1, written)))


def _before_score(label: bytes) -> bytes:
    """Returns a serialized class up to the four bytes of its score.

    Raises ServingError if the label is not UTF-8: clients do not parse an answer with such a label.
    """
    try:
        label.decode()
    except UnicodeDecodeError as error:
        raise ServingError("INTERNAL", f"The label {label!r} is not UTF-8") from error
    text = (_field_1(label) if label else b"") + _SCORE
    return _field_1(text + bytes(4))[:-4]


def _four_bytes(values: np.ndarray) -> list[bytes]:
    """Returns each float32 as protobuf writes it."""
    written: list[bytes] = np.ascontiguousarray(values, "<f4").reshape(-1).view("V4").tolist()
    return written


def _field_1(content: bytes) -> bytes:
    return _before_content(len(content)) + content


@functools.lru_cache(1024)
def _before_content(size: int) -> bytes:
    return b"\n" + varint(size)


def _fill_values(result: regression_pb2.RegressionResult, values: np.ndarray) -> None:
    """Adds a regression for each value, written as bytes."""
    head = np.frombuffer(_field_1(_VALUE + bytes(4))[:-4], np.uint8)
    written = np.empty((len(values), len(head) + 4), np.uint8)
    written[:, : len(head)] = head
    written[:, len(head) :] = np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(-1, 4)
    for start in range(0, len(values), _ROWS):
        result.MergeFromString(written[start : start + _ROWS].tobytes())


def _braces(names: Iterable[str]) -> str:
    """Returns the names in braces; of very many names only the first, because a message is cut anyway (G10)."""
    return "{" + ",".join(heapq.nsmallest(_SHOWN_NAMES, names)) + "}"
