"""Turns rows of a raw log into the arrays that the transform graph and the `serving_raw` signature take."""

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.spec import LogSpec


def raw_arrays(rows: pa.RecordBatch, spec: LogSpec, labels: bool = False) -> dict[str, np.ndarray]:
    """Returns [N] arrays by column: float32 with NaN, bytes objects with b"" where a value is missing.

    Args:
        rows: Columns as the reader returns them; binary ones may be dictionary arrays, which is faster.
        spec: The description of the log.
        labels: Whether to return the labels as well.
    """
    arrays: dict[str, np.ndarray] = {}
    for name in spec.numeric_columns + (spec.label_columns if labels else []):
        arrays[name] = number_array(rows[name])
    for name in spec.text_columns:
        arrays[name] = text_array(rows[name])
    return arrays


def number_array(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Returns float32 [N], NaN where a value is missing."""
    numbers: np.ndarray = values.fill_null(float("nan")).to_numpy(zero_copy_only=False)
    return numbers.astype(np.float32, copy=False)


def text_array(values: pa.Array) -> np.ndarray:
    """Returns bytes objects [N], b"" where a value is missing."""
    texts: np.ndarray
    if not isinstance(values, pa.DictionaryArray):
        texts = values.fill_null(b"").to_numpy(zero_copy_only=False)
        return texts
    # One object for each distinct value, not for each row.
    texts = np.append(values.dictionary.to_numpy(zero_copy_only=False), b"").astype(object)
    texts = texts[values.indices.fill_null(len(values.dictionary)).to_numpy()]
    return texts
