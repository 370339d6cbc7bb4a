"""Columnar batches of a log's rows, before and after the check of their values, with the malformed rows."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.ordering import Keys


@dataclasses.dataclass(frozen=True)
class Reject:
    """A malformed row: its line number in the file, the reason, and its text.

    Lines count from 1, a header included, as in an editor. For Parquet, `line` is the row's number, from 1, and `text`
    contains its values, separated by tabs.
    """

    line: int
    reason: str
    text: str


@dataclasses.dataclass(frozen=True)
class RawBatch:
    """Rows of one file as its format reads them: the values are not checked yet.

    Attributes:
        path: The file.
        columns: The requested columns as binary, null where a value is absent. A numeric column may already hold
            numbers.
        lines: int64 [rows], the line number of each row in the file, as in Reject.
        rejects: The malformed lines, which have no row in `columns`.
        faults: The rows of `columns` that are known to be malformed, with their reasons.
        not_utf8: The rows of `columns` that may contain invalid UTF-8; None for all rows.
        text: Returns the text of a row in the file; None for a format that is not text.
        numbers, truths: The columns, or lists, that have numbers and booleans in the file. None are known of a format
            that has texts alone.
    """

    path: str
    columns: dict[str, pa.Array]
    lines: np.ndarray
    rejects: list[Reject]
    faults: dict[int, str]
    not_utf8: list[int] | None
    text: Callable[[int], str] | None
    numbers: frozenset[str] = frozenset()
    truths: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class LogBatch:
    """Checked rows of one file.

    Attributes:
        path: The file.
        rows: Numeric columns, labels and weights as float32, all others as binary; null = missing.
        lines: int64 [rows], the line number of each row in the file, as in Reject.
        rejects: The malformed rows of the same part of the file.
        keys: By `data.split.column`, the sort key or the group (binary) of each row, [rows]. None without such a
            column.
        kept: Further columns that the reader was asked for, as text, [rows]. None if there are none.
    """

    path: str
    rows: pa.RecordBatch
    lines: np.ndarray
    rejects: list[Reject]
    keys: Keys | None = None
    kept: pa.RecordBatch | None = None
