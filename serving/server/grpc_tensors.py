"""Converts TensorProtos to numpy arrays and back.

Except for strings, there is no Python loop over the elements.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

from ctrpipe.serving.server.grpc_messages import MOST_ELEMENTS
from ctrpipe.serving.server.grpc_parsing import varint

# A TensorProto may hold one value and a shape of any size; TensorFlow fills the shape with the value. Above this many
# filled bytes a request is refused: 50 bytes of it took 12 seconds and gigabytes of memory, and of 64 MB the C library
# keeps most in each thread.
_MAX_FILLED_BYTES = 1 << 24
_MOST_DIMENSIONS = 254  # as in TensorFlow's TensorShape
_STRING_BYTES = 64  # of an empty string, in TensorFlow and Python together; its length is added

_VALUES = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_UINT16: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_STRING: "string_val",
}
_NUMBERS = {kind: np.dtype(tf.as_dtype(kind).as_numpy_dtype) for kind in _VALUES if kind != types_pb2.DT_STRING}
# Types whose field holds another type: the other type, and the field.
_PARTS = {
    types_pb2.DT_HALF: (np.uint16, "half_val"),
    types_pb2.DT_BFLOAT16: (np.uint16, "half_val"),
    types_pb2.DT_COMPLEX64: (np.float32, "scomplex_val"),
    types_pb2.DT_COMPLEX128: (np.float64, "dcomplex_val"),
}
_KNOWN = {*_VALUES, *_PARTS}
# Packed, fixed-width fields of TensorProto. Their wire format is the array itself after a tag and a length.
_FIXED_WIDTH_TAGS = {types_pb2.DT_FLOAT: b"\x2a", types_pb2.DT_DOUBLE: b"\x32"}
_FEW = 64
_AT_ONCE = 1 << 14


class Filling:
    """Counts the bytes of padding in one request's tensors."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, values: int, bytes_each: int) -> None:
        """Raises ValueError if the padding of the request takes too much memory."""
        self._bytes += max(values, 0) * bytes_each
        if self._bytes > _MAX_FILLED_BYTES:
            raise ValueError(f"{values} values of {bytes_each} bytes, none of which was sent")


def to_array(
    proto: tensor_pb2.TensorProto, filling: Filling | None = None, content: np.ndarray | None = None
) -> np.ndarray:
    """Returns the tensor as an array; strings as an array of bytes objects.

    Args:
        proto: The tensor.
        filling: The padding of the request's other tensors.
        content: The bytes of its `tensor_content`, if kept outside the proto.

    Raises:
        ValueError: the shape, dtype and content contradict each other, or too many values are missing.
    """
    filling = filling or Filling()
    shape = proto.tensor_shape
    if len(shape.dim) > _MOST_DIMENSIONS:  # the product of many sizes has millions of digits
        raise ValueError(f"{len(shape.dim)} dimensions")
    sizes = [dim.size for dim in shape.dim]
    if any(size < 0 for size in sizes):  # unknown_rank is not looked at, as in TensorFlow's TensorShape
        raise ValueError("the shape is not known")
    size = math.prod(sizes)
    if not size and proto.dtype in _KNOWN:  # as in Tensor::FromProto, which reads no content then
        return np.empty(sizes, tf.as_dtype(proto.dtype).as_numpy_dtype)
    dtype = _NUMBERS.get(proto.dtype)
    sent = proto.tensor_content or (b"" if content is None else content)
    if dtype is not None and len(sent):
        if len(sent) != size * dtype.itemsize:
            raise ValueError(f"{len(sent)} bytes of content for {size} values of {dtype}")
        return np.frombuffer(sent, dtype).reshape(sizes)
    if proto.dtype not in _KNOWN:
        raise ValueError(f"no type of numbers or strings: {proto.dtype}")
    if proto.dtype in _VALUES and not len(sent):
        values = getattr(proto, _VALUES[proto.dtype])
        if dtype is None:
            return _strings(proto, size, filling).reshape(sizes)
        if len(values) == size and size <= _FEW:
            narrow = _VALUES[proto.dtype] == "int_val"
            return np.fromiter(values, np.int64 if narrow else dtype, size).astype(dtype).reshape(sizes)
    return _parse(proto, size, filling, sent)


