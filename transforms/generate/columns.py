"""The columns of a sample log and the distributions of their values.

Every column is a table of 2^16 equally likely quantiles. A draw is thus a table lookup, and the share of every value is
known exactly, which is required for a click model without marginal effects.
"""

import dataclasses
import functools
import statistics

import numpy as np

QUANTILES = 1 << 16
# Number of most frequent values that have codes of their own. Rarer values share a code: no model can learn the effect
# of a value from a handful of rows, and the best possible AUC should be attainable.
HEAD_VALUES = 48
LOW_VOCABULARY = 100
# Buckets of floor(ln v), not finer than the transforms for the real log, floor(ln v) and floor((ln v)^2).
_LOG_EDGES = np.exp(np.arange(1, 13))
_ZERO_BUCKET = 1
INTEGER_CODES = _ZERO_BUCKET + 2 + len(_LOG_EDGES)


@dataclasses.dataclass(frozen=True)
class QuantileTable:
    """Equally likely intervals `[low, low + width)`, int64 `[2^16]` each, with uniformly distributed values."""

    low: np.ndarray
    width: np.ndarray

    @functools.cached_property
    def spread(self) -> bool:
        """Whether any interval has several values."""
        return bool((self.width > 1).any())

    def values(self, quantile: np.ndarray, within: np.ndarray) -> np.ndarray:
        """Returns values, int64 `[N]`, for uniform uint16 draws `[N]` of the interval and the position within it."""
        values: np.ndarray = self.low[quantile]
        if self.spread:
            values += (self.width[quantile] * within) >> 16
        return values


@dataclasses.dataclass(frozen=True)
class _Column:
    name: str
    # Share of missing values. Columns with the same group and share are missing in the same rows.
    missing: float = 0.0
    missing_group: str = ""
    # Another column whose draws this column reuses, so that the two are correlated, like a site and its category.
    follows: str = ""

    @property
    def draw_key(self) -> str:
        """Name of the random draws of the values."""
        return self.follows or self.name

    @property
    def missing_key(self) -> str:
        """Name of the random draws of the missing values."""
        return self.missing_group or self.name

    @functools.cached_property
    def missing_below(self) -> int:
        """Threshold: a value is missing if its uint16 draw is below it."""
        return round(self.missing * QUANTILES)


@dataclasses.dataclass(frozen=True)
class Categorical(_Column):
    """A column with a power-law vocabulary. A value is a rank, 0 for the most frequent.

    The first ranks have the shares `top`; the shares of the others decay as `rank ** -exponent`. Values are written as
    8 hex digits, as numbers (first `numbers`, then numbers from `number_range`), or as `words`, one per rank.
    """

    vocabulary: int = 1
    top: tuple[float, ...] = ()
    exponent: float = 1.0
    numbers: tuple[int, ...] = ()
    number_range: tuple[int, int] = (0, 0)
    words: tuple[str, ...] = ()

    @property
    def main_weight(self) -> float:
        """Relative weight of the column's main effect.

        Low for large vocabularies, because their effects cannot be learned well from tens of thousands of rows.
        """
        return 1.0 if self.vocabulary <= LOW_VOCABULARY else 0.3

    @property
    def as_number(self) -> bool:
        """Whether values are written as numbers."""
        return bool(self.numbers) or self.number_range[1] > 0

    @functools.cached_property
    def table(self) -> QuantileTable:
        """The quantile table of the values."""
        top = np.asarray(self.top[: self.vocabulary], float)
        rest = np.arange(len(top) + 1, self.vocabulary + 1, dtype=float) ** -self.exponent
        if len(rest):
            rest *= (1.0 - top.sum()) / rest.sum()
        cumulative = np.cumsum(np.concatenate([top, rest]))
        edges = np.searchsorted(cumulative / cumulative[-1], np.arange(QUANTILES + 1) / QUANTILES, side="right")
        edges = np.minimum(edges, self.vocabulary - 1)
        return QuantileTable(edges[:-1], np.maximum(np.diff(edges), 1))

    @property
    def codes(self) -> int:
        """Number of codes of `code_of`, which is also the code of a missing value."""
        return min(self.vocabulary, HEAD_VALUES + 1)

    @property
    def rare_code(self) -> int | None:
        """The code shared by all rare values; None without rare values."""
        return HEAD_VALUES if self.vocabulary > HEAD_VALUES else None

    def code_of(self, values: np.ndarray) -> np.ndarray:
        """Returns the codes of ranks, int64 `[N]`: the rank itself, or the rare code."""
        codes: np.ndarray = np.minimum(values, HEAD_VALUES)
        return codes

    @functools.cached_property
    def number_of_rank(self) -> np.ndarray:
        """The distinct numbers that represent the ranks in the log, int64 `[vocabulary]`."""
        start, stop = self.number_range
        # A step coprime to the size of the range visits each of its numbers once.
        step = next(s for s in range(int(0.618 * (stop - start)) | 1, 1 << 31) if np.gcd(s, max(stop - start, 1)) == 1)
        spread = start + np.arange(self.vocabulary, dtype=np.int64) * step % max(stop - start, 1)
        fresh = spread[~np.isin(spread, self.numbers)][: self.vocabulary - len(self.numbers)]
        return np.concatenate([np.asarray(self.numbers, np.int64), fresh])[: self.vocabulary]


