"""The values that TFDV's statistics name, and their counts, are those that its own function gives."""

import numpy as np
import pyarrow as pa
import pytest
from tfx_bsl.sketches import KmvSketch, MisraGriesSketch

from ctrpipe.pipeline.monitoring import validation
from ctrpipe.pipeline.monitoring.faster_tfdv import RANKED_VALUES, ValueCountsGenerator, estimate


def named(found):
    """The statistics of a column that TFDV makes of an estimate."""
    return validation.value_stats.make_feature_stats_proto_topk_uniques(
        feature_path=validation.tfdv.FeaturePath(["a"]),
        num_top_values=20,
        num_rank_histogram_buckets=RANKED_VALUES,
        num_unique=found.distinct,
        value_count_list=found.topk_unweighted,
        weighted_value_count_list=found.topk_weighted,
        frequency_threshold=1,
        weighted_frequency_threshold=1.0,
    )


@pytest.mark.parametrize("distinct", [1, RANKED_VALUES, RANKED_VALUES + 1, 3000])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_statistics_name_the_values_that_tfdv_names_ties_at_the_cut_included(distinct, is_weighted):
    counting = [MisraGriesSketch(num_buckets=4096) for _ in range(2)]
    sketch = validation.sketch_stats._CombinedSketch(KmvSketch(4096), *counting)
    counts = np.random.default_rng(3).integers(1, 6, distinct)  # so that some 600 values occur equally often
    values = pa.array([f"v{index}".encode() for index in np.repeat(np.arange(distinct), counts)])
    sketch.add(values, pa.array(np.full(len(values), 2.0, np.float32)) if is_weighted else None)
    expected, found = sketch.estimate(), estimate(sketch)
    assert len(expected.topk_unweighted) == distinct and found.distinct == distinct
    assert named(found) == named(expected)
    assert len(named(found).string_stats.rank_histogram.buckets) == min(distinct, RANKED_VALUES)
    assert (len(found.topk_weighted) > 0) == is_weighted


def test_the_generator_gives_what_that_of_tfdv_gives():
    values = pa.array([[f"v{index % 1500}".encode()] for index in range(4000)])
    found = []
    for kind in (validation.TopKUniquesSketchStatsGenerator, ValueCountsGenerator):
        generator = kind(num_misragries_buckets=4096, num_kmv_buckets=4096, num_rank_histogram_buckets=RANKED_VALUES)
        kept = generator.add_input(generator.create_accumulator(), pa.RecordBatch.from_pydict({"a": values}))
        found.append(generator.extract_output(kept))
    assert found[0] == found[1] and len(found[0].features[0].string_stats.rank_histogram.buckets) == RANKED_VALUES
