"""Reads lines of training.txt, assigns their part and fold, and joins the user's gender and age."""

import dataclasses
import pathlib
import zlib

import numpy as np
import pyarrow as pa

from ctrpipe.common.hashing import splitmix64
from ctrpipe.transforms.kddcup2012.layout import COLUMNS, USER_COLUMNS
from ctrpipe.transforms.kddcup2012.read import Rows, TablePart, Tally, read_part
from ctrpipe.transforms.kddcup2012.tables import (
    Lookup,
    bucket_name,
    id_keys,
    is_present,
    map_arrow,
    numbers,
    write_arrow,
)

TRAIN, VALIDATION, TEST, PUBLIC = range(4)
_KINDS = {**dict.fromkeys([*COLUMNS, *USER_COLUMNS[1:]], pa.uint64()), "click": pa.int64(), "impressions": pa.int64()}
SCHEMA = pa.schema([("line", pa.int64()), ("part", pa.int8()), ("fold", pa.int8()), *_KINDS.items()])


@dataclasses.dataclass(frozen=True)
class Counted:
    """Counts of a range.

    Attributes:
        tally: Counts of all and of malformed lines.
        letters: Dead letters, as JSON lines.
        lines, clicks, impressions: Counts of well-formed lines by part, [4].
        fold_clicks, fold_impressions: Counts of training lines by fold, [folds].
    """

    tally: Tally
    letters: list[str]
    lines: np.ndarray
    clicks: np.ndarray
    impressions: np.ndarray
    fold_clicks: np.ndarray
    fold_impressions: np.ndarray


@dataclasses.dataclass(frozen=True)
class ReadLines:
    """Writes the lines of a range, with SCHEMA, to `<folder>/<number>.arrow`.

    A line, with all its impressions, is in the test part with probability `test`. Otherwise it is in the validation
    part with probability `validation`. Part and fold are hashes of the seed and the line number; the fold does not
    depend on the part.

    Args:
        folder: The output folder.
        users: Folder and bucket bits of the user table.
        seed, test, validation, folds: See Options.
        most_lines: Maximum number of lines to read; None for all.
    """

    folder: pathlib.Path
    users: tuple[pathlib.Path, int]
    seed: int
    test: float
    validation: float
    folds: int
    most_lines: int | None

    def __call__(self, part: TablePart) -> Counted:
        users = Lookup(*self.users)
        tally, letters, batches = Tally(), [], []
        for rows in read_part(part):
            rows = _first(rows, self.most_lines)
            tally.lines += len(rows.lines) + len(rows.rejects)
            letters += tally.reject(part.range.path, rows.rejects)
            batches += self._with_users(rows, users, bool(part.table.header)).to_batches()
        path = self.folder / bucket_name(part.number)
        write_arrow(path, batches, SCHEMA)
        return _count(map_arrow(path), tally, letters, self.folds)

    def _with_users(self, rows: Rows, users: Lookup, public: bool) -> pa.Table:
        known = users(id_keys(numbers(rows.columns["user"])), is_present(rows.columns["user"]))
        part = np.full(len(rows.lines), PUBLIC)
        fold = (_draws(self.seed, "fold", rows.lines) * self.folds).astype(np.int64)
        if not public:
            held_out = _draws(self.seed, "validation", rows.lines) < self.validation
            part = np.where(held_out, VALIDATION, TRAIN)
            part[_draws(self.seed, "test", rows.lines) < self.test] = TEST
        columns = {name: rows.columns[name] for name in COLUMNS} | {name: known[name] for name in USER_COLUMNS[1:]}
        arrays = {"line": rows.lines, "part": part, "fold": fold, **columns}
        return pa.table({name: pa.chunked_array([_array(values)]) for name, values in arrays.items()}).cast(SCHEMA)


def _array(values: np.ndarray | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else pa.array(values)


def _first(rows: Rows, limit: int | None) -> Rows:
    """Returns the rows of the first `limit` lines of the file."""
    if limit is None:
        return rows
    kept = int(np.searchsorted(rows.lines, limit, side="right"))
    rejects = [reject for reject in rows.rejects if reject.line <= limit]
    return Rows(rows.columns.slice(0, kept), rows.lines[:kept], rejects)


def _draws(seed: int, purpose: str, lines: np.ndarray) -> np.ndarray:
    """Returns uniform draws, float64 [N] in [0, 1), as a hash of seed, purpose and line number (from 1)."""
    key = splitmix64(np.array([seed], np.uint64) ^ np.uint64(zlib.crc32(purpose.encode()) << 32))
    with np.errstate(over="ignore"):
        return (splitmix64(splitmix64(lines - 1) + key) >> np.uint64(11)) * 2.0**-53


def _count(table: pa.Table, tally: Tally, letters: list[str], folds: int) -> Counted:
    part, fold, clicks, impressions = (numbers(table[name]) for name in ("part", "fold", "click", "impressions"))
    train = part == TRAIN
    return Counted(
        tally,
        letters,
        np.bincount(part, minlength=4),
        _sums(part, clicks, 4),
        _sums(part, impressions, 4),
        _sums(fold[train], clicks[train], folds),
        _sums(fold[train], impressions[train], folds),
    )


def _sums(indices: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    sums = np.zeros(size, np.int64)
    np.add.at(sums, indices, values)
    return sums
