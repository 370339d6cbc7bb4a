"""The values of a column of checked rows as codes and as numbers."""

import dataclasses

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.payload import plain

BINS = 256  # of a numeric column's values


@dataclasses.dataclass(frozen=True)
class Values:
    """A column's values, as codes with their texts, and as numbers.

    `codes` is `[N]`, with 0 for a missing value; `texts` has the text of each code. `numbers` is `[N]`, with NaN for a
    missing number; None for a column with other values.
    """

    codes: np.ndarray
    texts: pa.Array
    numbers: np.ndarray | None
    is_binned: bool

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "Values":
        """Returns the values of a column; many distinct numbers are grouped into BINS bins of equal frequency."""
        encoded = plain_chunks(column).combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        numbers = numbers_of(column) if pa.types.is_floating(column.type) else _as_numbers(encoded, codes)
        if not pa.types.is_floating(column.type) or len(encoded.dictionary) <= BINS:
            return cls(codes, encoded.dictionary, numbers, False)
        assert numbers is not None
        known = np.isfinite(numbers)
        edges = np.unique(np.quantile(numbers[known], np.linspace(0, 1, BINS + 1)[1:-1]))
        binned = np.where(known, 1 + np.searchsorted(edges, numbers, side="right"), 0)
        return cls(binned, encoded.dictionary, numbers, True)


def _as_numbers(encoded: pa.DictionaryArray, codes: np.ndarray) -> np.ndarray | None:
    """Returns texts as numbers [N]; None if one of them is not a number."""
    try:
        values = np.array([np.nan, *(float(value) for value in encoded.dictionary.to_pylist())])
    except ValueError:
        return None
    return np.asarray(values[codes])


def plain_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decodes a column of dictionary arrays; returns other columns unchanged."""
    return pa.chunked_array([plain(chunk) for chunk in column.chunks], _plain_type(column.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """Returns a column of numbers as float64 [N], NaN for a missing one."""
    numbers: np.ndarray = column.combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers
