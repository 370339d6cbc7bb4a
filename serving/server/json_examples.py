"""The JSON of classify and regress: examples in, results out (contract C1-C3, C7)."""

from typing import Any

import numpy as np
from tensorflow.core.example import example_pb2, feature_pb2

from serving.server.errors import ServingError, bad_request
from serving.server.examples import with_context
from serving.server.json_body import shown
from serving.server.json_response import decimals, json_string, pretty
from serving.server.tensors import decode_base64, json_type

_KINDS = {"float_list": "float", "int64_list": "int64", "bytes_list": "bytes"}


def parse_examples(body: dict[str, Any]) -> list[bytes]:
    """Returns the request's examples, serialized, each with the request's context before it.

    Raises:
        ServingError: C2, C3.
    """
    context = _example(body["context"]) if "context" in body else b""
    if "examples" not in body:
        raise _malformed(body, "When method is classify, key 'examples' is expected and was not found")
    examples = body["examples"]
    if not isinstance(examples, list):
        raise _malformed(body, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise _malformed(body, "'examples' value is an empty array")
    return with_context(context, [_example(example) for example in examples])


def _malformed(body: dict[str, Any], reason: str) -> ServingError:
    return bad_request(f"JSON Value: {shown(body)} {reason}")


def _example(value: Any) -> bytes:
    if not isinstance(value, dict):
        raise bad_request(f"Example must be JSON object but got JSON {json_type(value)}")
    example = example_pb2.Example()
    for name, content in value.items():
        feature = example.features.feature[_text(name)]
        for item in content if isinstance(content, list) else [content]:
            _add(feature, name, item)
    return bytes(example.SerializeToString())


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise bad_request("The name of a feature is not UTF-8") from error
    return name


def _add(feature: feature_pb2.Feature, name: str, item: Any) -> None:
    """Appends to the list that the value's JSON type asks for; all values of a feature need the same (C3)."""
    kind, value = _value(name, item)
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise bad_request(f"Unexpected element type in feature: {name} expecting type: {_KINDS[present]}")
    getattr(feature, kind).value.append(value)


def _value(name: str, item: Any) -> tuple[str, Any]:
    if isinstance(item, str):
        return "bytes_list", item.encode("utf-8", "surrogateescape")
    if isinstance(item, dict) and list(item) == ["b64"] and isinstance(item["b64"], str):
        return "bytes_list", decode_base64(item["b64"])
    if isinstance(item, float):
        return "float_list", item
    if not isinstance(item, int):
        raise bad_request(f"Feature: {name} has element with unexpected JSON type: {json_type(item)}")
    if item >= 2**63:
        raise bad_request(f"Feature: {name} has uint64 element. Only int64 is supported.")
    return "int64_list", int(item)


def format_classify(classes: np.ndarray | None, scores: np.ndarray | None) -> bytes:
    """Returns a list of [label, score] per example; an absent label is "", an absent score 0.0 (C7)."""
    shape = (classes if classes is not None else scores).shape  # type: ignore[union-attr]
    labels = [b'""'] * (shape[0] * shape[1]) if classes is None else [json_string(text) for text in classes.reshape(-1)]
    texts = decimals(np.zeros(shape, np.float32) if scores is None else scores)
    pairs = [b"[" + label + b"," + score + b"]" for label, score in zip(labels, texts, strict=True)]
    rows = [b"[" + b",".join(pairs[at * shape[1] : (at + 1) * shape[1]]) + b"]" for at in range(shape[0])]
    return pretty("results", b"[" + b",".join(rows) + b"]")


def format_regress(values: np.ndarray) -> bytes:
    """Returns one number per example (C7)."""
    return pretty("results", b"[" + b",".join(decimals(values)) + b"]")
