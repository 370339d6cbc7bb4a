"""Times of events as numbers that can be compared."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"^-?\d+(\.\d*)?$"


def to_moments(texts: pa.Array, time_format: str | None) -> np.ndarray:
    """Returns times, binary or strings `[N]`, as float64 `[N]` in their order; NaN where one is missing or unreadable.

    A number is itself. Other texts are seconds since 1970, with fractions; without a zone they are UTC.

    Args:
        texts: The times, valid UTF-8.
        time_format: A pattern of strptime; None for numbers and ISO 8601.
    """
    texts = texts.cast(pa.string())
    if time_format is not None:
        return _seconds(texts, time_format)
    is_number = pc.match_substring_regex(texts, _NUMBER).fill_null(False)
    nothing = pa.scalar(None, pa.string())
    moments = pc.if_else(is_number, texts, nothing).cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pc.all(is_number).as_py():
        return np.array(moments)
    others = np.flatnonzero(~is_number.to_numpy(zero_copy_only=False))
    moments = np.array(moments)
    moments[others] = _seconds(texts.take(pa.array(others)), "ISO8601")
    return moments


def gap_categories(gaps: np.ndarray) -> pa.Array:
    """Returns the whole part of log2(1 + gap) as text: binary `[N]` of gaps `[N]`, which are at least 0."""
    exponents = np.frexp(1.0 + gaps)[1] - 1  # 1 + gap = m 2^e with m in [.5, 1): exact at the powers of two
    return pa.array(exponents).cast(pa.string()).cast(pa.binary())


def _seconds(texts: pa.Array, time_format: str) -> np.ndarray:
    """Returns what pandas reads by a format, NaN for what it cannot read.

    Raises:
        ValueError: pandas does not know the format.
    """
    import pandas as pd  # 0.4 s, which numbers do without

    times = pd.to_datetime(pd.Series(texts.to_pylist(), dtype=object), format=time_format, utc=True, errors="coerce")
    known = times.notna().to_numpy()
    nanoseconds = times.to_numpy("datetime64[ns]").astype(np.int64)
    return np.where(known, nanoseconds / 1e9, np.nan)
