"""Encodes a log's values as small integers: frequent values and a rest, or bins for numbers."""

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.payload import decoded
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec

VALUES = 64  # codes of a column, including the codes for the rest and for missing values
BINS = 16  # bins of a numeric column, with equal numbers of rows
OTHER, MISSING = "(other)", "(missing)"
MOST_WRITTEN = 1e15  # numbers below are written without an exponent


@dataclasses.dataclass(frozen=True)
class TextCodes:
    """The frequent values of a text column. The codes after them are `(other)` and `(missing)`."""

    values: pa.Array

    @classmethod
    def of(cls, column: pa.Array) -> "TextCodes":
        """Returns the codes of the most frequent values of a binary column."""
        counted = pc.value_counts(column.drop_null())
        names, counts = counted.field("values"), counted.field("counts").to_numpy()
        order = np.argsort(-counts, kind="stable")[: VALUES - 2]
        return cls(names.take(pa.array(order)))

    @property
    def names(self) -> list[str]:
        return [*(value.decode("utf-8", "replace") for value in self.values.to_pylist()), OTHER, MISSING]

    def conditions(self, column: str) -> list[str]:
        """Returns the condition of each code, such as `device = phone`."""
        known = [f"{column} = {name}" for name in self.names[: len(self.values)]]
        return [*known, f"{column} is another value", f"{column} is missing"]

    def codes(self, column: pa.Array) -> npt.NDArray[np.int16]:
        """Returns the code of each row's value, `[N]`."""
        places = pc.index_in(column, value_set=self.values).fill_null(len(self.values))
        codes: npt.NDArray[np.int16] = places.to_numpy().astype(np.int16)
        codes[column.is_null().to_numpy(zero_copy_only=False)] = len(self.values) + 1
        return codes


@dataclasses.dataclass(frozen=True)
class NumberCodes:
    """The bins of a numeric column, upper edges included. The code after them is `(missing)`."""

    edges: npt.NDArray[np.float32]

    @classmethod
    def of(cls, column: pa.Array) -> "NumberCodes":
        """Returns the bins of a float32 column, with equal numbers of rows as far as the values allow."""
        known = number_array(column.drop_null())
        if not len(known):
            return cls(np.empty(0, np.float32))
        shares = np.arange(1, BINS) / BINS
        edges = np.unique(np.quantile(known, shares, method="lower").astype(np.float32))
        return cls(edges[edges < known.max()])

    @property
    def names(self) -> list[str]:
        return [*self._bins(".."), MISSING]

    def conditions(self, column: str) -> list[str]:
        """Returns the condition of each code, with both ends of a bin: `201 < duration <= 414`."""
        return [*self._bins(column), f"{column} is missing"]

    def _bins(self, number: str) -> list[str]:
        ends = _texts(self.edges)
        if not ends:
            return [f"{number} is any number"]
        between = (f"{low} < {number} <= {high}" for low, high in itertools.pairwise(ends))
        return [f"{number} <= {ends[0]}", *between, f"{number} > {ends[-1]}"]

    def codes(self, column: pa.Array) -> npt.NDArray[np.int16]:
        """Returns the code of each row's value, `[N]`."""
        values = number_array(column)
        codes = np.searchsorted(self.edges, values).astype(np.int16)
        codes[np.isnan(values)] = len(self.edges) + 1
        return codes


def _texts(edges: npt.NDArray[np.float32]) -> list[str]:
    """Returns the edges with the fewest digits, at least six, that distinguish all of them."""
    texts: list[str] = []
    for digits in range(6, 10):
        texts = [f"{edge:.{digits}g}" for edge in edges.tolist()]
        if len(set(texts)) == len(edges):
            break
    return [f"{int(float(text))}" if _is_whole(text) else text for text in texts]


def _is_whole(text: str) -> bool:
    """Returns whether a number with an exponent is a whole number that can be written without it."""
    return "e+" in text and abs(float(text)) < MOST_WRITTEN


class LogCodes:
    """The codes of a log's columns, learned from a sample. Tokenized texts and vectors have no codes.

    Args:
        rows: The sample, with columns as the reader returns them.
        spec: The description of the log.
    """

    def __init__(self, rows: pa.Table, spec: LogSpec):
        vectors = spec.vector_lengths
        self.columns = [name for name in spec.value_columns if name not in vectors]
        self._codes: list[TextCodes | NumberCodes] = []
        for name in self.columns:
            values = decoded(rows[name].combine_chunks())
            is_number = pa.types.is_floating(values.type)
            self._codes.append(NumberCodes.of(values) if is_number else TextCodes.of(values))
        self.names = [codes.names for codes in self._codes]
        self.conditions = [codes.conditions(name) for name, codes in zip(self.columns, self._codes, strict=True)]

    def codes(self, rows: pa.RecordBatch) -> npt.NDArray[np.int16]:
        """Returns the code of each value, `[columns, N]`."""
        pairs = zip(self.columns, self._codes, strict=True)
        return np.stack([codes.codes(decoded(rows[name])) for name, codes in pairs])
