"""Converts rows of a raw log to the arrays that the transform graph and the `serving_raw` signature take."""

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import is_vector, vector_array


def raw_arrays(rows: pa.RecordBatch, spec: LogSpec, labels: bool = False) -> dict[str, np.ndarray]:
    """Returns one array per column: float32 [N] or [N, length], or bytes objects [N]. A missing value is NaN or b"".

    Args:
        rows: Columns as the reader returns them; dictionary arrays of binary columns are faster.
        spec: The description of the log.
        labels: Whether to return the labels as well.
    """
    targets = spec.label_columns if labels else []
    names = [*spec.numeric_columns, *targets, *spec.text_columns, *spec.vector_lengths]
    return {name: raw_array(rows[name]) for name in names}


def raw_array(values: pa.Array) -> np.ndarray:
    """Returns a checked column of any type, as `raw_arrays` does."""
    if is_vector(values.type):
        return vector_array(values)
    return number_array(values) if pa.types.is_floating(values.type) else text_array(values)


def number_array(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Returns numbers as float32 [N]; NaN where a value is missing."""
    numbers: np.ndarray = values.fill_null(float("nan")).to_numpy(zero_copy_only=False)
    return numbers.astype(np.float32, copy=False)


def text_array(values: pa.Array) -> np.ndarray:
    """Returns texts as bytes objects [N]; b"" where a value is missing."""
    texts: np.ndarray
    if not isinstance(values, pa.DictionaryArray):
        texts = values.fill_null(b"").to_numpy(zero_copy_only=False)
        return texts
    # One object per distinct value instead of one per row.
    texts = np.append(values.dictionary.to_numpy(zero_copy_only=False), b"").astype(object)
    texts = texts[values.indices.fill_null(len(values.dictionary)).to_numpy()]
    return texts
