"""Reads user and token-list tables into buckets, and computes TF x IDF of the token lists."""

import dataclasses
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.kddcup2012.layout import WEIGHTS
from ctrpipe.transforms.kddcup2012.read import TablePart, Tally, read_part
from ctrpipe.transforms.kddcup2012.tables import (
    KEY,
    Lookup,
    bucket_name,
    bucket_of,
    id_keys,
    map_arrow,
    numbers,
    sort_by_key,
    write_table,
)
from ctrpipe.transforms.log.batches import Reject

_PARTS = "parts"
_SINGLE = "single"
_COUNTS = "tokens"
_ALL_COUNTS = "tokens.arrow"
_TOKENS = pa.schema([("token", pa.large_string()), ("lists", pa.int64())])


@dataclasses.dataclass(frozen=True)
class ReadTable:
    """Writes the rows of a range of a table, sorted by key, to `<folder>/<table>/parts/<number>.arrow`."""

    folder: pathlib.Path

    def __call__(self, part: TablePart) -> tuple[Tally, list[str]]:
        tally, letters, tables = Tally(), [], []
        folder = self.folder / part.table.columns[0] / _PARTS
        for rows in read_part(part):
            tally.lines += len(rows.lines) + len(rows.rejects)
            letters += tally.reject(part.range.path, rows.rejects)
            keys = id_keys(numbers(rows.columns[part.table.columns[0]]))
            tables.append(rows.columns.append_column(KEY, pa.array(keys)).append_column("line", pa.array(rows.lines)))
        write_table(folder / bucket_name(part.number), sort_by_key(pa.concat_tables(tables).combine_chunks()))
        return tally, letters


def _without_repeats(folder: pathlib.Path, path: str, bucket: int, bits: int) -> tuple[pa.Table, Tally, list[str]]:
    """Returns the rows of a bucket with unique ids, sorted by key, and the repeated ids as malformed lines."""
    rows = sort_by_key(bucket_of(sorted((folder / _PARTS).glob("*.arrow")), bucket, bits))
    keys = rows[KEY].to_numpy()
    is_first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    firsts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    lines = rows["line"].to_numpy()
    names = [name for name in rows.column_names if name not in (KEY, "line")]
    rejects = []
    for row in np.flatnonzero(~is_first).tolist():
        values = [rows[name][row].as_py() for name in names]
        reason = f"the id comes again, found first in line {lines[firsts[row]]}"
        text = "\t".join("" if value is None else str(value) for value in values)
        rejects.append(Reject(int(lines[row]), reason, text))
    tally = Tally()
    letters = tally.reject(path, rejects)
    return rows.filter(pa.array(is_first)).drop_columns(["line"]), tally, letters


def make_folders(folder: pathlib.Path) -> None:
    """Creates the folders that the steps write a table to."""
    for name in (_PARTS, _SINGLE, _COUNTS):
        (folder / name).mkdir(parents=True, exist_ok=True)


@dataclasses.dataclass(frozen=True)
class MergeUsers:
    """Writes the users of a bucket, with gender and age, to `<folder>/<bucket>.arrow`."""

    folder: pathlib.Path
    path: str
    bits: int

    def __call__(self, bucket: int) -> tuple[Tally, list[str]]:
        rows, tally, letters = _without_repeats(self.folder, self.path, bucket, self.bits)
        write_table(self.folder / bucket_name(bucket), rows)
        return tally, letters


