"""What a model answered to the test rows, row by row: kept by every run and every training of a sweep."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from common.errors import InputError, one_line
from common.files import atomic_path

LABEL, PROBABILITY, TAIL = "label", "probability", "tail"
SLICE = "slice."
_KEY = b"ctrpipe"


@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """One model on the test rows.

    Args:
        rows: Which rows these are: the same text for the same rows, whatever the model.
        labels, probabilities: By task, [N] each; the first task is the primary one.
        slices: By column, the value of each row as text.
        tail: Which rows are of the Tail slice, bool [N]; None where it was not asked for.
        tail_of: The slice's definition.
    """

    rows: str
    labels: dict[str, np.ndarray]
    probabilities: dict[str, np.ndarray]
    slices: dict[str, pa.Array] = dataclasses.field(default_factory=dict)
    tail: np.ndarray | None = None
    tail_of: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))


def write_scored(path: pathlib.Path, scored: ScoredRows, others: dict[str, np.ndarray] | None = None) -> None:
    """One Parquet file: `label` and `probability` of the primary task, those of others with `.<task>` behind, `tail`,
    `slice.<column>`; and columns of `others`. It has its name only when it is whole."""
    columns: dict[str, Any] = {}
    for index, task in enumerate(scored.labels):
        end = f".{task}" if index else ""
        columns[LABEL + end] = scored.labels[task].astype(np.float32)
        columns[PROBABILITY + end] = scored.probabilities[task].astype(np.float32)
    columns |= others or {}
    if scored.tail is not None:
        columns[TAIL] = scored.tail
    columns |= {SLICE + name: values for name, values in scored.slices.items()}
    about = {"rows": scored.rows, "tasks": list(scored.labels), "tail_of": scored.tail_of}
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about)})
    with atomic_path(path) as unfinished:
        pa.parquet.write_table(table, unfinished)


def read_scored(path: pathlib.Path) -> ScoredRows:
    """Reads what `write_scored` wrote. Raises InputError where it is something else, or damaged."""
    try:
        table = read_table(path)
        about = json.loads((table.schema.metadata or {})[_KEY])
        tasks = about["tasks"]
        ends = {task: f".{task}" if index else "" for index, task in enumerate(tasks)}
        return ScoredRows(
            about["rows"],
            {task: as_numpy(table[LABEL + end]) for task, end in ends.items()},
            {task: as_numpy(table[PROBABILITY + end]) for task, end in ends.items()},
            {name.removeprefix(SLICE): table[name] for name in table.column_names if name.startswith(SLICE)},
            as_numpy(table[TAIL].cast(pa.uint8())).astype(bool) if TAIL in table.column_names else None,
            about["tail_of"],
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (pa.ArrowException, LookupError, ValueError) as error:
        reason = one_line(error, 100)
        raise InputError(
            f"{path}: has no predictions that can be compared ({reason}); run `ctrpipe run` again"
        ) from error


def read_table(source: Any, columns: list[str] | None = None) -> pa.Table:
    """Reads a Parquet file as pyarrow.parquet.read_table does, which imports pandas: 0.2 s of a command's start."""
    return pa.parquet.ParquetFile(source).read(columns)


def as_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Returns numbers without a missing one as an array, `[N]`; pyarrow's to_numpy imports pandas as well."""
    return np.from_dlpack(column.combine_chunks())
