"""Parsing a message piece by piece gives the same as protobuf's own parser."""

import itertools
import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, predict_pb2

from ctrpipe.serving.server import grpc_parsing
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.grpc_parsing import LONGEST_NAME, PIECE_BYTES, with_contents
from ctrpipe.serving.server.grpc_tensors import to_array
from tests.serving.longest_hold import longest_hold

LARGE = 5 * PIECE_BYTES


def parse(message_class, body):
    """The whole message."""
    return with_contents(*grpc_parsing.parse(message_class, body))


def text(chance, most):
    return chance.randbytes(chance.choice([0, 0, 1, 5, 100, 127, 128, 300, most]))


def tensors(chance):
    """A Predict request with every tensor field that can be large."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m" * chance.choice([1, LARGE])
    request.output_filter.extend(["y" * chance.choice([0, 3, 500]) for _ in range(chance.choice([0, 9000]))])
    for name in ("", "a", "b" * chance.choice([3, 400])):
        tensor = request.inputs[name]
        tensor.dtype = 7
        tensor.tensor_shape.dim.add(size=-1, name="rows")
        tensor.string_val.extend([text(chance, LARGE) for _ in range(chance.choice([0, 50, 4000]))][:400])
        tensor.string_val.extend([b""] * chance.choice([0, 2 * PIECE_BYTES]))
        tensor.tensor_content = text(chance, 2 * LARGE)
        count = chance.choice([0, 1, LARGE])
        tensor.float_val.extend([0.5] * count)
        tensor.double_val.extend([0.25] * chance.choice([0, LARGE // 2]))
        tensor.int64_val.extend([chance.choice([0, 1, 300, -1, 2**62]) for _ in range(count // 4)])
        tensor.int_val.extend([-5] * (count // 8))
        tensor.bool_val.extend([True] * count)
        tensor.variant_val.add(type_name="t").tensors.add(int_val=range(LARGE // 4))
    return request


def examples(chance):
    request = classification_pb2.ClassificationRequest()
    chosen = chance.choice(["example_list", "example_list_with_context"])
    sent = getattr(request.input, chosen)
    for _ in range(chance.choice([3, 3000])):
        sent.examples.add().features.feature["s"].bytes_list.value.append(text(chance, 200))
    large = sent.examples.add().features
    for number in range(chance.choice([0, 2000])):
        large.feature[f"f{number}"].int64_list.value.append(number)
    large.feature["l"].float_list.value.extend([1.5] * LARGE)
    return request


def tasks(chance):
    request = inference_pb2.MultiInferenceRequest()
    for number in range(chance.choice([2, 3000])):
        task = request.tasks.add(method_name=f"tensorflow/serving/{chance.choice(['classify', 'regress'])}")
        task.model_spec.version.value = number
    request.input.example_list.examples.extend([example_pb2.Example()] * (4 * PIECE_BYTES))
    return request


@pytest.mark.parametrize("make", [tensors, examples, tasks])
@pytest.mark.parametrize("seed", range(4))
def test_a_message_is_the_same(make, seed):
    message = make(random.Random(seed))
    body = message.SerializeToString()
    assert len(body) > 4 * PIECE_BYTES
    assert parse(type(message), body) == message


@pytest.mark.parametrize("make", [tensors, examples])
def test_what_is_damaged_is_refused_as_protobuf_refuses_it(make, monkeypatch):
    """Changed, added and missing bytes. The pieces are small: some damage is at the end of a piece."""
    monkeypatch.setattr(grpc_parsing, "PIECE_BYTES", 512)
    monkeypatch.setattr(grpc_parsing, "_WHOLE_BYTES", 512)
    chance = random.Random(5)
    small = make(random.Random(1)).SerializeToString()[:6000]
    refused, message_class = 0, type(make(random.Random(1)))
    for _ in range(150):
        body, at = bytearray(small), chance.randrange(len(small))
        kind = chance.randrange(3)
        body[at : at + kind] = chance.randbytes(chance.randrange(3))
        body = bytes(body)
        if chance.random() < 0.5:
            body = body[: chance.randrange(600, len(body))]
        try:
            expected = message_class.FromString(body)
        except DecodeError:
            refused += 1
            with pytest.raises(DecodeError):
                parse(message_class, body)
            continue
        try:
            found = parse(message_class, body)
        except DecodeError as error:
            assert "group" in str(error) or "key" in str(error)  # what no client sends
            continue
        assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
    assert refused > 20


def length(number, content):
    return grpc_parsing.varint(number << 3 | 2) + grpc_parsing.varint(len(content)) + content


def test_entries_of_a_map():
    """The last entry of a repeated key wins. A key after its value, or one that is not text, is refused."""
    first = tensor_pb2.TensorProto(dtype=7, string_val=[b"a" * 100] * 2000).SerializeToString()
    second = tensor_pb2.TensorProto(int_val=[7] * LARGE).SerializeToString()
    key = length(1, b"x")
    entries = b"".join(length(2, key + length(2, value)) for value in (first, second))
    found = parse(predict_pb2.PredictRequest, entries)
    assert found == predict_pb2.PredictRequest.FromString(entries) and not found.inputs["x"].string_val
    assert parse(predict_pb2.PredictRequest, length(2, length(2, second))).inputs[""].int_val[-1] == 7
    for wrong in (length(2, second) + key, length(1, b"\xff") + length(2, second), key + length(2, second) + key):
        with pytest.raises(DecodeError):
            parse(predict_pb2.PredictRequest, length(2, wrong))


def test_fields_that_a_message_does_not_have_are_left_out():
    body = length(500, bytes(LARGE)) + length(2, length(1, b"x") + length(2, b"\x08\x01" + length(99, bytes(LARGE))))
    found = parse(predict_pb2.PredictRequest, body)
    assert list(found.inputs) == ["x"] and found.inputs["x"].dtype == 1 and found.ByteSize() < 20
    for number in (0, 1 << 29):
        with pytest.raises(DecodeError):
            parse(predict_pb2.PredictRequest, length(number, bytes(LARGE)))


def padded(number, wire_type, size):
    """A tag, with more bytes than it needs."""
    tag = grpc_parsing.varint(number << 3 | wire_type)
    return tag[:-1] + bytes([tag[-1] | 0x80]) + b"\x80" * (size - len(tag) - 1) + b"\x00"


def test_tags_of_several_bytes_are_read_as_fast_as_those_of_one():
    """Fields above 15, and tags with more bytes than they need: 20 million of them in 64 MiB took a minute."""
    tensor = tensor_pb2.TensorProto(uint32_val=[1, 2, 3], uint64_val=[2**63])
    whole = b"".join(padded(3, 2, size) + b"\x01y" for size in (2, 3, 5)) + b"\xa2\x06\x00\xa5\x06abcd\xa1\x06abcdefgh"
    whole += length(2, length(1, b"x") + length(2, tensor.SerializeToString() + padded(9, 0, 2) + b"\x85\x00"))
    body = whole * PIECE_BYTES
    steps = len(list(grpc_parsing._pieces(body, 0, len(body), itertools.repeat(0))))
    assert steps < 1.1 * len(body) / PIECE_BYTES
    found, expected = parse(predict_pb2.PredictRequest, body), predict_pb2.PredictRequest.FromString(body)
    assert found == expected and len(found.output_filter) == 3 * PIECE_BYTES


@pytest.mark.parametrize("field", [b"\x22\x80\x00", b"\x22\x82\x80\x00ab", b"\xa2\x06\x80\x00"])
def test_few_lengths_may_have_more_bytes_than_they_need(field, monkeypatch):
    monkeypatch.setattr(grpc_parsing, "_MOST_PADDED", 1000)
    monkeypatch.setattr(grpc_parsing, "_WHOLE_BYTES", 512)
    body = field * 1000
    assert parse(predict_pb2.PredictRequest, body) == predict_pb2.PredictRequest.FromString(body)
    with pytest.raises(ServingError, match="More than 1000 lengths are written with more bytes"):
        parse(predict_pb2.PredictRequest, length(1, field * 10_000) + field)
    with pytest.raises(ServingError, match="More than 1000 lengths are written with more bytes"):
        parse(predict_pb2.PredictRequest, length(1, field * 500 + length(9, bytes(LARGE))) + field * 501)


def test_the_large_content_of_an_input_is_beside_the_message():
    """The array is aligned, so TensorFlow uses it without a copy."""
    content = np.arange(LARGE, dtype=np.float32)
    tensor = tensor_pb2.TensorProto(dtype=1, tensor_content=content.tobytes())
    tensor.tensor_shape.dim.add(size=LARGE)
    small = tensor_pb2.TensorProto(dtype=1, tensor_content=b"1234")
    request = predict_pb2.PredictRequest(inputs={"large": tensor, "small": small})
    message, contents = grpc_parsing.parse(predict_pb2.PredictRequest, request.SerializeToString())
    assert list(contents) == ["large"] and not message.inputs["large"].tensor_content
    found = to_array(message.inputs["large"], content=contents["large"])
    np.testing.assert_array_equal(found, content)
    assert found.ctypes.data % 64 == 0
    assert message.inputs["small"] == small
    assert with_contents(message, contents) == request
    halves = tensor_pb2.TensorProto(dtype=19, tensor_shape=tensor.tensor_shape)  # DT_HALF: read by TensorFlow
    half = content.astype(np.float16)
    np.testing.assert_array_equal(to_array(halves, content=np.frombuffer(half.tobytes(), np.uint8)), half)
    again = length(2, length(1, b"large") + length(2, tensor_pb2.TensorProto(int_val=[1] * LARGE).SerializeToString()))
    _, contents = grpc_parsing.parse(predict_pb2.PredictRequest, request.SerializeToString() + again)
    assert contents == {}  # the last one of a key stays


def test_messages_within_messages_end():
    body = bytes(LARGE)
    for _ in range(60):
        body = length(15, length(3, body))  # variant_val and its tensors
    with pytest.raises(DecodeError, match="too deep"):
        parse(tensor_pb2.TensorProto, body)


@pytest.mark.slow
def test_others_run_while_millions_of_strings_are_parsed():
    request = predict_pb2.PredictRequest()
    request.inputs["x"].string_val.extend([b""] * 3_000_000)
    body = request.SerializeToString()
    whole = min(longest_hold(lambda: predict_pb2.PredictRequest.FromString(body)) for _ in range(3))
    pieces = min(longest_hold(lambda: grpc_parsing.parse(predict_pb2.PredictRequest, body)) for _ in range(3))
    assert pieces < whole / 2


@pytest.mark.parametrize("place", ["model", "signature", "label", "input", "filter", "size", "feature"])
def test_a_name_of_megabytes_is_refused_before_anybody_looks_at_it(place):
    name = "n" * (LONGEST_NAME + 1)
    request = predict_pb2.PredictRequest()
    if place == "model":
        request.model_spec.name = name
    elif place == "signature":
        request.model_spec.signature_name = name
    elif place == "label":
        request.model_spec.version_label = name
    elif place == "input":
        request.inputs[name].dtype = 7
    elif place == "filter":
        request.output_filter.append(name)
    elif place == "size":
        request.inputs["x"].tensor_shape.dim.add(name=name)
    else:
        request = classification_pb2.ClassificationRequest()
        request.input.example_list.examples.add().features.feature[name].int64_list.value.append(1)
    body = request.SerializeToString()
    with pytest.raises(ServingError, match=f"A name of {LONGEST_NAME + 1} bytes is above {LONGEST_NAME}") as refused:
        grpc_parsing.parse(type(request), body)
    assert refused.value.code == "INVALID_ARGUMENT"


def test_a_value_may_be_longer_than_a_name():
    request = predict_pb2.PredictRequest()
    request.inputs["x"].string_val.append(b"n" * (LONGEST_NAME + 1))
    request.model_spec.name = "n" * LONGEST_NAME
    assert parse(predict_pb2.PredictRequest, request.SerializeToString()) == request
