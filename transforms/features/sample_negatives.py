"""Draws the negatives that training reads, where a log has many more than positives."""

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec

SAMPLED_SPLITS = ("train", "validation")  # the test rows stay as served rows are


def is_sampled(spec: LogSpec, split: str) -> bool:
    """Returns whether a split has only a share of its negatives packed."""
    return spec.data.negative_sampling < 1 and split in SAMPLED_SPLITS


def sample_negatives(rows: pa.RecordBatch, spec: LogSpec, random: np.random.Generator) -> pa.RecordBatch:
    """Returns all positives and the share `data.negative_sampling` of the negatives, in their order.

    Each row has a draw of its own, so that rows of equal values are not kept or left out together, and the negatives of
    a share are among those of any larger one.

    Args:
        rows: Columns as in the payload.
        spec: The description of the log, which has one label.
        random: Draws one number a row.
    """
    positive = number_array(rows[spec.label_columns[0]]) > 0
    kept = random.random(rows.num_rows) < spec.data.negative_sampling
    return rows.filter(pa.array(positive | kept))
