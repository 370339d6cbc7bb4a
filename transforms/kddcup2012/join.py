"""Joins lines with all tables and writes the rows of the log."""

import dataclasses
import pathlib
import shutil
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.files import make_unique_folder
from ctrpipe.transforms.kddcup2012.history import History, Total
from ctrpipe.transforms.kddcup2012.layout import IDS, NUMBERS, PARTS, PUBLIC_TEST, TEXTS, TOKEN_TABLES, WEIGHTS
from ctrpipe.transforms.kddcup2012.tables import Lookup, bucket_name, id_keys, is_present, map_arrow, numbers
from ctrpipe.transforms.kddcup2012.tokens import shared_tokens
from ctrpipe.transforms.log.payload import PayloadWriter

_LINES = 1 << 16  # joined per step
_ROWS = 1 << 16  # written per batch
# The columns of the joined log.
SCHEMA = pa.schema(
    [
        ("click", pa.int8()),
        *((name, pa.string()) for name in ("part", "position", *IDS, *TEXTS)),
        *((name, pa.float32()) for name in NUMBERS),
    ]
)


@dataclasses.dataclass(frozen=True)
class Joined:
    """The result of joining a range.

    Attributes:
        files: Written files, in order.
        rows: Number of rows.
        without_partner: Number of lines with an id that the table lacks, by table.
    """

    files: list[pathlib.Path]
    rows: int
    without_partner: Counter[str]


@dataclasses.dataclass(frozen=True)
class Join:
    """Writes the rows of a range of lines, one per impression, as Parquet files in a separate folder.

    Args:
        lines: Folder of the lines.
        history: Folder and bucket bits of the counts.
        tokens: Folder and bucket bits of each table of token lists.
        output: Parent folder of the range's folder.
        total, prior_impressions: See History.
        stem: Prefix of the file names.
    """

    lines: pathlib.Path
    history: tuple[pathlib.Path, int]
    tokens: dict[str, tuple[pathlib.Path, int]]
    output: pathlib.Path
    total: Total
    prior_impressions: float
    stem: str

    def __call__(self, number: int) -> Joined:
        history = History(*self.history, self.total, self.prior_impressions)
        tokens = {name: Lookup(*table) for name, table in self.tokens.items()}
        lines = map_arrow(self.lines / bucket_name(number))
        folder = make_unique_folder(self.output / f"{number:05d}")
        absent: Counter[str] = Counter()
        rows = 0
        with PayloadWriter(folder, f"{self.stem}-{number:05d}", SCHEMA) as writer:
            for start in range(0, len(lines), _LINES):
                chunk = lines.slice(start, _LINES).combine_chunks()
                joined = _join(chunk, history, tokens, absent)
                for batch in _samples(joined, numbers(chunk["click"]), numbers(chunk["impressions"])):
                    writer.write(batch.cast(SCHEMA))
                    rows += batch.num_rows
        return Joined(writer.parts, rows, absent)


def _join(lines: pa.Table, history: History, tokens: dict[str, Lookup], absent: Counter[str]) -> pa.Table:
    """Returns one row per line, with all columns except click."""
    part = pa.array([*PARTS, PUBLIC_TEST]).take(lines["part"].combine_chunks())
    columns: dict[str, pa.Array] = {"part": part}
    for name in ("position", *IDS):
        columns[name] = lines[name].combine_chunks().cast(pa.string())
    columns |= history.columns(lines)
    lists = {}
    for name in TOKEN_TABLES:
        present = is_present(lines[name])
        matched = tokens[name](id_keys(numbers(lines[name])), present)
        lists[name] = matched["tokens"].combine_chunks()
        absent[name] += int((present & ~is_present(matched["tokens"])).sum())
        for number in ("length", *WEIGHTS):
            columns[f"{name}_{number}"] = matched[number].combine_chunks()
    absent["user"] += int((is_present(lines["user"]) & ~is_present(lines["gender"])).sum())
    columns["shared_tokens"] = shared_tokens(lists["query"], lists["title"])
    columns["query_tokens"] = lists["query"]
    # A URL is one token, with a prefix to distinguish it from title tokens. null_handling would drop rows of nulls.
    url = pc.binary_join_element_wise("u", columns["url"], "").cast(pa.large_string())
    both = [values.fill_null("") for values in (lists["title"], url)]
    columns["ad_tokens"] = pc.utf8_trim(pc.binary_join_element_wise(*both, pa.scalar("|", pa.large_string())), "|")
    return pa.table(columns)


def _samples(joined: pa.Table, clicks: np.ndarray, impressions: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yields one row per impression, in line order; within a line, clicked rows come first."""
    counts = np.stack([clicks, impressions - clicks], axis=1).ravel()  # clicked and other rows, line by line
    labels = np.tile(np.array([1, 0], np.int8), len(clicks))
    line_indices = np.repeat(np.arange(len(clicks)), 2)
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]) if len(ends) else 0, _ROWS):
        indices = np.searchsorted(ends, np.arange(start, min(start + _ROWS, ends[-1])), side="right")
        rows = joined.take(pa.array(line_indices[indices])).append_column("click", pa.array(labels[indices]))
        yield rows.select(SCHEMA.names).combine_chunks().to_batches()[0]


def move_parts(parts: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Moves the files of all ranges to the log folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in parts:
        shutil.move(path, folder / path.name)
