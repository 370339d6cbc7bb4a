"""The results of a run or a scoring, in a form that can be compared regardless of the order of the rows."""

import hashlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = tuple[int, int]
"""How many rows, and a number that is the same for the same rows in any order."""


def packed_rows(files: Iterable[pathlib.Path]) -> Rows:
    """Returns the rows of packed files: the sum of the rows' hashes, modulo 2^128, tells lost and doubled ones too."""
    count = total = 0
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches():
            count += batch.num_rows
            rows = map(b"".join, zip(*(column.to_pylist() for column in batch.columns), strict=True))
            total += sum(int.from_bytes(hashlib.blake2b(row, digest_size=16).digest()) for row in rows)
    return count, total % 2**128


def results(run: pathlib.Path) -> dict[str, Any]:
    """Returns a run's packed rows by split, its vocabularies and its metrics."""
    files = sorted(run.glob("tfx/**/packed-*.parquet"))
    splits = {path.parent.name for path in files}
    metrics = json.loads((run / "metrics.json").read_text())
    return {
        "rows": {split: packed_rows(path for path in files if path.parent.name == split) for split in sorted(splits)},
        "vocabularies": {path.name: path.read_text() for path in run.glob("tfx/**/transform_fn/assets/vocabular*")},
        "metrics": {name: value for name, value in metrics.items() if name != "model_version"},
    }


def scores(folder: pathlib.Path) -> pa.Table:
    """Returns the file, line and probability of each row that was scored, in order."""
    table = pq.read_table(folder, columns=["file", "line", "ctr"])
    return table.sort_by([("file", "ascending"), ("line", "ascending")])
