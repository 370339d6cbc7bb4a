"""A faster version of TFDV's estimate of frequent values from its sketches."""

import dataclasses
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from tensorflow_metadata.proto.v0 import statistics_pb2

from ctrpipe.pipeline.monitoring.validation import TopKUniquesSketchStatsGenerator, sketch_stats, tfdv, value_stats

RANKED_VALUES = 1000  # maximum number of values that the statistics of a column name


class ValueCountsGenerator(TopKUniquesSketchStatsGenerator):
    """TFDV's generator of frequent values, with the same output.

    TFDV creates Python dictionaries for 4,000 values of a column, but its statistics name at most 1,000 of them. To
    create only those saves 0.35 s of CPU time in a run with 26 categorical columns, of 1.9 s for the statistics of
    200,000 rows.
    """

    def extract_output(
        self, accumulator: "Mapping[tfdv.FeaturePath, sketch_stats._CombinedSketch]"
    ) -> statistics_pb2.DatasetFeatureStatistics:
        """Returns the statistics of the columns whose sketches are accumulated."""
        return super().extract_output({path: _Estimated(sketches) for path, sketches in accumulator.items()})


@dataclasses.dataclass(frozen=True)
class _Estimated:
    sketches: "sketch_stats._CombinedSketch"

    def estimate(self) -> "sketch_stats._CombinedEstimate":
        return estimate(self.sketches)


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


def _most_frequent(values: pa.StructArray) -> list["value_stats.FeatureValueCount"]:
    """Returns the RANKED_VALUES most frequent values, and all values as frequent as the last of them."""
    if len(values) > RANKED_VALUES:
        counts = values.field("counts")
        least = counts[pc.select_k_unstable(counts, RANKED_VALUES, [("counts", "descending")])[-1].as_py()]
        values = values.filter(pc.greater_equal(counts, least))
    pairs = zip(values.field("values").to_pylist(), values.field("counts").to_pylist(), strict=True)
    return [value_stats.FeatureValueCount(*pair) for pair in pairs]
