"""Classify and regress: runs serialized tf.Examples through a signature, for REST and gRPC.

See contract C4-C7.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from ctrpipe.serving.server.errors import bad_request
from ctrpipe.serving.server.served import ServedVersion

DEFAULT_SIGNATURE = "serving_default"
INPUTS = "inputs"
CLASSES = "classes"
SCORES = "scores"
OUTPUTS = "outputs"
MOST_CONTEXT_BYTES = 16 << 20  # total over all examples of a request
_COPIES = 2  # of an example: Python's bytes and TensorFlow's string
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


def with_context(context: bytes, examples: Sequence[bytes]) -> list[bytes]:
    """Prepends the serialized context to each example. When parsed, the two are merged (C4).

    Raises:
        ServingError: the repeated context takes more than MOST_CONTEXT_BYTES.
    """
    if len(context) * len(examples) > MOST_CONTEXT_BYTES:
        raise bad_request(
            f"A context of {len(context)} bytes in each of {len(examples)} examples takes more than "
            f"{MOST_CONTEXT_BYTES} bytes; send fewer examples at a time"
        )
    return [context + example for example in examples]


def classify(
    version: ServedVersion,
    examples: Sequence[bytes],
    signature: str = "",
    timeout_seconds: float | None = None,
    check_method: bool = False,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns labels [N, C] of bytes and scores [N, C] of float32; None for a missing output.

    `check_method` is --enable_signature_method_name_check (C6), here and in `regress`.

    Raises:
        ServingError: the signature is not a classifier's, or its outputs have another shape (C5).
    """
    names = check_classification(_definition(version, signature), check_method)
    return read_classes(_run(version, signature, examples, names, timeout_seconds), len(examples))


def read_classes(outputs: Mapping[str, np.ndarray], rows: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns the result of `classify` from the signature's outputs.

    Raises ServingError if an output has another shape or dtype (C5).
    """
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    if classes is not None:
        _check_matrix(CLASSES, classes, tf.string, rows)
    if scores is not None:
        _check_matrix(SCORES, scores, tf.float32, rows)
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise bad_request(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    return classes, scores


def regress(
    version: ServedVersion,
    examples: Sequence[bytes],
    signature: str = "",
    timeout_seconds: float | None = None,
    check_method: bool = False,
) -> np.ndarray:
    """Returns one float32 per example, [N].

    Raises:
        ServingError: the signature is not a regression's, or its output has another shape (C5).
    """
    check_regression(_definition(version, signature), check_method)
    return read_values(_run(version, signature, examples, [OUTPUTS], timeout_seconds), len(examples))


def read_values(outputs: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """Returns the result of `regress` from the signature's outputs.

    Raises ServingError if the output has another shape or dtype (C5).
    """
    values = outputs[OUTPUTS]
    if values.ndim != 1 and not (values.ndim == 2 and values.shape[1] == 1):
        raise bad_request(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(values)}"
        )
    if len(values) != rows:
        raise bad_request(f"Input batch size did not match output batch size: {rows} vs. {len(values)}")
    if values.dtype != np.float32:
        raise bad_request(f"Expected output Tensor of DT_FLOAT.  Got: {_dtype(values)}")
    return values.reshape(-1)


def check_classification(definition: meta_graph_pb2.SignatureDef, check_method: bool = False) -> list[str]:
    """Returns the outputs to request: `classes`, `scores` or both. Raises ServingError (C5, C6)."""
    _check_method(definition, "classification", CLASSIFY, check_method)
    if len(definition.inputs) != 1:
        raise bad_request("Expected one input Tensor.")
    if len(definition.outputs) not in (1, 2):
        raise bad_request(f"Expected one or two output Tensors, found {len(definition.outputs)}")
    if INPUTS not in definition.inputs:
        raise bad_request(f"No classification inputs found in SignatureDef: {definition}")
    names = [name for name in (CLASSES, SCORES) if name in definition.outputs]
    if not names:
        raise bad_request(
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or "{SCORES}". '
            f"Signature was: {definition}"
        )
    return names


def check_regression(definition: meta_graph_pb2.SignatureDef, check_method: bool = False) -> None:
    """Raises ServingError if the signature is not a regression's (C5, C6)."""
    _check_method(definition, "regression", REGRESS, check_method)
    if len(definition.inputs) != 1:
        raise bad_request("Expected one input Tensor.")
    if len(definition.outputs) != 1:
        raise bad_request("Expected one output Tensor.")
    if INPUTS not in definition.inputs:
        raise bad_request(f"No regression inputs found in SignatureDef: {definition}")
    if OUTPUTS not in definition.outputs:
        raise bad_request(f"No regression outputs found in SignatureDef: {definition}")


def _check_method(definition: meta_graph_pb2.SignatureDef, kind: str, expected: str, is_on: bool) -> None:
    if is_on and definition.method_name != expected:
        raise bad_request(f"Expected {kind} signature method_name to be {expected}. Was: {definition.method_name}")


def _definition(version: ServedVersion, signature: str) -> meta_graph_pb2.SignatureDef:
    name = signature or DEFAULT_SIGNATURE
    if name not in version.signatures:
        raise bad_request(f"No signature was found with the name: {name}")
    return version.signatures[name]


def held_bytes(examples: Iterable[bytes]) -> int:
    """Returns the memory of serialized examples while they are answered. Each includes the context."""
    return _COPIES * sum(map(len, examples))


def as_batch(examples: Sequence[bytes]) -> np.ndarray:
    """Returns serialized examples as an array of objects, [N]. Raises ServingError if there are none."""
    if not examples:
        raise bad_request("Input is empty.")
    batch = np.empty(len(examples), object)
    batch[:] = examples
    return batch


def _run(
    version: ServedVersion,
    signature: str,
    examples: Sequence[bytes],
    outputs: list[str],
    timeout_seconds: float | None,
) -> dict[str, np.ndarray]:
    inputs = {INPUTS: as_batch(examples)}
    with version.holding(held_bytes(examples)):
        answer = version.run(signature or DEFAULT_SIGNATURE, inputs, outputs, timeout_seconds)
    return {name: np.asarray(value) for name, value in answer.items()}


def _check_matrix(name: str, values: np.ndarray, dtype: tf.DType, rows: int) -> None:
    if values.ndim != 2:
        raise bad_request(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(values)}")
    if tf.as_dtype(values.dtype) != dtype:
        expected = "DT_STRING" if dtype == tf.string else "DT_FLOAT"
        raise bad_request(f"Expected {name} Tensor of {expected}. Got: {_dtype(values)}")
    if len(values) != rows:
        raise bad_request(f"Expected {name} output batch size of {rows}. Got: {len(values)}")


def _shape(values: np.ndarray) -> str:
    return f"[{','.join(map(str, values.shape))}]"


def _dtype(values: np.ndarray) -> str:
    return str(types_pb2.DataType.Name(tf.as_dtype(values.dtype).as_datatype_enum))
