"""Reads ranges of a file into columns of integers and token lists; malformed lines become rejects."""

import dataclasses
import json
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.kddcup2012.layout import Table
from ctrpipe.transforms.log.batches import Reject
from ctrpipe.transforms.log.files import Range
from ctrpipe.transforms.log.ingest import DEAD_LETTERS_KEPT
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec

MAX_IMPRESSIONS = 1_000_000  # per line; a line with more is malformed
_MAX_UINT64 = str(2**64 - 1)
_TOKENS = "tokens"
_NO_LABEL = "none"  # LogSpec requires a label; these files are read without one


@dataclasses.dataclass(frozen=True)
class TablePart:
    """A range of a file, and its index among all ranges of the same step."""

    table: Table
    number: int
    range: Range


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows and malformed lines of a batch.

    Attributes:
        columns: uint64, or large_string for `tokens`; null for a missing value.
        lines: Line number of each row in the file, int64 [rows], from 1.
        rejects: The malformed lines.
    """

    columns: pa.Table
    lines: np.ndarray
    rejects: list[Reject]


@dataclasses.dataclass
class Tally:
    """Counts of all lines and of malformed lines; `first` has path, line number and reason of the first reject."""

    lines: int = 0
    rejected: int = 0
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)
    first: str = ""

    def add(self, other: "Tally") -> None:
        """Adds the counts of another range of the file."""
        self.lines += other.lines
        self.rejected += other.rejected
        self.reasons.update(other.reasons)
        self.first = self.first or other.first

    def reject(self, path: str, rejects: Sequence[Reject]) -> list[str]:
        """Counts rejects and returns their dead letters as JSON lines, at most DEAD_LETTERS_KEPT per tally."""
        kept = rejects[: max(0, DEAD_LETTERS_KEPT - self.rejected)]
        self.rejected += len(rejects)
        self.reasons.update(_kind(reject.reason) for reject in rejects)
        if rejects and not self.first:
            self.first = f"{path}: line {rejects[0].line}: {rejects[0].reason}"
        letters = ({"file": path, "line": r.line, "reason": r.reason, "text": r.text} for r in kept)
        return [json.dumps(letter) + "\n" for letter in letters]

    def check(self, path: pathlib.Path, max_rate: float, dead_letter: pathlib.Path) -> None:
        """Raises InputError if more than a share of `max_rate` of the lines, or all lines, are malformed."""
        if self.rejected > max_rate * self.lines or self.rejected == self.lines:
            raise InputError(
                f"{self.first}; {self.rejected:,} of {self.lines:,} lines of {path} are malformed, above "
                f"{max_rate:.2%}; they are in {dead_letter}; is this a file of KDD Cup 2012 track 2?"
            )


def _kind(reason: str) -> str:
    """Returns a reject reason without its values."""
    return reason.split(", found")[0].split(" '")[0]


def ranges_of(table: Table, workers: Workers, first: int = 0) -> list[TablePart]:
    """Splits a file into ranges that can be read independently, numbered from `first`.

    Raises:
        InputError: the file is empty or unreadable.
    """
    ranges = plan([str(table.path)], _spec(table), labels=False, workers=workers)
    if not table.header:
        ranges = [dataclasses.replace(part, columns=table.columns) for part in ranges]
    return [TablePart(table, number, part) for number, part in enumerate(ranges, first)]


def read_part(part: TablePart) -> Iterator[Rows]:
    """Yields the rows of a range, in order.

    Raises:
        InputError: the file is unreadable, truncated or has changed.
    """
    table = part.table
    names = dict(zip(table.header or table.columns, table.columns, strict=True))
    for batch in LogReader(_spec(table), labels=False).read_range(part.range):
        faults: dict[int, str] = {}
        columns = {ours: _values(batch.rows[theirs], ours, faults) for theirs, ours in names.items()}
        if "click" in columns:
            _check_counts(columns["click"], columns["impressions"], faults)
        else:
            _check_key(columns[table.columns[0]], table.columns[0], faults)
        bad = sorted(faults)
        text = ("\t".join((batch.rows[name][row].as_py() or b"").decode() for name in names) for row in bad)
        value_rejects = [Reject(int(batch.lines[row]), faults[row], line) for row, line in zip(bad, text, strict=True)]
        keep = np.delete(np.arange(batch.rows.num_rows), bad)
        rejects = sorted([*batch.rejects, *value_rejects], key=lambda reject: reject.line)
        yield Rows(pa.table(columns).take(pa.array(keep)), batch.lines[keep], rejects)


def _spec(table: Table) -> LogSpec:
    data = {"labels": {_NO_LABEL: _NO_LABEL}}
    text = {"format": "csv", "header": True} if table.header else {"columns": [*table.columns, _NO_LABEL]}
    features = [{"kind": "categorical", "columns": list(table.header or table.columns)}]
    return LogSpec.model_validate({"data": {**data, **text}, "features": features})


def _values(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    values = values.cast(pa.large_string())
    if name == _TOKENS:
        _note(values, pc.match_substring_regex(values, r"^[0-9]+(\|[0-9]+)*$").fill_null(False), name, faults)
        return values
    digits = pc.match_substring_regex(values, "^[0-9]{1,20}$")
    small = pc.or_(pc.less(pc.binary_length(values), 20), pc.less_equal(values, _MAX_UINT64))
    good = pc.and_(digits, small).fill_null(True)
    _note(values, good, name, faults)
    return pc.if_else(good, values, pa.scalar(None, values.type)).cast(pa.uint64())


def _note(values: pa.Array, good: pa.Array, name: str, faults: dict[int, str]) -> None:
    wanted = "numbers with | between them" if name == _TOKENS else "a whole number below 2^64"
    for row in np.flatnonzero(~good.to_numpy(zero_copy_only=False)).tolist():
        value = values[row].as_py()
        shown = "nothing" if value is None else f"'{value[:100]}'"
        faults.setdefault(row, f"{name}: expected {wanted}, found {shown}")


def _check_key(keys: pa.Array, name: str, faults: dict[int, str]) -> None:
    for row in np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False)).tolist():
        faults.setdefault(row, f"{name}: expected a whole number below 2^64, found nothing")


def _check_counts(clicks: pa.Array, impressions: pa.Array, faults: dict[int, str]) -> None:
    missing = pc.or_(clicks.is_null(), impressions.is_null()).to_numpy(zero_copy_only=False)
    clicked = clicks.fill_null(0).to_numpy()
    shown = impressions.fill_null(0).to_numpy()
    for row in np.flatnonzero(missing | (shown < 1) | (shown > MAX_IMPRESSIONS) | (clicked > shown)).tolist():
        if missing[row]:
            faults.setdefault(row, "click and impressions: expected numbers, found nothing")
        elif not 1 <= shown[row] <= MAX_IMPRESSIONS:
            faults.setdefault(row, f"impressions: expected 1 to {MAX_IMPRESSIONS:,}, found {shown[row]}")
        else:
            faults.setdefault(row, f"click: more clicks than impressions, found {clicked[row]} of {shown[row]}")
