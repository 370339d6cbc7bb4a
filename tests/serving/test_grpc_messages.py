import gzip
import itertools
import os
import zlib

import numpy as np
import pytest
from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow.core.framework import resource_handle_pb2, tensor_pb2, tensor_shape_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, input_pb2, predict_pb2, regression_pb2

from ctrpipe.serving.server import grpc_messages
from ctrpipe.serving.server.budget import Budget, OverBudget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.grpc_messages import (
    MOST_ELEMENTS,
    MOST_EXAMPLES,
    MOST_OTHERS,
    check_examples,
    check_message,
    plain_message,
)

MIB = 1 << 20
PLAIN = predict_pb2.PredictRequest(output_filter=["y"] * 3).SerializeToString()


def unpacked(body, limit=MIB, most=100 * MIB):
    """The message, and the memory held after it."""
    budget = Budget(most, resident=lambda: 0)
    with budget.hold() as held:
        message = plain_message(body, limit, held)
        return message, held.size


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress, lambda data: zlib.compress(data, 0)])
@pytest.mark.parametrize("message", [b"", PLAIN, PLAIN * 5000, b"\x0a\x03" + os.urandom(200_000)])
def test_a_message_is_what_was_packed(pack, message):
    assert unpacked(pack(message))[0] == message


def test_a_message_that_looks_packed_and_is_not_is_refused_and_no_other():
    for start in range(256):
        body = bytes([start]) + b"\x01rest"
        if start == 0x78:  # zlib's header
            with pytest.raises(ServingError, match="is compressed and"):
                unpacked(body)
        else:
            assert unpacked(body)[0] == body
    packed = gzip.compress(PLAIN)
    for cut in range(len(packed) - 4, 4, -1):  # gzip's last bytes are taken for its size
        with pytest.raises(ServingError):
            unpacked(packed[:cut])
    with pytest.raises(ServingError, match="its end is missing"):
        unpacked(zlib.compress(PLAIN)[:-4])


def test_what_is_held_is_what_was_unpacked():
    message, held = unpacked(gzip.compress(b"a" * 700_000))
    assert held == len(message) == 700_000


def test_a_large_message_is_refused_without_being_unpacked_in_full():
    packed = gzip.compress(bytes(8 * MIB))
    with pytest.raises(ServingError, match=r"limit of 1048576 bytes \(--max_request_bytes\)") as refused:
        unpacked(packed)
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    with pytest.raises(OverBudget):
        unpacked(packed, limit=100 * MIB, most=2 * MIB)
    deflated = zlib.compress(bytes(8 * MIB))
    with pytest.raises(ServingError, match="limit of 1048576 bytes"):
        unpacked(deflated)
    lying = packed[:-4] + (1000).to_bytes(4, "little")  # gzip's word for the size
    with pytest.raises(ServingError, match="its end is missing"):
        unpacked(lying)
    assert unpacked(gzip.compress(bytes(MIB)))[0] == bytes(MIB)  # the limit itself
    assert unpacked(zlib.compress(bytes(MIB)))[0] == bytes(MIB)


def test_the_strings_of_a_message_are_counted_before_it_is_parsed():
    request = predict_pb2.PredictRequest()
    request.inputs["x"].string_val.extend([b""] * 1000)
    body = request.SerializeToString()
    check_message(body)  # small enough not to be counted
    request.inputs["x"].string_val.extend([b""] * (MOST_ELEMENTS - 1010))
    cost = check_message(request.SerializeToString())
    assert 184 * (MOST_ELEMENTS - 10) <= cost <= 300 * MOST_ELEMENTS
    request.inputs["x"].string_val.extend([b""] * 20)
    with pytest.raises(ServingError, match="send fewer rows at a time") as refused:
        check_message(request.SerializeToString())
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "element",
    [b"\x0a\x00", b"\x12\x00", b"\x42\x00", b"\x8a\x00\x00", b"\x92\x80\x00\x00", b"\xc2\x80\x80\x80\x00\x01a"],
)
def test_elements_without_content_are_counted_wherever_they_are(element):
    with pytest.raises(ServingError, match="send fewer rows"):
        check_message(element * (MOST_ELEMENTS + 1))


