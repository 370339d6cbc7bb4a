"""TFDV's histogram with bins of equal width, computed on arrays."""

import contextlib
from collections.abc import Iterator

import numpy as np
from tensorflow_metadata.proto.v0 import statistics_pb2

from ctrpipe.pipeline.monitoring.validation import quantiles_util


@contextlib.contextmanager
def histograms_on_arrays() -> Iterator[None]:
    """Makes TFDV compute its histograms by `generate_equi_width_histogram` inside the block.

    TFDV creates a proto message for each of 4,000 quantiles and compares it with each bin in Python. On arrays, the
    statistics of a run with 13 numeric columns take 0.4 s of CPU time less, whatever its rows, and those of 100 columns
    3 s less. No class of TFDV has the function as a method that a subclass could override.
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
