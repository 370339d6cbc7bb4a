"""The cost of a row in a signature's graph, measured once for each loaded version.

A byte of a request can take kilobytes in the graph: a row of dcn_v2 with 39 columns takes 5 to 9 kB in its layers.
TensorFlow reports each allocation of a run. The difference between runs of one row and of several rows is the cost of a
row, independent of other work in the process. The signatures of the warm-up are measured while the version loads, other
signatures before their first request. The first run optimises the graph, which takes a hundred times as long as a
measurement.
"""

import dataclasses
import logging
import math
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from ctrpipe.serving.loader import LoadedServable
from ctrpipe.serving.server.pieces import may_run_in_pieces

log = logging.getLogger(__name__)

_ROWS = 9
_LARGE_BYTES = 64 << 20  # of a run of one row, of which so many would take more memory than requests do
# Branches of a graph run side by side, and the allocator keeps what a thread has freed.
_SAFETY = 2
_UNKNOWN_BYTES = 8 << 10  # of a row, where no made-up input is accepted
_LONG_TEXT = b"a|b,c d;e.f " * 20  # for lists, histories and texts, whatever their separator is
_MEASURED_ROWS = 64  # of fewer rows, a run's time says little about a row's
# What a processor writes to memory, before a run of many rows has been timed. dcn_v2: 7.6 kB and 86 us a row.
_BYTES_A_SECOND = 1e8
_MEMORY = 0.5


@dataclasses.dataclass
class RowCost:
    """The memory and time per row of a signature. `record` updates the time.

    Attributes:
        fixed_bytes: Bytes of a run, independent of its rows.
        row_bytes: Bytes for each row.
        row_seconds: Seconds for each row of a large request.
        in_pieces: Whether rows are answered independently, so a large request may run in pieces.
    """

    fixed_bytes: int
    row_bytes: int
    row_seconds: float
    in_pieces: bool = False

    def size(self, rows: int) -> int:
        return self.fixed_bytes + rows * self.row_bytes

    def seconds(self, rows: int) -> float:
        return rows * self.row_seconds

    def record(self, rows: int, seconds: float) -> None:
        """Records a run's time. Threads may overwrite each other's records, which are equally valid."""
        if rows >= _MEASURED_ROWS:
            self.row_seconds = _MEMORY * self.row_seconds + (1 - _MEMORY) * seconds / rows


class RowCosts:
    """The costs of all loaded versions' signatures. Thread-safe."""

    def __init__(self) -> None:
        self._costs: weakref.WeakKeyDictionary[LoadedServable, dict[str, RowCost]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._measuring: weakref.WeakKeyDictionary[LoadedServable, threading.Lock] = weakref.WeakKeyDictionary()

    def is_known(self, servable: LoadedServable, signature: str) -> bool:
        """Returns whether a signature's cost has been measured."""
        return signature in self._costs.get(servable, ())

    def of(self, servable: LoadedServable, signature: str) -> RowCost:
        """Returns a signature's cost; the first call measures it."""
        known = self._costs.get(servable)
        cost = known.get(signature) if known is not None else None
        return cost or self._measure(servable, signature)

    def _measure(self, servable: LoadedServable, signature: str) -> RowCost:
        with self._lock:
            known = self._costs.setdefault(servable, {})
            one_at_a_time = self._measuring.setdefault(servable, threading.Lock())
        with one_at_a_time:
            if signature not in known:
                known[signature] = measure(servable, signature)
            return known[signature]


def measure(servable: LoadedServable, signature: str) -> RowCost:
    """Measures the cost of a signature with synthetic rows: empty values, and long texts."""
    definition = servable.signatures[signature]
    fixed, per_row = 0.0, 0.0
    is_known = False
    for text in _texts(definition, servable.signatures.get("serving_raw")):
        try:
            servable.peak_bytes(signature, _inputs(definition, 1, text))  # optimises the graph
            one = servable.peak_bytes(signature, _inputs(definition, 1, text))
            rows = _ROWS if one < _LARGE_BYTES else 2
            some = servable.peak_bytes(signature, _inputs(definition, rows, text))
        except tf.errors.DeadlineExceededError:  # other rows would take as long
            log.debug("%s takes too long to be measured", signature)
            break
        except (tf.errors.OpError, KeyError, ValueError, TypeError) as error:  # KeyError: numpy has no such type
            log.debug("%s takes no such rows: %s", signature, error)
            continue
        is_known = True
        slope = max(some - one, 0) / (rows - 1)
        per_row = max(per_row, slope)
        fixed = max(fixed, one - slope)
    if not is_known:
        per_row = _UNKNOWN_BYTES
    in_pieces = may_run_in_pieces(servable, signature)
    return RowCost(int(_SAFETY * fixed), int(_SAFETY * per_row) + 1, per_row / _BYTES_A_SECOND, in_pieces)


def _texts(definition: meta_graph_pb2.SignatureDef, raw: meta_graph_pb2.SignatureDef | None) -> Iterator[bytes]:
    """Yields the strings of the synthetic rows: empty, long, or an example with long texts."""
    yield b""
    if any(info.dtype == tf.string.as_datatype_enum for info in definition.inputs.values()):
        yield _LONG_TEXT
        if raw is not None and raw.inputs:
            yield _example(raw)


def _example(raw: meta_graph_pb2.SignatureDef) -> bytes:
    example = tf.train.Example()
    for name, column in raw.inputs.items():
        count = math.prod(max(dim.size, 1) for dim in column.tensor_shape.dim)  # 1, or the length of a vector
        if column.dtype == tf.string.as_datatype_enum:
            example.features.feature[name].bytes_list.value.extend([_LONG_TEXT] * count)
        elif tf.as_dtype(column.dtype).is_floating:
            example.features.feature[name].float_list.value.extend([1.0] * count)
    return bytes(example.SerializeToString())


def _inputs(definition: meta_graph_pb2.SignatureDef, rows: int, text: bytes) -> dict[str, np.ndarray]:
    inputs = {}
    for name, info in definition.inputs.items():
        sizes = [dim.size for dim in info.tensor_shape.dim]
        shape = [size if size >= 0 else 1 for size in sizes]
        if sizes and sizes[0] < 0:
            shape[0] = rows
        dtype = tf.as_dtype(info.dtype)
        inputs[name] = np.full(shape, text, object) if dtype == tf.string else np.zeros(shape, dtype.as_numpy_dtype)
    return inputs
