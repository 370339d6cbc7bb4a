"""Numbers as values of a category, a key, a user or an item: 123.0 is the value 123, and a decimal 0.10 is 0.1.

pandas converts an id column with a missing value to floating-point numbers; Parquet, CSV and JSON files then hold 123.0
or 1.23e+10. A decimal of Parquet has as many places as its type, and the same number of JSON or a DataFrame has not.
"""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# All decimals are 0. WHOLE_PART is the number without them, and without the sign of a 0; RE2, as in the graph.
WHOLE_NUMBER, WHOLE_PART = r"^(?:-(0+)|([+-]?\d+))\.0*$", r"\1\2"


def exact_limit(bits: int) -> int:
    """Returns the number up to which a floating-point type with this many bits represents every whole number."""
    limit: int = 2 ** (1 + np.finfo(f"float{bits}").nmant)
    return limit


def text_of_float(number: float) -> str:
    """Returns the digits of an exact whole number, otherwise the shortest text that parses to the same number.

    A fraction that 32 bits represent has the shortest text of 32 bits: 0.1, not 0.10000000149011612.
    """
    if abs(number) <= exact_limit(64) and number == int(number):
        return str(int(number))
    narrow = np.float32(number) if abs(number) < exact_limit(32) else np.float32(0)
    return str(narrow) if float(narrow) == number else repr(number)


def inexact(name: str, number: str, bits: int) -> str:
    """Returns the reason why a row with this number is malformed."""
    return (
        f"{name}: '{number}' is beyond {exact_limit(bits):,}, the last exact id of a {bits}-bit floating-point number; "
        "write it as a whole number or text"
    )


def texts_of_floats(values: pa.Array, name: str, faults: dict[int, str] | None) -> pa.Array:
    """Returns floating-point numbers as text, as `text_of_float` does; null for NaN, which means a missing value.

    Args:
        values: The numbers, of any width.
        name: The column, for error messages.
        faults: Gets the rows whose number exceeds the exact whole numbers; None: such rows are accepted.
    """
    numbers = values.to_numpy(zero_copy_only=False)
    bits = numbers.dtype.itemsize * 8
    missing = np.isnan(numbers)
    large = ~missing & (np.abs(numbers) > exact_limit(bits))
    whole = ~missing & ~large & (np.trunc(numbers) == numbers)
    texts = pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole).cast(pa.string())
    others = np.flatnonzero(~missing & ~whole)
    if len(others):
        distinct, places = np.unique(numbers[others], return_inverse=True)
        # str of a numpy number is the shortest text of its own type. A 64-bit one may be a 32-bit one made wider.
        narrow = np.where(np.abs(distinct) < exact_limit(32), distinct, 0).astype(np.float32)
        pairs = zip(distinct, narrow, strict=True)
        written = pa.array([str(short if short == number else number) for number, short in pairs], pa.string())
        written = written.take(pa.array(places))
        texts = pc.replace_with_mask(texts, pa.array(~missing & ~whole), written)
    for row in np.flatnonzero(large).tolist() if faults is not None else ():
        faults.setdefault(row, inexact(name, f"{float(numbers[row]):.17g}", bits))  # type: ignore[union-attr]
    return texts


def texts_of_decimals(values: pa.Array) -> pa.Array:
    """Returns decimals as text: the text of the same floating-point number, and all digits of a whole number.

    A number beyond the exact whole numbers of 64 bits, which has no such text, keeps its digits.
    """
    written = values.cast(pa.string()).dictionary_encode()
    texts = pa.array(
        [_text_of_decimal(decimal.Decimal(digits)) for digits in written.dictionary.to_pylist()], pa.string()
    )
    return texts.take(written.indices)


def _text_of_decimal(number: decimal.Decimal) -> str:
    if number == number.to_integral_value():
        return str(int(number))
    return text_of_float(float(number)) if abs(number) <= exact_limit(64) else f"{number:f}".rstrip("0")
