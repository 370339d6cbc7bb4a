"""Drops values of training rows at random, to train the model on missing values."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.spec import LogSpec


def drop_values(rows: pa.RecordBatch, spec: LogSpec, random: np.random.Generator) -> pa.RecordBatch:
    """Replaces values by nulls at their column's `missing_rate` (BERT4CTR, appendix A.2). For training rows only.

    Args:
        rows: Columns as in the payload; binary ones may be dictionary arrays.
        spec: The description of the log.
        random: Draws one number per row for each column with a rate, in the order of `spec`.
    """
    for column, feature in spec.feature_by_column.items():
        if feature.drop_rate:
            kept = pa.array(random.random(rows.num_rows) >= feature.drop_rate)
            rows = rows.set_column(rows.schema.get_field_index(column), column, _null_unless(rows[column], kept))
    return rows


def _null_unless(values: pa.Array, kept: pa.Array) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_null_unless(values.indices, kept), values.dictionary)
    # pc.if_else corrupts slices of binary arrays (apache/arrow#49410).
    return pc.replace_with_mask(values, pc.invert(kept), pa.scalar(None, values.type))