def _strings(proto: tensor_pb2.TensorProto, size: int, filling: Filling) -> np.ndarray:
    """Returns the strings. If too few were sent, the last one is repeated, as one shared object."""
    sent = min(len(proto.string_val), size)
    last = proto.string_val[sent - 1] if sent else b""
    if sent < size:
        filling.add(size - sent, _STRING_BYTES + len(last))
    array = np.empty(size, object)
    for start in range(0, sent, _AT_ONCE):  # in pieces: other threads run between them
        end = min(start + _AT_ONCE, sent)
        array[start:end] = proto.string_val[start:end]
    array[sent:] = array[sent - 1 : sent] if sent else [last]
    return array


def _count_sent(proto: tensor_pb2.TensorProto, content: Any) -> int:
    """Returns an upper bound of the number of values sent.

    In `tensor_content`, a value takes at least one byte.
    """
    if len(content):
        return len(content)
    if proto.dtype in _PARTS:
        part, field = _PARTS[proto.dtype]
        return len(getattr(proto, field)) * np.dtype(part).itemsize // int(tf.as_dtype(proto.dtype).size)
    return len(getattr(proto, _VALUES[proto.dtype]))


def _parse(proto: tensor_pb2.TensorProto, size: int, filling: Filling, content: Any) -> np.ndarray:
    """Returns the tensor as TensorFlow parses it. If too few values were sent, the last one is repeated."""
    is_string = proto.dtype == types_pb2.DT_STRING
    filling.add(size - _count_sent(proto, content), _STRING_BYTES if is_string else tf.as_dtype(proto.dtype).size)
    if is_string and size > MOST_ELEMENTS:  # a byte of the content is an empty string
        raise ValueError(f"{size} strings")
    if len(content) and not proto.tensor_content:
        proto.tensor_content = bytes(content)
    try:
        value = tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(proto.dtype)).numpy()
        return np.asarray(value, object if is_string else None)  # for a scalar string, TensorFlow returns bytes
    except (tf.errors.OpError, TypeError) as error:
        raise ValueError(str(error)) from error


def fill_proto(proto: tensor_pb2.TensorProto, array: np.ndarray, as_content: bool = False) -> None:
    """Writes the array to an empty proto: as `tensor_content`, or as values of its dtype, TF Serving's default (G7).

    The proto is part of the answer, which avoids a copy.
    """
    kind = tf.as_dtype(array.dtype).as_datatype_enum
    proto.dtype = kind
    proto.tensor_shape.SetInParent()  # a scalar has a shape too: one without dimensions
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if kind == types_pb2.DT_STRING and as_content:
        strings = array.reshape(-1).tolist()
        proto.tensor_content = b"".join([*(varint(len(value)) for value in strings), *strings])  # EncodeStringList
    elif kind == types_pb2.DT_STRING:
        flat = array.reshape(-1)
        for at in range(0, array.size, _AT_ONCE):  # in pieces: other threads run between them
            proto.string_val.extend(flat[at : at + _AT_ONCE].tolist())
    elif kind in _PARTS and not as_content:
        part, field = _PARTS[kind]
        getattr(proto, field).extend(array.reshape(-1).view(part).tolist())
    elif as_content or kind not in _VALUES:
        proto.tensor_content = array.tobytes()
    elif kind in _FIXED_WIDTH_TAGS and array.size > _FEW:
        flat = array.reshape(-1)
        for at in range(0, array.size, _AT_ONCE):  # in pieces: other threads run between them
            packed = flat[at : at + _AT_ONCE].tobytes()
            proto.MergeFromString(_FIXED_WIDTH_TAGS[kind] + varint(len(packed)) + packed)
    else:
        flat, values = array.reshape(-1), getattr(proto, _VALUES[kind])
        for at in range(0, array.size, _AT_ONCE):  # in pieces: the memory of a million Python integers would be kept
            values.extend(flat[at : at + _AT_ONCE].tolist())
