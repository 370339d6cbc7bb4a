"""Samples the negatives of training and validation rows, for logs with few positives."""

import numpy as np
import pyarrow as pa

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
