"""Faster forms of two computations of TFDV, with the same results.

Histograms are computed on arrays. A schema is compared with statistics in groups of columns: TFDV looks up a column by
scanning all columns, several times per column, which takes minutes with 5,000 columns. The result for a column depends
only on this column, so groups give the same result, in a time that grows linearly with the number of columns.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from ctrpipe.pipeline.monitoring.validation import quantiles_util, tfdv

GROUP_COLUMNS = 100


@contextlib.contextmanager
def histograms_on_arrays() -> Iterator[None]:
    """Makes TFDV compute its histograms by `generate_equi_width_histogram` inside the block.

    TFDV creates a proto message for each of 4,000 quantiles and compares it with each bin in Python. On arrays, the
    statistics of a run take 0.4 s less CPU time with 13 numeric columns and 3 s less with 100, whatever the number of
    rows. The function is replaced in its module, because it is not a method that a subclass could override.
    """
    of_tfdv = quantiles_util.generate_equi_width_histogram
    quantiles_util.generate_equi_width_histogram = generate_equi_width_histogram
    try:
        yield
    finally:
        quantiles_util.generate_equi_width_histogram = of_tfdv


def generate_equi_width_histogram(
    quantiles: np.ndarray,
    cumulative_counts: np.ndarray,
    finite_min: float,
    finite_max: float,
    num_buckets: int,
    num_pos_inf: float,
) -> statistics_pb2.Histogram:
    """Returns the same result as the function of the same name in TFDV's quantiles_util.

    Args:
        quantiles: Boundaries [Q], ascending; some may be infinite.
        cumulative_counts: Number of values less than or equal to each boundary [Q].
        finite_min: The lowest finite value.
        finite_max: The highest finite value.
        num_buckets: Number of bins between them.
        num_pos_inf: Number of values that are positive infinity.
    """
    histogram = statistics_pb2.Histogram(type=statistics_pb2.Histogram.STANDARD)
    if not np.isfinite(finite_min) and not np.isfinite(finite_max):
        histogram.buckets.add(low_value=finite_min, high_value=finite_max, sample_count=cumulative_counts[-1])
        return histogram
    quantiles, cumulative_counts, num_neg_inf = quantiles_util._strip_infinities(
        quantiles, cumulative_counts, finite_max, num_pos_inf
    )
    low, high, counts = quantiles_util._get_bin_weights(quantiles, cumulative_counts)
    edges = np.linspace(finite_min, finite_max, num_buckets + 1) if finite_min != finite_max else [finite_min] * 2
    if not np.isfinite(edges).all():  # the range overflows
        return histogram
    if num_neg_inf:
        histogram.buckets.add(low_value=-np.inf, high_value=-np.inf, sample_count=num_neg_inf)
    for left, right in zip(edges[:-1], edges[1:], strict=True):
        shares = _shares_within(left, right, low, high, closed=left == edges[0])
        histogram.buckets.add(low_value=left, high_value=right, sample_count=float(shares @ counts))
    if num_pos_inf:
        histogram.buckets.add(low_value=np.inf, high_value=np.inf, sample_count=num_pos_inf)
    return histogram


def _shares_within(left: float, right: float, low: np.ndarray, high: np.ndarray, closed: bool) -> np.ndarray:
    """Returns the share of each interval [low, high] that lies in a bin: float64 [N].

    Values are assumed to be evenly spread over their interval. A value on an edge belongs to the bin before it. The
    first bin is closed on the left.
    """
    width = high - low
    inside = np.clip(np.minimum(high, right) - np.maximum(low, left), 0, None)
    is_point = width == 0
    shares: np.ndarray = inside / np.where(is_point, 1, width)
    shares[is_point] = ((low > left) & (low <= right) | (closed & (low == left)))[is_point]
    return shares


def validate_statistics(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
    schema: schema_pb2.Schema,
    **others: statistics_pb2.DatasetFeatureStatisticsList,
) -> anomalies_pb2.Anomalies:
    """Returns the same result as TFDV's function of the same name.

    Args:
        statistics: The statistics of one data set without structured columns.
        schema: The schema, without constraints on the whole data set.
        others: Statistics to compare with, by TFDV's argument names: `previous_statistics`, `serving_statistics`.
    """
    names = dict.fromkeys(feature.name for feature in schema.feature)
    for each in (statistics, *others.values()):
        names |= dict.fromkeys(feature.path.step[0] for feature in each.datasets[0].features)
    groups = [list(names)[start : start + GROUP_COLUMNS] for start in range(0, max(len(names), 1), GROUP_COLUMNS)]
    anomalies = anomalies_pb2.Anomalies()
    for schema_part, part, *other_parts in zip(
        _schema_parts(schema, groups),
        *(_statistics_parts(each, groups) for each in (statistics, *others.values())),
        strict=True,
    ):
        part_anomalies = tfdv.validate_statistics(part, schema_part, **dict(zip(others, other_parts, strict=True)))
        part_anomalies.ClearField("baseline")
        anomalies.MergeFrom(part_anomalies)
    anomalies.baseline.CopyFrom(schema)
    return anomalies


def _schema_parts(schema: schema_pb2.Schema, groups: Sequence[Sequence[str]]) -> list[schema_pb2.Schema]:
    features = {feature.name: feature for feature in schema.feature}
    rest = schema_pb2.Schema()
    rest.CopyFrom(schema)
    rest.ClearField("feature")
    rest.ClearField("tensor_representation_group")  # how columns become tensors, which is not validated
    parts = []
    for names in groups:
        part = schema_pb2.Schema()
        part.CopyFrom(rest)
        part.feature.extend(features[name] for name in names if name in features)
        parts.append(part)
    return parts


def _statistics_parts(
    statistics: statistics_pb2.DatasetFeatureStatisticsList, groups: Sequence[Sequence[str]]
) -> list[statistics_pb2.DatasetFeatureStatisticsList]:
    [whole] = statistics.datasets
    features = {feature.path.step[0]: feature for feature in whole.features}
    rest = statistics_pb2.DatasetFeatureStatistics(
        name=whole.name, num_examples=whole.num_examples, weighted_num_examples=whole.weighted_num_examples
    )
    parts = []
    for names in groups:
        part = statistics_pb2.DatasetFeatureStatisticsList(datasets=[rest])
        part.datasets[0].features.extend(features[name] for name in names if name in features)
        parts.append(part)
    return parts
