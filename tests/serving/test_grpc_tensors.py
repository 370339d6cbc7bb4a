import time

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from ctrpipe.serving.server.grpc_messages import MOST_ELEMENTS
from ctrpipe.serving.server.grpc_tensors import fill_proto, to_array
from tests.serving.longest_hold import longest_hold

KINDS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64, bool]
WIDE = [np.float16, ml_dtypes.bfloat16, np.complex64, np.complex128]


def to_proto(values, as_content=False):
    proto = tensor_pb2.TensorProto()
    fill_proto(proto, values, as_content)
    return proto


@pytest.mark.parametrize("kind", KINDS + WIDE, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 500), (3, 20_001)])
@pytest.mark.parametrize("as_content", [True, False])
def test_both_directions_agree_with_tensorflow(kind, shape, as_content):
    values = np.random.default_rng(0).integers(0, 2 if kind is bool else 100, shape).astype(kind)
    proto = to_proto(values, as_content)
    np.testing.assert_array_equal(tf.make_ndarray(proto), values)
    assert tf.make_ndarray(proto).dtype == values.dtype
    if kind in KINDS and values.size:
        assert bool(proto.tensor_content) is as_content
    for sent in (proto, tf.make_tensor_proto(values, shape=shape)):
        found = to_array(sent)
        np.testing.assert_array_equal(found, values)
        assert (found.dtype, found.shape) == (values.dtype, shape)


def test_strings_are_bytes():
    values = np.array([[b"a", b""], ["é".encode(), b"\xff"]], object)
    assert to_array(to_proto(values)).tolist() == values.tolist()


@pytest.mark.parametrize("values", [[[b"a", b""], [b"x" * 300, b"\xff"]], [], b"alone"])
def test_strings_in_the_content_are_read_by_tensorflow(values):
    """Tensor::AsProtoTensorContent, port::EncodeStringList: all lengths, then all strings."""
    array = np.array(values, object)
    proto = to_proto(array, as_content=True)
    assert not proto.string_val and bool(proto.tensor_content) == bool(array.size)
    found = tf.io.parse_tensor(proto.SerializeToString(), tf.string).numpy()
    assert np.asarray(found, object).tolist() == values
    assert to_array(proto).tolist() == values


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_values_than_the_shape_says_repeat_the_last(count):
    proto = tf.make_tensor_proto(np.zeros(5, np.int32))
    proto.tensor_content = b""
    proto.int_val.extend(range(count))
    assert to_array(proto).tolist() == [*range(count), *[count - 1] * (5 - count)]


@pytest.mark.parametrize("sent", [[], [b"a"], [b"a", b"\0b\0"], [b"a", b"b", b"c", b"d"]])
def test_strings_repeat_the_last_as_tensorflow_has_it(sent):
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=sent)
    proto.tensor_shape.dim.add(size=3)
    expected = tf.io.parse_tensor(proto.SerializeToString(), tf.string).numpy()
    assert to_array(proto).tolist() == expected.tolist()


def test_a_string_that_is_repeated_is_in_memory_once():
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"first", b"last"])
    proto.tensor_shape.dim.add(size=200_000)
    assert len({id(value) for value in to_array(proto).tolist()}) == 2


@pytest.mark.parametrize(("kind", "itemsize"), [("DT_STRING", 64), ("DT_DOUBLE", 8), ("DT_BOOL", 1)])
def test_much_more_than_was_sent_is_refused(kind, itemsize):
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(kind))
    proto.tensor_shape.dim.add(size=(1 << 24) // itemsize)
    assert to_array(proto).size == (1 << 24) // itemsize
    proto.tensor_shape.dim[0].size += 1
    with pytest.raises(ValueError, match="values of"):
        to_array(proto)


@pytest.mark.parametrize(("size", "length"), [(262_143, 1 << 20), (1 << 14, 1024)])
def test_what_a_string_fills_counts_its_length(size, length):
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"x" * length])
    proto.tensor_shape.dim.add(size=size)
    with pytest.raises(ValueError, match=f"{size - 1} values of {64 + length} bytes"):
        to_array(proto)
    proto.tensor_shape.dim[0].size = (1 << 24) // (64 + length) + 1
    assert to_array(proto).size == (1 << 24) // (64 + length) + 1


@pytest.mark.parametrize("kind", ["DT_COMPLEX64", "DT_HALF", "DT_STRING"])
def test_more_strings_and_parts_than_their_content_can_hold_are_refused(kind):
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(kind), tensor_content=b"\1")
    proto.tensor_shape.dim.add(size=1 << 40)
    with pytest.raises(ValueError, match="values of"):
        to_array(proto)


def test_a_scalar_string_in_the_content_is_an_array_of_bytes():
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_content=b"\2ab")
    found = to_array(proto)
    assert (found.dtype, found.shape, found.item()) == (object, (), b"ab")


def test_every_answer_says_its_shape():
    for value in (np.float32(3), np.array(b"a", object), np.complex64(1)):
        proto = to_proto(np.asarray(value))
        assert proto.HasField("tensor_shape") and not proto.tensor_shape.dim


def test_complex_numbers_and_halves_are_in_fields_of_their_own():
    assert to_proto(np.array([1 + 2j, 3], np.complex64)).scomplex_val == [1, 2, 3, 0]
    assert to_proto(np.array([[1 - 0.5j]], np.complex128)).dcomplex_val == [1, -0.5]
    assert to_proto(np.array([1], np.float16)).half_val == [0x3C00]


def test_negative_numbers_in_an_unsigned_tensor_wrap_as_in_c():
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_UINT8, int_val=[-1])
    assert to_array(proto).tolist() == 255


@pytest.mark.parametrize("kind", [*types_pb2.DataType.values(), 9999])
@pytest.mark.parametrize("size", [1, 1 << 40])
def test_any_type_with_no_values_is_an_array_or_an_error(kind, size):
    proto = tensor_pb2.TensorProto(dtype=kind)
    proto.tensor_shape.dim.add(size=size)
    try:
        assert to_array(proto).shape == (1,)
    except ValueError:
        assert size > 1 or kind not in {types_pb2.DT_FLOAT, types_pb2.DT_STRING}


def test_the_sizes_of_too_many_dimensions_are_not_multiplied():
    """Their product has millions of digits: it took seconds, in which the interpreter did nothing else."""
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT)
    for _ in range(30_000):
        proto.tensor_shape.dim.add(size=1 << 62)
    began = time.process_time()
    with pytest.raises(ValueError, match="30000 dimensions"):
        to_array(proto)
    assert time.process_time() - began < 1


def test_the_strings_of_a_content_are_as_many_as_a_message_may_have():
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_content=bytes(MOST_ELEMENTS + 1))
    proto.tensor_shape.dim.add(size=MOST_ELEMENTS + 1)
    with pytest.raises(ValueError, match=f"{MOST_ELEMENTS + 1} strings"):
        to_array(proto)


def test_strings_of_several_pieces_become_a_tensor():
    values = np.array([b"%d" % number for number in range(40_001)] * 2, object).reshape(2, -1)
    assert np.array_equal(tf.make_ndarray(to_proto(values)), values)


@pytest.mark.slow
def test_others_run_while_millions_of_strings_are_written():
    """An index that answers with 50 items to each of 262,144 users writes 13 million."""
    values = np.full(2_000_000, b"item", object)
    whole = min(longest_hold(lambda: tensor_pb2.TensorProto(string_val=values.tolist())) for _ in range(3))
    pieces = min(longest_hold(lambda: to_proto(values)) for _ in range(3))
    assert pieces < whole / 2
