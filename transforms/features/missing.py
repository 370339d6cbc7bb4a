"""Makes values of training rows missing, so that a model learns to answer without them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.log.spec import Categorical, LogSpec


def drop_values(rows: pa.RecordBatch, spec: LogSpec, random: np.random.Generator) -> pa.RecordBatch:
    """Makes values missing at the `missing_rate` of their column (BERT4CTR, appendix A.2). For training rows only.

    Args:
        rows: Columns as the payload has them; binary ones may be dictionary arrays.
        spec: The description of the log.
        random: Draws one number a row for each column that has a rate, in the order of the description.
    """
    for column, feature in spec.feature_by_column.items():
        if isinstance(feature, Categorical) and feature.missing_rate:
            kept = pa.array(random.random(rows.num_rows) >= feature.missing_rate)
            rows = rows.set_column(rows.schema.get_field_index(column), column, _null_unless(rows[column], kept))
    return rows


def _null_unless(values: pa.Array, kept: pa.Array) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_null_unless(values.indices, kept), values.dictionary)
    # Not by if_else, which spoils slices of binary arrays (apache/arrow#49410).
    return pc.replace_with_mask(values, pc.invert(kept), pa.scalar(None, values.type))
