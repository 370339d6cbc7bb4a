"""The JSON of classify and regress: reads examples, writes results (contract C1-C3, C7)."""

from typing import Any

import numpy as np
from google.protobuf import any_pb2
from tensorflow.core.example import feature_pb2

from ctrpipe.serving.server.body_cost import CHECK_EVERY, Reading
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.examples import with_context
from ctrpipe.serving.server.json_response import decimals, in_object, of_rows
from ctrpipe.serving.server.json_values import json_string, json_type, members, shown
from ctrpipe.serving.server.tensors import decode_base64, flushed, is_base64

_EMPTY_FIELD_2 = b"\x12\x00"
_KINDS = {"float_list": "float", "int64_list": "int64", "bytes_list": "bytes"}


def parse_examples(body: dict[str, Any], reading: Reading | None = None) -> list[bytes]:
    """Returns the request's serialized examples, each preceded by the request's context.

    Raises:
        ServingError: the examples are malformed (C2, C3), or take too much time or memory.
    """
    reading = reading or Reading()
    context = _example(body["context"]) if "context" in body else b""
    if "examples" not in body:
        raise _malformed(body, "When method is classify, key 'examples' is expected and was not found")
    examples = body["examples"]
    if not isinstance(examples, list):
        raise _malformed(body, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise _malformed(body, "'examples' value is an empty array")
    serialized = []
    for index, example in enumerate(examples):
        if not index % CHECK_EVERY:
            reading.check_time()
        serialized.append(_example(example))
    return with_context(context, serialized)


def _malformed(body: dict[str, Any], reason: str) -> ServingError:
    return bad_request(f"JSON Value: {shown(body)} {reason}")


def _example(value: object) -> bytes:
    if not isinstance(value, dict):
        raise bad_request(f"Example must be JSON object but got JSON {json_type(value)}")
    features: dict[str, feature_pb2.Feature] = {}
    for key, content in members(value):
        name = key.partition("\0")[0]  # as a C string, a name ends at a NUL
        features[name] = feature_pb2.Feature()  # the last of repeated names counts (J13)
        for item in content if isinstance(content, list) else [content]:
            _add(features[name], name, item)
    return _serialized(features)


def _serialized(features: dict[str, feature_pb2.Feature]) -> bytes:
    """Returns a tf.Example, written field by field: Python's protobuf refuses names that are not UTF-8."""
    entries = []
    for name, feature in features.items():
        # Any.value is field 2, like the value of a map entry; a feature without a value is written too: the graph's
        # parser refuses an entry that lacks one.
        value = any_pb2.Any(value=feature.SerializeToString()).SerializeToString() or _EMPTY_FIELD_2
        entries.append(_field_1(name.encode("utf-8", "surrogateescape")) + value)
    return _field_1(b"".join(map(_field_1, entries))) if entries else b""


def _field_1(content: bytes) -> bytes:
    return bytes(feature_pb2.BytesList(value=[content]).SerializeToString())


def _add(feature: feature_pb2.Feature, name: str, item: Any) -> None:
    """Appends to the list for the value's JSON type. All values of a feature must have one type (C3)."""
    kind = _kind(item)
    if kind is None:
        raise bad_request(f"Feature: {name} has element with unexpected JSON type: {json_type(item)}")
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise bad_request(f"Unexpected element type in feature: {name} expecting type: {_KINDS[present]}")
    if kind == "int64_list" and item >= 2**63:
        raise bad_request(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
    if kind == "bytes_list":
        item = _bytes(item)
    elif kind == "float_list":
        item = flushed(item)
    getattr(feature, kind).value.append(item)


def _kind(item: object) -> str | None:
    if isinstance(item, str) or is_base64(item):
        return "bytes_list"
    if isinstance(item, float):
        return "float_list"
    return "int64_list" if isinstance(item, int) else None


def _bytes(item: Any) -> bytes:
    return item.encode("utf-8", "surrogateescape") if isinstance(item, str) else decode_base64(item["b64"])


def format_classify(classes: np.ndarray | None, scores: np.ndarray | None) -> bytes:
    """Returns the response: a list of [label, score] per example.

    A missing label is "", a missing score 0.0 (C7).
    """
    shape = (classes if classes is not None else scores).shape  # type: ignore[union-attr]
    if not shape[0]:
        raise bad_request("Cannot convert empty ClassificationResults to JSON")
    labels = [b'""'] * (shape[0] * shape[1]) if classes is None else list(map(json_string, classes.reshape(-1)))
    texts = decimals(np.zeros(shape, np.float32) if scores is None else scores)
    pairs = [b"[" + label + b", " + score + b"]" for label, score in zip(labels, texts, strict=True)]
    rows = [b"[" + b", ".join(pairs[at * shape[1] : (at + 1) * shape[1]]) + b"]" for at in range(shape[0])]
    return in_object("results", of_rows(rows))


def format_regress(values: np.ndarray) -> bytes:
    """Returns the response: one number per example (C7)."""
    if not values.size:
        raise bad_request("Cannot convert empty RegressionResults to JSON")
    return in_object("results", b"[" + b", ".join(decimals(values)) + b"]")