@pytest.mark.parametrize("element", [b"\x1a\x00", b"\x32\x00", b"\x72\x00", b"\x7a\x00", b"\x9a\x00\x00"])
def test_filters_and_values_of_no_signature_are_counted_before_they_are_parsed(element):
    """30 million filters, 58 kB of gzip, took a gigabyte and kept the interpreter for seconds."""
    check_message(element * MOST_OTHERS)
    with pytest.raises(ServingError, match=f"may hold {MOST_OTHERS + 1} filters and values of no") as refused:
        check_message(element * (MOST_OTHERS + 1))
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.slow
def test_a_large_tensor_of_random_numbers_is_not_taken_for_strings():
    check_message(os.urandom(60 * MIB))


def test_the_bytes_that_are_counted_are_the_tags_of_what_may_be_empty():
    """An empty message of each repeated kind takes one counted byte and a zero."""
    found = [
        tensor_pb2.TensorProto(string_val=[b""]),
        tensor_shape_pb2.TensorShapeProto(dim=[{}]),
        input_pb2.ExampleList(examples=[{}]),
        feature_pb2.BytesList(value=[b""]),
        inference_pb2.MultiInferenceRequest(tasks=[{}]),
    ]
    assert {message.SerializeToString() for message in found} == {b"\x42\x00", b"\x12\x00", b"\x0a\x00"}
    others = [
        tensor_pb2.TensorProto(resource_handle_val=[{}]),
        tensor_pb2.TensorProto(variant_val=[{}]),
        predict_pb2.PredictRequest(output_filter=[""]),
        resource_handle_pb2.ResourceHandleProto(dtypes_and_shapes=[{}]),
    ]
    for message in others:
        body = message.SerializeToString() * 10_000
        assert check_message(body) == 20_000 * 24 + 10_000 * 200


@pytest.mark.parametrize("kind", ["example_list", "example_list_with_context"])
def test_examples_are_counted_before_they_are_read(kind):
    """Each class with its score is an object in the answer."""
    for request in (classification_pb2.ClassificationRequest(), regression_pb2.RegressionRequest()):
        examples = getattr(request.input, kind).examples
        examples.extend([example_pb2.Example()] * 1000)
        assert check_examples(request) == 700_000
        examples.extend([example_pb2.Example()] * (MOST_EXAMPLES - 999))
        with pytest.raises(ServingError, match=f"has {MOST_EXAMPLES + 1} examples, above {MOST_EXAMPLES}"):
            check_examples(request)
    assert check_examples(predict_pb2.PredictRequest()) == check_examples(inference_pb2.MultiInferenceRequest()) == 0


@pytest.mark.parametrize("piece", [1, 2, 7, 1 << 20])
def test_tags_are_counted_one_by_one_and_with_bytes_that_they_need_not(monkeypatch, piece):
    """A loop over all bytes counts as many, however the message is cut."""
    monkeypatch.setattr(grpc_messages, "_PIECE_BYTES", piece)
    kinds = grpc_messages._TAGS, grpc_messages._OTHER_TAGS
    likely = [*kinds[0], *kinds[1], *(tag | 0x80 for tags in kinds for tag in tags), 0, 0x80, 1]
    for seed in range(5):
        random = np.random.default_rng(seed)
        body = bytes(random.choice(likely, 300 + seed).tolist())
        for tags, found in zip(kinds, grpc_messages._count_tags(body), strict=True):
            short = sum(byte in tags for byte in body)
            long = sum(
                bool(one & 0x80) and one & 0x7F in tags and two & 0x7F == 0 for one, two in itertools.pairwise(body)
            )
            assert found == short + long and short and long
