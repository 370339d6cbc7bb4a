"""The values that TFDV's statistics name, and their counts, are those that its own function gives."""

import importlib.util

import numpy as np
import pyarrow as pa
import pytest
from tfx_bsl.sketches import KmvSketch, MisraGriesSketch

from ctrpipe.pipeline.monitoring import validation
from ctrpipe.pipeline.monitoring.value_counts import RANKED_VALUES, estimate

MODULE = "tensorflow_data_validation.statistics.generators.top_k_uniques_sketch_stats_generator"


@pytest.fixture(scope="module")
def of_tfdv():
    """TFDV's own function, out of a second copy of its module."""
    found = importlib.util.find_spec(MODULE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    assert module._CombinedSketch.estimate is not estimate
    return module._CombinedSketch.estimate


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
def test_statistics_name_the_values_that_tfdv_names_ties_at_the_cut_included(distinct, is_weighted, of_tfdv):
    counting = [MisraGriesSketch(num_buckets=4096) for _ in range(2)]
    sketch = validation.sketch_stats._CombinedSketch(KmvSketch(4096), *counting)
    counts = np.random.default_rng(3).integers(1, 6, distinct)  # so that some 600 values occur equally often
    values = pa.array([f"v{index}".encode() for index in np.repeat(np.arange(distinct), counts)])
    sketch.add(values, pa.array(np.full(len(values), 2.0, np.float32)) if is_weighted else None)
    expected, found = of_tfdv(sketch), estimate(sketch)
    assert len(expected.topk_unweighted) == distinct and found.distinct == distinct
    assert named(found) == named(expected)
    assert len(named(found).string_stats.rank_histogram.buckets) == min(distinct, RANKED_VALUES)
    assert (len(found.topk_weighted) > 0) == is_weighted
