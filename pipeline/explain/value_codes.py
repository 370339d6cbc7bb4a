"""Values of a log's columns as small integers: the frequent ones, with the rest together; numbers in bins."""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec, Text

VALUES = 64  # of a column, the rest and the missing one included
BINS = 16  # of a number's column, with equally many rows each
OTHER, MISSING = "(other)", "(missing)"


@dataclasses.dataclass(frozen=True)
class TextCodes:
    """The frequent values of a column of text; what stands behind them is `(other)`, then `(missing)`."""

    values: pa.Array

    @classmethod
    def of(cls, column: pa.Array) -> "TextCodes":
        """Returns the codes of a column's most frequent values, binary."""
        counted = pc.value_counts(column.drop_null())
        names, counts = counted.field("values"), counted.field("counts").to_numpy()
        order = np.argsort(-counts, kind="stable")[: VALUES - 2]
        return cls(names.take(pa.array(order)))

    @property
    def names(self) -> list[str]:
        return [*(value.decode("utf-8", "replace") for value in self.values.to_pylist()), OTHER, MISSING]

    def codes(self, column: pa.Array) -> npt.NDArray[np.int16]:
        """Returns the code of each row's value, `[N]`."""
        places = pc.index_in(column, value_set=self.values).fill_null(len(self.values))
        found: npt.NDArray[np.int16] = places.to_numpy().astype(np.int16)
        found[column.is_null().to_numpy(zero_copy_only=False)] = len(self.values) + 1
        return found


@dataclasses.dataclass(frozen=True)
class NumberCodes:
    """The bins of a column of numbers, each up to and with its edge; then `(missing)`."""

    edges: npt.NDArray[np.float32]

    @classmethod
    def of(cls, column: pa.Array) -> "NumberCodes":
        """Returns bins of a column, float32, with equally many rows as far as its values allow."""
        known = number_array(column.drop_null())
        if not len(known):
            return cls(np.empty(0, np.float32))
        shares = np.arange(1, BINS) / BINS
        edges = np.unique(np.quantile(known, shares, method="lower").astype(np.float32))
        return cls(edges[edges < known.max()])

    @property
    def names(self) -> list[str]:
        last = f"> {self.edges[-1]:g}" if len(self.edges) else "(any number)"
        return [*(f"<= {edge:g}" for edge in self.edges), last, MISSING]

    def codes(self, column: pa.Array) -> npt.NDArray[np.int16]:
        """Returns the code of each row's value, `[N]`."""
        values = number_array(column)
        found = np.searchsorted(self.edges, values).astype(np.int16)
        found[np.isnan(values)] = len(self.edges) + 1
        return found


class LogCodes:
    """The codes of a log's columns, decided by a sample of it; a text that is read as words has none.

    Args:
        rows: The sample, columns as the reader returns them.
        spec: The description of the log.
    """

    def __init__(self, rows: pa.Table, spec: LogSpec):
        self.columns = [name for name in spec.feature_columns if not isinstance(spec.feature_by_column[name], Text)]
        self._codes: list[TextCodes | NumberCodes] = []
        for name in self.columns:
            values = plain(rows[name].combine_chunks())
            is_number = pa.types.is_floating(values.type)
            self._codes.append(NumberCodes.of(values) if is_number else TextCodes.of(values))
        self.names = [codes.names for codes in self._codes]

    def codes(self, rows: pa.RecordBatch) -> npt.NDArray[np.int16]:
        """Returns the code of each value, `[columns, N]`."""
        pairs = zip(self.columns, self._codes, strict=True)
        return np.stack([codes.codes(plain(rows[name])) for name, codes in pairs])
