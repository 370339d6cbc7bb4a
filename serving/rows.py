"""Computes the probabilities of a raw log's rows, nearly as fast as the model without reading and packing.

The signature `transform_raw` packs each distinct value of a block once (ctrpipe.transforms.features.pack_rows). The
packed rows then go to the signature `serving_packed`.

Microseconds of one core for a row of Criteo's 39 columns (DCN-v2 of width 16, MLP 400-400; AMD EPYC): 33 in the model,
2.9 to read and check the line, 0.7 to find the distinct values, 0.8 to pack them, 0.3 to lay them out. Packing each row
by itself would take 4.4 instead of the last three, a third of it for Python objects.
"""

import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.serving import explained
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.logged_values import own_values
from ctrpipe.transforms.features.pack_rows import PackedValues
from ctrpipe.transforms.log.raw_arrays import raw_array
from ctrpipe.transforms.log.vectors import is_vector, vector_type

PACKED, TRANSFORM, RAW = "serving_packed", "transform_raw", "serving_raw"
MODEL_ROWS = 1 << 12  # rows in one call of the model

Arrays = dict[str, npt.NDArray[np.generic]]
Probabilities = dict[str, npt.NDArray[np.float32]]


class Scorer:
    """A loaded version that scores blocks of rows. Thread-safe.

    A version without `transform_raw`, for example from another exporter, is scored by `serving_raw`, which is slower.

    Args:
        version: The version's folder.

    Attributes:
        packs: Whether the version has `transform_raw` and `serving_packed`.
        own: The values of the version's log, for a reader of rows in another format.
        explains: Whether the version has `serving_explain`.

    Raises:
        InputError: the version cannot be loaded, or can neither pack nor take raw rows.
    """

    def __init__(self, version: pathlib.Path):
        self.version = version
        self.spec = read_log_spec(version)
        self.own = own_values(version, self.spec)
        self.tasks = list(self.spec.data.labels)
        try:
            self._servable = Servable(version)
        except Exception as error:
            reason = one_line(error, 300)
            raise InputError(f"{version}: the model cannot be loaded: {reason}") from error
        self.packs = {PACKED, TRANSFORM} <= set(self._servable.signatures)
        self.explains = explained.SIGNATURE in self._servable.signatures
        if not self.packs and RAW not in self._servable.signatures:
            raise InputError(f"{version}: the model has no signature {RAW}; export it with ctrpipe")

    def __call__(self, rows: pa.Table, check: Callable[[], None] = lambda: None) -> Probabilities:
        """Returns the probabilities by task, float32 [N].

        Args:
            rows: The columns from the log's reader, null = missing.
            check: Called before each batch; an exception from it ends the call.
        """
        if not rows.num_rows:
            return {task: np.empty(0, np.float32) for task in self.tasks}
        if self.packs:
            return run_batches(self._servable, PACKED, self.packed(rows), self.tasks, check)
        return run_batches(self._servable, RAW, self._raw(rows), self.tasks, check)

    def close(self) -> None:
        self._servable.close()

    def packed(self, rows: pa.Table) -> Iterator[Arrays]:
        """Yields the packed tensors of the rows in batches. Needs `packs`."""
        packed = PackedValues(rows, self.spec, lambda columns: self._servable.run(TRANSFORM, columns))
        for start in range(0, rows.num_rows, MODEL_ROWS):
            yield packed.rows(start, min(start + MODEL_ROWS, rows.num_rows))

    def explained(self, rows: pa.Table) -> dict[str, npt.NDArray[np.float32]]:
        """Returns the outputs of `serving_explain` by name, [N]. Needs `explains` and at least one row."""
        answers = [self._servable.run(explained.SIGNATURE, batch) for batch in self._raw(rows)]
        return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}

    def _raw(self, rows: pa.Table) -> Iterator[Arrays]:
        for batch in rows.to_batches(MODEL_ROWS):
            columns = {
                name: values.dictionary_encode() if pa.types.is_binary(values.type) else values
                for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield from raw_batches(self._servable, pa.RecordBatch.from_pydict(columns), MODEL_ROWS)


def run_batches(
    servable: Servable,
    signature: str,
    batches: Iterable[Arrays],
    tasks: Sequence[str],
    check: Callable[[], None] = lambda: None,
) -> Probabilities:
    """Returns the outputs for at least one batch, by task [N]. Calls `check` before each batch."""
    answers = []
    for batch in batches:
        check()
        answers.append(servable.run(signature, batch, tasks))
    return {task: np.concatenate([answer[task] for answer in answers]) for task in tasks}


def raw_batches(servable: Servable, rows: pa.RecordBatch, batch_rows: int, signature: str = RAW) -> Iterator[Arrays]:
    """Yields the rows as inputs of a signature for raw columns, `batch_rows` at a time.

    The inputs follow from the signature, not from the log's description, because an earlier model may have been trained
    on other columns. A column that is absent from the rows has missing values.

    Raises:
        InputError: a column is text in the model but a number in the rows, or vice versa.
    """
    inputs = _raw_inputs(servable, rows, signature)
    for start in range(0, rows.num_rows, batch_rows):
        yield {name: values[start : start + batch_rows] for name, values in inputs.items()}


def _raw_inputs(servable: Servable, rows: pa.RecordBatch, signature: str) -> Arrays:
    arrays: Arrays = {}
    for name, tensor in servable.signatures[signature].inputs.items():
        kind = _type_of(tensor)
        values = rows[name] if name in rows.schema.names else pa.nulls(rows.num_rows, kind)
        of_log = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        if of_log != kind:
            raise InputError(
                f"{servable.path}: this model takes the column {name} as {_named(kind)}, in the log's description it "
                f"is {_named(of_log)}; choose another --output or serving.model_name, or describe the column as before"
            )
        arrays[name] = raw_array(values)
    return arrays


def _type_of(tensor: meta_graph_pb2.TensorInfo) -> pa.DataType:
    """Returns the Arrow type of the checked column for a signature's input."""
    if tensor.dtype != types_pb2.DT_FLOAT:
        return pa.binary()
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    return vector_type(sizes[1]) if len(sizes) == 2 else pa.float32()


def _named(kind: pa.DataType) -> str:
    if is_vector(kind):
        return f"a vector of {kind.byte_width // 4} numbers"
    return "a number" if pa.types.is_floating(kind) else "text"
