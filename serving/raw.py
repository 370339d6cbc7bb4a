"""Rows of a raw log as the signature `serving_raw` takes them."""

import numpy as np
import pyarrow as pa

from transforms.spec import LogSpec


def raw_arrays(rows: pa.RecordBatch, spec: LogSpec) -> dict[str, np.ndarray]:
    """[N] arrays by column, float32 with NaN and bytes objects with b"" where a value is missing."""
    arrays: dict[str, np.ndarray] = {}
    for name in spec.numeric_columns:
        arrays[name] = rows[name].fill_null(float("nan")).to_numpy(zero_copy_only=False).astype(np.float32)
    for name in spec.text_columns:
        arrays[name] = rows[name].fill_null(b"").to_numpy(zero_copy_only=False)
    return arrays
