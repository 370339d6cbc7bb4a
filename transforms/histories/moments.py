"""Converts the times of events to comparable numbers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"^-?\d+(\.\d*)?$"


def to_moments(texts: pa.Array, time_format: str | None) -> np.ndarray:
    """Converts times, binary or string `[N]`, to float64 `[N]`; NaN if a time is missing or unreadable.

    A number stays as it is. Other texts become fractional seconds since 1970; without a time zone they are UTC.

    Args:
        texts: The times, valid UTF-8.
        time_format: A strptime pattern; None for numbers and ISO 8601.
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
    """Returns floor(log2(1 + gap)) as text, binary `[N]`, for gaps `[N]` of at least 0."""
    exponents = np.frexp(1.0 + gaps)[1] - 1  # 1 + gap = m 2^e with m in [.5, 1): exact at the powers of two
    return pa.array(exponents).cast(pa.string()).cast(pa.binary())


def _seconds(texts: pa.Array, time_format: str) -> np.ndarray:
    """Parses times with pandas; NaN for those that it cannot parse.

    Raises:
        ValueError: the format is invalid.
    """
    import pandas as pd  # takes 0.4 s, not needed for numbers

    times = pd.to_datetime(pd.Series(texts.to_pylist(), dtype=object), format=time_format, utc=True, errors="coerce")
    known = times.notna().to_numpy()
    nanoseconds = times.to_numpy("datetime64[ns]").astype(np.int64)
    return np.where(known, nanoseconds / 1e9, np.nan)
