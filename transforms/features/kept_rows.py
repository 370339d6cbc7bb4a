"""Leaves out at random: negatives of training and validation rows, and values of training rows."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec

SAMPLED_SPLITS = ("train", "validation")  # test rows keep the distribution of served rows


def is_sampled(spec: LogSpec, split: str) -> bool:
    """Returns whether only a share of a split's negatives is packed."""
    return spec.data.negative_sampling < 1 and split in SAMPLED_SPLITS


def sample_negatives(rows: pa.RecordBatch, spec: LogSpec, random: np.random.Generator) -> pa.RecordBatch:
    """Returns all positives and the share `data.negative_sampling` of the negatives, in order.

    Each row is drawn separately: rows with equal values are not kept or dropped together. With the same seed, a larger
    share keeps all negatives of a smaller one.

    Args:
        rows: Columns as in the payload.
        spec: The description of the log, which has one label.
        random: Draws one number per row.
    """
    positive = number_array(rows[spec.label_columns[0]]) > 0
    kept = random.random(rows.num_rows) < spec.data.negative_sampling
    return rows.filter(pa.array(positive | kept))


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
