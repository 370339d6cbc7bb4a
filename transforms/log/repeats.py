"""Finds duplicate rows in a log, for example after a file was joined to itself.

Equal rows are not always duplicates: a user may have two impressions in a second, or a log may have few columns with
few values. The labels of such rows differ by chance; the labels of duplicates do not. The test therefore uses the rows
whose label is not the most frequent one. They are duplicates if rows with equal features have the same label far more
often than by chance.
"""

import dataclasses
import math
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ctrpipe.common.hashing import hash_values
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.payload import payload_rows, plain, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import CHANCE, Suspect
from ctrpipe.transforms.log.words import WHOLE_ROW

MOST_ROWS = 1_000_000  # whose columns are all hashed: a few seconds
LEAST_COPIES = 0.01  # of the rows of the log, or of the test rows
LEAST_AGREEING = 0.9  # of the rows with the same features, that have the same label
_CHOSEN_BY = 3  # columns that choose the rows of a larger log
_NULL = (1 << 32) - 1
_ROWS_PER_SECOND = 400_000  # of a process, with 40 columns
_ROWS_READ_PER_SECOND = 1_000_000


@dataclasses.dataclass(frozen=True)
class HashedRows:
    """Rows of a split: uint64 hashes of their features and of all their columns, and their first label, all `[N]`."""

    features: np.ndarray
    whole: np.ndarray
    labels: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence["HashedRows"]) -> "HashedRows":
        """Returns the rows of all parts, at least one."""
        return cls(
            np.concatenate([part.features for part in parts]),
            np.concatenate([part.whole for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )


@dataclasses.dataclass(frozen=True)
class _Part:
    spec: LogSpec
    file: pathlib.Path
    chosen_by: tuple[str, ...]
    every: int


def hash_rows(
    spec: LogSpec, rows: Iterable[pa.RecordBatch], chosen_by: Sequence[str] = (), every: int = 1
) -> HashedRows:
    """Hashes checked rows.

    Args:
        spec: The description of the log.
        rows: Batches with the columns of `payload_schema`.
        chosen_by: The columns whose values select the rows, so either all copies of a row are selected or none.
        every: One in `every` rows is selected.
    """
    parts = [HashedRows(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.float32))]
    rest = [column for column in spec.feature_columns if column not in chosen_by]
    for batch in rows:
        features = _hashes(batch, chosen_by)
        if every > 1:
            chosen = np.flatnonzero(features % np.uint64(every) == 0)
            batch, features = batch.take(pa.array(chosen)), features[chosen]
        features = features ^ _hashes(batch, rest)
        labels = batch[spec.label_columns[0]].to_numpy(zero_copy_only=False)
        parts.append(HashedRows(features, features ^ _hashes(batch, spec.target_columns), labels))
    return HashedRows.joined(parts)


def hash_payload(spec: LogSpec, files: Mapping[str, Sequence[pathlib.Path]], workers: Workers) -> dict[str, HashedRows]:
    """Returns the hashed rows of each split of a payload, about MOST_ROWS of them at most.

    Args:
        spec: The description of the log.
        files: The files of each split.
        workers: Read the files.
    """
    total = sum(map(payload_rows, files.values()))
    every = -(-total // MOST_ROWS)
    chosen_by = _most_different(spec, files) if every > 1 else ()
    splits = [(split, file) for split, of_split in files.items() for file in of_split]
    seconds = total / every / _ROWS_PER_SECOND + total / _ROWS_READ_PER_SECOND
    hashed = workers.map(_hash_part, [_Part(spec, file, chosen_by, every) for _, file in splits], seconds)
    return {
        name: HashedRows.joined([part for (split, _), part in zip(splits, hashed, strict=True) if split == name])
        for name in files
        if files[name]
    }


def _hash_part(part: _Part) -> HashedRows:
    return hash_rows(part.spec, read_payload([part.file], as_dictionaries=True), part.chosen_by, part.every)


def _most_different(spec: LogSpec, files: Mapping[str, Sequence[pathlib.Path]]) -> tuple[str, ...]:
    """Returns the _CHOSEN_BY feature columns with the most distinct values in the first rows."""
    first = next(read_payload([file for of_split in files.values() for file in of_split]))
    different = {column: len(plain(first[column]).unique()) for column in spec.feature_columns}
    return tuple(sorted(different, key=lambda column: -different[column])[:_CHOSEN_BY])


def _hashes(batch: pa.RecordBatch, columns: Sequence[str]) -> np.ndarray:
    """Returns a hash of the values of some columns in each row, uint64 `[N]`."""
    hashes = np.zeros(batch.num_rows, np.uint64)
    for column in columns:
        values = batch[column]
        if pa.types.is_floating(values.type):
            numbers = values.fill_null(math.nan).to_numpy(zero_copy_only=False).astype(np.float32)
            codes = np.where(np.isnan(numbers), _NULL, numbers.view(np.uint32))
        else:
            encoded = values if pa.types.is_dictionary(values.type) else plain(values).dictionary_encode()
            words = encoded.dictionary.to_pylist()
            table = np.array([*map(zlib.crc32, words), _NULL], np.uint64)
            codes = table[encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
        hashes ^= hash_values(column, codes)
    return hashes


def repeats(rows: Mapping[str, HashedRows]) -> Iterator[Suspect]:
    """Yields the findings about duplicate rows of a log.

    Args:
        rows: The rows of each split, by its name.
    """
    if not rows or not _are_copies(HashedRows.joined(list(rows.values()))):
        return
    whole = np.concatenate([split.whole for split in rows.values()])
    copies = 1 - len(np.unique(whole)) / len(whole)
    of_test = _share_in(rows, "test", "train")
    if max(copies, of_test) >= LEAST_COPIES:
        again = f", and {of_test:.1%} of the test rows are training rows too" if of_test else ""
        text = f"{copies:.1%} are copies of another row, label and all{again}: metrics are then too good or too sure"
        yield Suspect(WHOLE_ROW, "all", f"{text}; remove the copies from the log")


def _share_in(rows: Mapping[str, HashedRows], split: str, other: str) -> float:
    """Returns the share of a split's rows that are in another split too."""
    if split not in rows or other not in rows or not len(rows[split].whole):
        return 0.0
    return float(np.isin(rows[split].whole, rows[other].whole).mean())


def _are_copies(rows: HashedRows) -> bool:
    """Returns whether rows with the same features have the same label more often than by chance."""
    known = np.isfinite(rows.labels)
    labels, of_label = np.unique(rows.labels[known], return_inverse=True)
    if len(labels) < 2:
        return False
    shares = np.bincount(of_label) / len(of_label)
    rare = of_label != np.argmax(shares)
    _, group, alike = np.unique(rows.features[known], return_inverse=True, return_counts=True)
    _, place, same = np.unique(rows.whole[known], return_inverse=True, return_counts=True)
    rarest = np.delete(shares, np.argmax(shares))
    # A row of a rare label shares it with another one by the mean of the rates, weighted by themselves: the root is a
    # generous bound.
    chance = math.sqrt(float((rarest**2).sum() / rarest.sum()))
    # Rows that are alike by chance are often those of a few frequent values, in large groups; of a row that is the only
    # one of its kind, a file that is read twice makes a pair.
    for size in np.unique(alike[group][rare]):
        looked_at = rare & (alike[group] == size)
        groups, of_group = np.unique(group[looked_at], return_inverse=True)
        agreeing = np.bincount(of_group, same[place][looked_at] - 1) / np.bincount(of_group) / max(size - 1, 1)
        agree = float(np.mean(agreeing))
        if agree >= LEAST_AGREEING and len(groups) * _divergence(agree, chance) > -math.log(CHANCE):
            return True
    return False


def _divergence(share: float, chance: float) -> float:
    """Returns the Kullback-Leibler divergence of two Bernoulli distributions; 0 if the share does not exceed chance.

    By Chernoff's bound, n draws reach the share with a probability of at most exp(-n * divergence).
    """
    if share <= chance:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * math.log(share / chance) + rest