@dataclasses.dataclass(frozen=True)
class Integer(_Column):
    """A column of counts: shares of -1 and 0, and otherwise a floored log-normal from 1 to `maximum`."""

    zero: float = 0.0
    negative: float = 0.0
    log_mean: float = 2.0
    log_std: float = 1.5
    maximum: int = 65535

    @property
    def main_weight(self) -> float:
        """Relative weight of the column's main effect."""
        return 1.0

    @functools.cached_property
    def table(self) -> QuantileTable:
        """The quantile table of the values."""
        edges = np.arange(QUANTILES + 1) / QUANTILES
        positive = np.clip((edges - self.negative - self.zero) / (1.0 - self.negative - self.zero), 0.0, 1.0)
        normal = statistics.NormalDist(self.log_mean, self.log_std)
        logs = [normal.inv_cdf(p) if 0.0 < p < 1.0 else np.inf if p >= 1.0 else -np.inf for p in positive]
        values = np.floor(np.clip(np.exp(logs), 1.0, self.maximum)).astype(np.int64)
        values[edges < self.negative + self.zero] = 0
        values[edges < self.negative] = -1
        low, width = values[:-1], np.maximum(np.diff(values), 1)
        return QuantileTable(low, np.where(low < 1, 1, width))

    @property
    def codes(self) -> int:
        """Number of codes of `code_of`, which is also the code of a missing value."""
        return INTEGER_CODES

    @property
    def rare_code(self) -> int | None:
        """None, because no values share a code."""
        return None

    def code_of(self, values: np.ndarray) -> np.ndarray:
        """Returns code 0 for negative values, 1 for zero, and floor(ln v) + 2 for positive values."""
        codes = np.searchsorted(_LOG_EDGES, values, side="right") + _ZERO_BUCKET + 1
        return np.where(values > 0, codes, np.where(values < 0, 0, _ZERO_BUCKET))


Column = Categorical | Integer


def code_shares(column: Column) -> np.ndarray:
    """Returns the share of rows of each code, float64 `[codes + 1]`; the last is the share of missing values."""
    middle = np.full(QUANTILES, QUANTILES // 2, np.uint16)
    codes = column.code_of(column.table.values(np.arange(QUANTILES), middle.astype(np.int64)))
    shares = np.bincount(codes, minlength=column.codes + 1) / QUANTILES
    missing = column.missing_below / QUANTILES
    shares *= 1.0 - missing
    shares[column.codes] = missing
    return shares
