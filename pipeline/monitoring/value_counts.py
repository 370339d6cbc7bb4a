"""A faster version of TFDV's estimate of frequent values from its sketches.

TFDV creates Python dictionaries for 4,000 values of a column, but its statistics name at most 1,000 of them. On 200,000
rows this is a third of the time for the statistics. Importing this module replaces TFDV's function by the function
below.
"""

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.pipeline.monitoring.validation import sketch_stats, value_stats

RANKED_VALUES = 1000  # maximum number of values that the statistics of a column name


def estimate(sketches: "sketch_stats._CombinedSketch") -> "sketch_stats._CombinedEstimate":
    """Returns the same as TFDV's `_CombinedSketch.estimate`, without values that the statistics do not name.

    Args:
        sketches: TFDV's sketches of a column.
    """
    return sketch_stats._CombinedEstimate(
        sketches._distinct.Estimate(),
        _most_frequent(sketches._topk_unweighted.Estimate()),
        _most_frequent(sketches._topk_weighted.Estimate()),
    )


def _most_frequent(found: pa.StructArray) -> list["value_stats.FeatureValueCount"]:
    """Returns the RANKED_VALUES most frequent values, and all values as frequent as the last of them."""
    if len(found) > RANKED_VALUES:
        counts = found.field("counts")
        least = counts[pc.select_k_unstable(counts, RANKED_VALUES, [("counts", "descending")])[-1].as_py()]
        found = found.filter(pc.greater_equal(counts, least))
    pairs = zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)
    return [value_stats.FeatureValueCount(*pair) for pair in pairs]


sketch_stats._CombinedSketch.estimate = estimate
