"""Converts the times of events to comparable numbers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.ordering import NUMBER, Ordering, kind_of

_SECOND = 10**6  # microseconds


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
    is_number = are_numbers(texts)
    nothing = pa.scalar(None, pa.string())
    plain = pc.replace_substring_regex(pc.if_else(is_number, texts, nothing), r"^\+", "")
    moments = plain.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pc.all(is_number).as_py():
        return np.array(moments)
    others = np.flatnonzero(~is_number.to_numpy(zero_copy_only=False))
    moments = np.array(moments)
    moments[others] = _seconds(texts.take(pa.array(others)), "ISO8601")
    return moments


def are_numbers(texts: pa.Array) -> pa.Array:
    """Returns whether each time, binary or string `[N]`, is a number, bool `[N]`; False where it is missing."""
    return pc.match_substring_regex(texts, NUMBER).fill_null(False)


def to_cut(text: str, time_format: str | None, example: str) -> float:
    """Converts a time of the configuration to a number that compares with `to_moments` of the log's times.

    Args:
        text: The time.
        time_format: As in `to_moments`.
        example: A time of the log. If it is a number, all times of the log are numbers.

    Raises:
        ValueError: the text is not a time, or cannot be compared with the example.
    """
    moment = float(to_moments(pa.array([text]), time_format)[0])
    if np.isnan(moment):
        raise ValueError(f"'{text}' is not a time like those of the log")
    is_number = kind_of(text) in ("number", "epoch")
    if time_format is not None or is_number == (kind_of(example) in ("number", "epoch")):
        return moment
    epochs = Ordering("epoch").compare(pa.array([text.encode() if is_number else example.encode()], pa.binary()))
    if epochs.faults[0]:
        raise ValueError(f"'{text}' cannot be compared with the log's times, such as {example}")
    seconds = int(epochs.keys[0]) / _SECOND
    if is_number:
        return seconds
    # The log's epochs keep their unit: the power of ten between the example and its seconds.
    return moment * float(10 ** round(np.log10(float(example) / seconds)))


def gap_categories(gaps: np.ndarray) -> pa.Array:
    """Returns floor(log2(1 + gap)) as text, binary `[N]`, for gaps `[N]` of at least 0."""
    exponents = np.frexp(1.0 + gaps)[1] - 1  # 1 + gap = m 2^e with m in [.5, 1): exact at the powers of two
    return pa.array(exponents).cast(pa.string()).cast(pa.binary())


def _seconds(texts: pa.Array, time_format: str) -> np.ndarray:
    """Parses times with pandas; NaN for those that it cannot parse.

    Raises:
        ValueError: the format is invalid.
    """
    import pandas as pd  # lazy: takes 0.4 s, and numbers do not need it

    times = pd.to_datetime(pd.Series(texts.to_pylist(), dtype=object), format=time_format, utc=True, errors="coerce")
    known = times.notna().to_numpy()
    nanoseconds = times.to_numpy("datetime64[ns]").astype(np.int64)
    return np.where(known, nanoseconds / 1e9, np.nan)