@dataclasses.dataclass(frozen=True)
class Merged:
    """Counts of `merge_tokens`: repeated ids, and documents (lists that training lines refer to)."""

    tally: Tally
    letters: list[str]
    documents: int


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A bucket of a table of token lists.

    Attributes:
        folder: Folder of the table.
        path: Source file of the lists, named in dead letters.
        number, bits: Bucket number: the leading `bits` bits of its keys.
        history: Folder and bucket bits of the training counts by the same id.
    """

    folder: pathlib.Path
    path: str
    number: int
    bits: int
    history: tuple[pathlib.Path, int]


def merge_tokens(bucket: Bucket) -> Merged:
    """Writes the lists of a bucket and the document counts of its tokens.

    Lists with unique ids are written to `<folder>/single/<bucket>.arrow`, counts to `<folder>/tokens/<bucket>.arrow`. A
    document is a list that training lines refer to.
    """
    folder, name = bucket.folder, bucket_name(bucket.number)
    rows, tally, letters = _without_repeats(folder, bucket.path, bucket.number, bucket.bits)
    write_table(folder / _SINGLE / name, rows)
    seen = Lookup(*bucket.history)(rows[KEY].to_numpy())["impressions"].is_valid()
    documents = rows["tokens"].filter(seen)
    codes = _Codes(documents)
    lists = np.bincount(codes.pairs()[1], minlength=len(codes.tokens))
    write_table(folder / _COUNTS / name, pa.table([codes.tokens, lists], schema=_TOKENS))
    return Merged(tally, letters, len(documents))


def merge_token_counts(folder: pathlib.Path) -> None:
    """Sums the document counts of all buckets and writes `<folder>/tokens.arrow`."""
    counts = pa.concat_tables([map_arrow(path) for path in sorted((folder / _COUNTS).glob("*.arrow"))])
    sums = counts.group_by("token").aggregate([("lists", "sum")]).rename_columns(_TOKENS.names)
    write_table(folder / _ALL_COUNTS, sums.cast(_TOKENS))


def weigh_tokens(item: tuple[Bucket, int]) -> None:
    """Writes the lists of a bucket, with length and TF x IDF, to `<folder>/<bucket>.arrow`.

    TF x IDF of a token in a list is its count in the list times
    `ln((1 + documents) / (1 + documents with the token)) + 1`, the IDF. A list gets the sum and the maximum over its
    distinct tokens, and the mean, which is the sum divided by its length.

    Args:
        item: The bucket, and the number of documents in the whole table.
    """
    bucket, documents = item
    rows = map_arrow(bucket.folder / _SINGLE / bucket_name(bucket.number))
    counts = map_arrow(bucket.folder / _ALL_COUNTS)
    codes = _Codes(rows["tokens"])
    index = pc.index_in(codes.tokens, value_set=counts["token"].combine_chunks())
    idf = np.log((1 + documents) / (1 + numbers(counts["lists"].take(index)))) + 1
    row, token, counts_in_list = codes.pairs()
    weights = counts_in_list * idf[token]
    lengths = np.bincount(codes.rows, minlength=len(rows))
    sums = np.bincount(row, weights, len(rows))
    largest = np.zeros(len(rows))
    np.maximum.at(largest, row, weights)
    weighed = {"length": lengths, **dict(zip(WEIGHTS, (sums, sums / np.maximum(lengths, 1), largest), strict=True))}
    for name, values in weighed.items():
        rows = rows.append_column(name, pa.array(values.astype(np.float32)))
    write_table(bucket.folder / bucket_name(bucket.number), rows.select([KEY, "tokens", *weighed]))


class _Codes:
    """Token lists [N] with tokens encoded as integers.

    Attributes:
        tokens: The distinct tokens.
        rows, codes: int64, for each token of each list: row of the list, and index of the token in `tokens`.
    """

    def __init__(self, lists: pa.ChunkedArray):
        split = pc.split_pattern(lists.combine_chunks(), "|")
        coded = split.flatten().dictionary_encode()
        self.tokens = coded.dictionary
        self.codes = coded.indices.to_numpy().astype(np.int64)
        self.rows = pc.list_parent_indices(split).to_numpy()

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns row and token of the distinct pairs, sorted, and the count of each pair."""
        size = max(len(self.tokens), 1)
        pairs, counts_in_list = np.unique(self.rows * size + self.codes, return_counts=True)
        return pairs // size, pairs % size, counts_in_list


def shared_tokens(first: pa.Array, second: pa.Array) -> pa.Array:
    """Returns the number of distinct tokens that two lists [N] share, float32 [N]; null if a list is null."""
    count = len(first)
    codes = _Codes(pa.chunked_array([first, second]))
    row, token, _ = codes.pairs()
    size = max(len(codes.tokens), 1)
    in_first, in_second = row < count, row >= count
    common = np.intersect1d(
        row[in_first] * size + token[in_first], (row[in_second] - count) * size + token[in_second], assume_unique=True
    )
    shared = np.bincount(common // size, minlength=count).astype(np.float32)
    absent = pc.or_(first.is_null(), second.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(shared, mask=absent)
