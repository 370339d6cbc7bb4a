"""The JSON of classify and regress: reads examples, writes results (contract C1-C3, C7)."""

from typing import Any

import numpy as np
from tensorflow.core.example import feature_pb2

from ctrpipe.serving.server.body_cost import CHECK_EVERY, Reading
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.examples import with_context
from ctrpipe.serving.server.json_response import decimals, in_object, of_rows
from ctrpipe.serving.server.json_values import json_string, json_type, members, shown
from ctrpipe.serving.server.tensors import decode_base64, flushed, is_base64

_KINDS = {"float_list": "float", "int64_list": "int64", "bytes_list": "bytes"}


def parse_examples(body: dict[str, Any], reading: Reading | None = None) -> list[bytes]:
    """Returns the request's serialized examples, each preceded by the request's context.

    Raises:
        ServingError: the examples are malformed (C2, C3), or take too much time or memory.
    """
    reading = reading or Reading()
    context = _example(body["context"], reading) if "context" in body else b""
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
        serialized.append(_example(example, reading))
    return with_context(context, serialized)


def _malformed(body: dict[str, Any], reason: str) -> ServingError:
    return bad_request(f"JSON Value: {shown(body)} {reason}")


def _example(value: object, reading: Reading) -> bytes:
    """Returns a serialized tf.Example, written field by field: Python's protobuf refuses names that are not UTF-8."""
    if not isinstance(value, dict):
        raise bad_request(f"Example must be JSON object but got JSON {json_type(value)}")
    reading.check_features(len(value))
    features: dict[str, bytes] = {}
    for index, (key, content) in enumerate(members(value)):
        if not index % CHECK_EVERY:
            reading.check_time()
        name = key.partition("\0")[0]  # as a C string, a name ends at a NUL
        # The last of repeated names counts (J13).
        features[name] = _feature(name, content if isinstance(content, list) else [content], reading)
    entries = b"".join(_field(1, _entry(name, feature)) for name, feature in features.items())
    return _field(1, entries) if entries else b""


def _entry(name: str, feature: bytes) -> bytes:
    """Returns an entry of Features. A feature without a value is written too: the graph's parser refuses an entry that
    lacks one.
    """
    return _field(1, name.encode("utf-8", "surrogateescape")) + _field(2, feature)


def _field(number: int, content: bytes) -> bytes:
    """Returns a field of protobuf, of a number below 16, that holds bytes: its number and kind, its length, its bytes.

    A message of the library for each name and each feature takes longer than the values.
    """
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return b"%c%b%c%b" % (number << 3 | 2, bytes(length), size, content)


def _feature(name: str, items: list[Any], reading: Reading) -> bytes:
    """Returns a serialized feature. Values of one type are read in bulk."""
    feature = _bulk(items)
    if feature is None:  # value by value, to find the error
        feature = feature_pb2.Feature()
        for index, item in enumerate(items):
            if not index % CHECK_EVERY:
                reading.check_time()
            _add(feature, name, item)
    return bytes(feature.SerializeToString())


def _bulk(items: list[Any]) -> feature_pb2.Feature | None:
    """Returns the feature of values of one type; None if they have to be read one by one."""
    kinds = set(map(type, items))
    try:
        if kinds == {int}:
            return feature_pb2.Feature(int64_list=feature_pb2.Int64List(value=items))
        if kinds == {float}:
            return feature_pb2.Feature(float_list=feature_pb2.FloatList(value=map(flushed, items)))
        if kinds == {str}:
            return feature_pb2.Feature(bytes_list=feature_pb2.BytesList(value=map(str.encode, items)))
    except ValueError:  # an integer above int64, a text that is not UTF-8
        pass
    return None


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
