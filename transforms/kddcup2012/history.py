"""Counts clicks and impressions of training lines by key, and computes history features from the counts."""

import dataclasses
import pathlib

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.kddcup2012.layout import HISTORY
from ctrpipe.transforms.kddcup2012.lines import TRAIN
from ctrpipe.transforms.kddcup2012.tables import (
    KEY,
    Lookup,
    bucket_name,
    bucket_of,
    id_keys,
    is_present,
    map_arrow,
    numbers,
    pair_keys,
    sums_by_key,
    write_table,
)

_FOLD = "_fold"  # suffix of the table with the counts by key and fold


@dataclasses.dataclass(frozen=True)
class Total:
    """Clicks and impressions of all training lines, in total and by fold."""

    clicks: int
    impressions: int
    fold_clicks: tuple[int, ...]
    fold_impressions: tuple[int, ...]


TABLES = (*HISTORY, *(f"{name}{_FOLD}" for name in HISTORY))  # the names of the tables of counts


def key_of(lines: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys of lines in a table of TABLES, uint64 [N], and whether each line has a key, bool [N]."""
    if name.endswith(_FOLD):
        keys, present = key_of(lines, name.removesuffix(_FOLD))
        return pair_keys(keys, numbers(lines["fold"]).astype(np.uint64)), present
    columns = [lines[column] for column in HISTORY[name]]
    present = np.logical_and.reduce([is_present(column) for column in columns])
    ids = [numbers(column) for column in columns]
    return id_keys(ids[0]) if len(ids) == 1 else pair_keys(*ids), present


@dataclasses.dataclass(frozen=True)
class CountLines:
    """Sums the counts of a range of lines by key.

    Writes `<folder>/<table>/parts/<number>.arrow`, sorted by key.
    """

    lines: pathlib.Path
    folder: pathlib.Path

    def __call__(self, number: int) -> None:
        lines = map_arrow(self.lines / bucket_name(number))
        lines = lines.filter(pa.array(numbers(lines["part"]) == TRAIN)).combine_chunks()
        clicks, impressions = numbers(lines["click"]), numbers(lines["impressions"])
        for name in TABLES:
            keys, present = key_of(lines, name)
            _write(
                parts_of(self.folder, name) / bucket_name(number),
                sums_by_key(keys[present], clicks[present], impressions[present]),
            )


@dataclasses.dataclass(frozen=True)
class MergeCounts:
    """Sums the counts of all ranges for a bucket of a table, and writes `<folder>/<table>/<bucket>.arrow`."""

    folder: pathlib.Path
    bits: int

    def __call__(self, item: tuple[str, int]) -> None:
        name, bucket = item
        parts = bucket_of(sorted(parts_of(self.folder, name).glob("*.arrow")), bucket, self.bits)
        sums = sums_by_key(*(parts[column].to_numpy() for column in parts.column_names))
        _write(self.folder / name / bucket_name(bucket), sums)


def parts_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the folder of the counts by range of a table."""
    return folder / name / "parts"


def _write(path: pathlib.Path, sums: tuple[np.ndarray, ...]) -> None:
    write_table(path, pa.table(dict(zip((KEY, "clicks", "impressions"), sums, strict=True))))


class History:
    """Computes click-through rate and impressions of the ids of a line in the training lines.

    `ctr = (clicks + b p) / (impressions + b)`, where p is the overall click-through rate. All counts, including those
    of p, are out-of-fold: they exclude the training lines of the line's own fold. If no line outside the fold has
    the key, ctr is p.

    Every line gets a fold by a hash of its number, including validation and test lines, which are in no count, and
    lines scored in serving. The counts of all parts are thus sums over equally many folds, with the same distribution.
    If only training lines excluded a fold, the counts of test lines would be larger by a factor of folds / (folds - 1).

    Excluding only the line itself would leak its label: among 20,000 lines of one gender, the rate is slightly lower
    exactly if the excluded line was clicked. Trees on such features reach a training AUC of 0.99 and a test AUC of 0.5.
    All lines of a fold exclude the same sums, clicked or not.

    Args:
        folder, bits: Folder of the counts, and their number of bucket bits.
        total: Counts of all training lines.
        prior_impressions: b, the weight of the prior in impressions.
    """

    def __init__(self, folder: pathlib.Path, bits: int, total: Total, prior_impressions: float):
        self._tables = {name: Lookup(folder / name, bits) for name in TABLES}
        self._total = total
        self._prior_impressions = prior_impressions

    def columns(self, lines: pa.Table) -> dict[str, pa.Array]:
        """Returns `ctr_<key>` and `impressions_<key>`, float32 [N]; null if a line lacks an id of the key."""
        prior = self._prior(numbers(lines["fold"]))
        columns: dict[str, pa.Array] = {}
        for name in HISTORY:
            present, all_clicks, all_impressions = self._sums(lines, name)
            _, fold_clicks, fold_impressions = self._sums(lines, f"{name}{_FOLD}")
            clicks, impressions = all_clicks - fold_clicks, all_impressions - fold_impressions
            ctr = (clicks + self._prior_impressions * prior) / (impressions + self._prior_impressions)
            columns[f"ctr_{name}"] = pa.array(ctr.astype(np.float32), mask=~present)
            columns[f"impressions_{name}"] = pa.array(impressions.astype(np.float32), mask=~present)
        return columns

    def _prior(self, fold: np.ndarray) -> np.ndarray:
        clicks = self._total.clicks - np.array(self._total.fold_clicks)
        impressions = self._total.impressions - np.array(self._total.fold_impressions)
        rates: np.ndarray = (clicks / np.maximum(impressions, 1))[fold]
        return rates

    def _sums(self, lines: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        keys, present = key_of(lines, name)
        sums = self._tables[name](keys, present)
        return present, numbers(sums["clicks"]), numbers(sums["impressions"])
