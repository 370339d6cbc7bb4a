"""Tests the calibration of each value of a column: its error, and whether it exceeds chance.

With many values or few clicks, the value with the worst calibration is far off by chance. Each value gets an exact
interval, and all values together a level.

References:
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", 1934.
    Hoeffding, "On the distribution of the number of successes in independent trials", 1956: trials with different
    probabilities deviate less from their mean than trials with the mean probability, so the interval holds.
    Fay and Feuer, "Confidence intervals for directly standardized rates: a method based on the gamma distribution",
    1997: weighted counts, as a scaled count.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.common.metrics import Weights
from ctrpipe.pipeline.evaluation.elements import elements_of

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class SliceCalibrations:
    """The calibration of each judged value of a column, `[V]` each.

    Attributes:
        values: The values as text.
        rows: Numbers of rows.
        clicks: Numbers of clicks, not weighted.
        total: Weighted numbers of rows.
        observed: Weighted numbers of clicks.
        expected: Weighted sums of the probabilities.
        squares: Variances of the weighted numbers of clicks, less the variance of the expected ones: see `_squares`.
        largest: The largest weight of a row.
        weighted: Whether the rows have weights.
    """

    values: list[str]
    rows: npt.NDArray[np.int64]
    clicks: npt.NDArray[np.int64]
    total: Floats
    observed: Floats
    expected: Floats
    squares: Floats
    largest: Floats
    weighted: bool

    @property
    def calibrations(self) -> Floats:
        """Expected clicks divided by observed clicks; infinite without clicks."""
        observed = np.where(self.observed > 0, self.observed, 1.0)
        return np.asarray(np.where(self.observed > 0, self.expected / observed, np.inf))

    def p_values(self, max_error: float) -> Floats:
        """Returns the two-sided p-value of each value for a calibration within 1 - max_error and 1 + max_error."""
        few = 1 - self._above(self.expected / (1 + max_error), self.largest)
        many = np.ones(len(few))
        if max_error < 1:
            many = self._above(self.expected / (1 - max_error), np.zeros(len(few)))
        return np.asarray(np.minimum(2 * np.minimum(few, many), 1.0))

    def interval(self, place: int, level: float) -> tuple[float, float]:
        """Returns the two-sided interval of one value's calibration."""
        from scipy.special import betaincinv, gammaincinv  # lazy: takes 0.1 s, and only slices need it

        ends = []
        for more, side in ((self.largest[place], (1 + level) / 2), (0.0, (1 - level) / 2)):
            observed = self.observed[place] + more
            if not observed:
                ends.append(np.inf)
                continue
            scale = observed / (self.squares[place] + more**2)
            clicks, rows = observed * scale, self.total[place] * scale
            if self.weighted:
                most = gammaincinv(clicks, side)
            else:
                most = rows * (betaincinv(clicks, rows - clicks + 1, side) if rows - clicks + 1 > 0 else 1.0)
            ends.append(float(self.expected[place] * scale / most))
        return ends[0], ends[1]

    def _above(self, mean: Floats, more: Floats) -> Floats:
        """Returns the probability of the observed clicks plus `more`, or of even more clicks, given their mean.

        Clicks of equal weight are binomial. Others are scaled Poisson counts with the same mean and variance.
        """
        from scipy.special import betainc, gammainc  # lazy, see interval

        observed, squares = self.observed + more, self.squares + np.square(more)
        any_clicks = (observed > 0) & (squares > 0)
        scale = np.where(any_clicks, observed, 1.0) / np.where(any_clicks, squares, 1.0)
        clicks, rows = observed * scale, self.total * scale
        if self.weighted:
            tails = gammainc(np.where(any_clicks, clicks, 1.0), mean * scale)
        else:
            others = rows - clicks + 1
            rates = np.minimum(mean / self.total, 1.0)
            tails = betainc(np.where(any_clicks, clicks, 1.0), np.maximum(others, 1e-9), rates)
            tails = np.where(others > 1e-6, tails, 0.0)  # more clicks than rows
        return np.where(any_clicks, tails, 1.0)


def slice_calibrations(
    column: pa.Array | pa.ChunkedArray,
    labels: np.ndarray,
    probabilities: np.ndarray,
    weights: Weights,
    min_clicks: float,
    separator: str = "",
) -> SliceCalibrations:
    """Returns the calibrations of the values that have enough clicks.

    A value has enough clicks if the model expects `min_clicks` in its rows, or if the overall click rate gives as many.
    Its own clicks are not used, because a value without clicks is far from calibrated.

    Args:
        column: The value of each row as text.
        labels: 0 or 1, `[N]`; NaN in a row that has no label.
        probabilities: Predictions, `[N]`.
        weights: Row weights, `[N]`; None for 1.
        min_clicks: The least number of clicks, not weighted.
        separator: Separates the elements in a row of several values. Such a row counts once for each of its elements.
    """
    known = np.flatnonzero(~np.isnan(labels))
    encoded = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False)[known]
    clicked = np.asarray(labels, np.float64)[known]
    predicted = np.asarray(probabilities, np.float64)[known]
    weight = np.ones(len(known)) if weights is None else np.asarray(weights, np.float64)[known]
    counted = np.stack(
        [
            np.ones(len(known)),
            clicked,
            predicted,
            weight,
            weight * clicked,
            weight * predicted,
            np.square(weight) * clicked,
            np.square(weight * predicted),
            np.square(weight) * predicted * clicked,
        ]
    )
    sums: Floats = np.stack([np.bincount(codes, each, len(texts)) for each in counted]).astype(np.float64)
    largest = np.zeros(len(texts))
    np.maximum.at(largest, codes, weight)
    if separator:
        texts, sums, largest = _by_element(texts, sums, largest, separator)
    rows, clicks, plain = sums[:3]
    rate = clicked.mean() if len(clicked) else 0.0
    judged = np.flatnonzero((np.maximum(plain, rows * rate) >= min_clicks) & (sums[3] > 0) & (sums[5] > 0))
    return SliceCalibrations(
        [texts[place] for place in judged],
        rows[judged].astype(np.int64),
        clicks[judged].astype(np.int64),
        sums[3, judged],
        sums[4, judged],
        sums[5, judged],
        _squares(*sums[4:, judged]),
        largest[judged],
        weights is not None,
    )


def _squares(observed: Floats, expected: Floats, of_clicks: Floats, of_predictions: Floats, of_both: Floats) -> Floats:
    """Returns the variance of the weighted clicks around the expected ones.

    With weights that do not depend on the label, it is at most the sum of the clicks' squared weights. If rows without
    a click were sampled and weighted accordingly, the expected clicks vary as well.
    """
    ratio = observed / expected
    return np.asarray(np.maximum(of_clicks, of_clicks + ratio**2 * of_predictions - 2 * ratio * of_both))


def _by_element(
    texts: Sequence[str], sums: Floats, largest: Floats, separator: str
) -> tuple[list[str], Floats, Floats]:
    """Adds up the texts' sums by element; returns the elements with their sums."""
    names, places, elements = elements_of(texts, separator)
    summed: Floats = np.stack([np.bincount(elements, each[places], len(names)) for each in sums]).astype(np.float64)
    most = np.zeros(len(names))
    np.maximum.at(most, elements, largest[places])
    return names, summed, most
