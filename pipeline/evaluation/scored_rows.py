"""A model's predictions on the test rows.

Each run and each trial of a sweep writes them for comparisons.
"""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_path
from ctrpipe.common.metrics import summarise, summarise_numbers

LABEL, PROBABILITY, TAIL, WEIGHT, GROUP = "label", "probability", "tail", "weight", "group"
BASELINE_PROBABILITY = "baseline_probability"  # of the first task
SLICE = "slice."
_KEY = b"ctrpipe"


@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """The labels and one model's click probabilities of the test rows.

    Args:
        rows: The identity of the rows. Models with equal texts were scored on the same rows.
        labels, probabilities: Values by task, [N] each; the first task is the primary one. A label that is missing is
            NaN.
        slices: The values of each slicing column as text, [N] each.
        tail: Whether each row is in the Tail slice, bool [N]; None without this slice.
        tail_of: The definition of the Tail slice.
        weights: Row weights, [N]; None for 1.
        separators: By slicing column of several values in a row, their separator.
        groups: The group's number of each row, int64 [N]; None without groups. See ctrpipe.transforms.log.groups.
        group_weight: What a group's AUC is weighted by in gAUC.
        numbers: The tasks that predict a number, whose labels and predictions are numbers.
    """

    rows: str
    labels: dict[str, np.ndarray]
    probabilities: dict[str, np.ndarray]
    slices: dict[str, pa.Array] = dataclasses.field(default_factory=dict)
    tail: np.ndarray | None = None
    tail_of: dict[str, Any] | None = None
    weights: np.ndarray | None = None
    separators: dict[str, str] = dataclasses.field(default_factory=dict)
    groups: np.ndarray | None = None
    group_weight: str = "impressions"
    numbers: tuple[str, ...] = ()

    def summary(self, task: str) -> dict[str, float | int | None]:
        """Returns the metrics of a task."""
        of = summarise_numbers if task in self.numbers else summarise
        return of(self.labels[task], self.probabilities[task], self.weights)

    def labelled(self, task: str) -> "ScoredRows":
        """Returns the rows that have a label of the task."""
        known = self.known(task)
        if known.all():
            return self
        return dataclasses.replace(
            self,
            labels={name: values[known] for name, values in self.labels.items()},
            probabilities={name: values[known] for name, values in self.probabilities.items()},
            slices={name: values.filter(pa.array(known)) for name, values in self.slices.items()},
            tail=None if self.tail is None else self.tail[known],
            weights=None if self.weights is None else self.weights[known],
            groups=None if self.groups is None else self.groups[known],
        )

    def known(self, task: str) -> np.ndarray:
        """Returns whether each row has a label of the task, bool [N]: the label is not NaN."""
        known: np.ndarray = ~np.isnan(self.labels[task])
        return known

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))


def baseline_column(tasks: list[str], task: str) -> str:
    """Returns the column of a baseline's predictions of a task, in a file with the predictions of a run."""
    return BASELINE_PROBABILITY + (f".{task}" if task != tasks[0] else "")


def write_scored(path: pathlib.Path, scored: ScoredRows, others: dict[str, np.ndarray] | None = None) -> None:
    """Writes the rows to a Parquet file with an atomic rename.

    Columns: `label` and `probability` of the primary task, `label.<task>` and `probability.<task>` of the other tasks,
    `weight`, `group`, `tail`, `slice.<column>`, and the columns of `others`.
    """
    columns: dict[str, Any] = {}
    for index, task in enumerate(scored.labels):
        end = f".{task}" if index else ""
        columns[LABEL + end] = scored.labels[task].astype(np.float32)
        columns[PROBABILITY + end] = scored.probabilities[task].astype(np.float32)
    columns |= others or {}
    if scored.weights is not None:
        columns[WEIGHT] = scored.weights.astype(np.float32)
    if scored.groups is not None:
        columns[GROUP] = scored.groups
    if scored.tail is not None:
        columns[TAIL] = scored.tail
    columns |= {SLICE + name: values for name, values in scored.slices.items()}
    about = {"rows": scored.rows, "tasks": list(scored.labels), "tail_of": scored.tail_of}
    about |= {"separators": scored.separators, "group_weight": scored.group_weight, "numbers": list(scored.numbers)}
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about)})
    with atomic_path(path) as unfinished:
        pa.parquet.write_table(table, unfinished)


def read_scored(path: pathlib.Path) -> ScoredRows:
    """Reads a file of `write_scored`. Raises InputError if it is damaged or another kind of file."""
    try:
        table = read_table(path)
        about = json.loads((table.schema.metadata or {})[_KEY])
        tasks = about["tasks"]
        ends = {task: f".{task}" if index else "" for index, task in enumerate(tasks)}
        probabilities = {task: as_numpy(table[PROBABILITY + end]) for task, end in ends.items()}
        for task, values in probabilities.items():
            if not np.isfinite(values).all():
                raise ValueError(f"a prediction of {task} is not a finite number")
        return ScoredRows(
            about["rows"],
            {task: as_numpy(table[LABEL + end]) for task, end in ends.items()},
            probabilities,
            {name.removeprefix(SLICE): table[name] for name in table.column_names if name.startswith(SLICE)},
            as_numpy(table[TAIL].cast(pa.uint8())).astype(bool) if TAIL in table.column_names else None,
            about["tail_of"],
            as_numpy(table[WEIGHT]) if WEIGHT in table.column_names else None,
            about.get("separators", {}),  # a file of an older release has none
            as_numpy(table[GROUP]) if GROUP in table.column_names else None,
            about.get("group_weight", "impressions"),
            tuple(about.get("numbers", ())),
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (pa.ArrowException, LookupError, ValueError) as error:
        reason = one_line(error, 100)
        raise InputError(
            f"{path}: has no predictions that can be compared ({reason}); run `ctrpipe run` again"
        ) from error


def about_rows(table: pa.Table) -> dict[str, Any]:
    """Returns the properties of a table of scored rows, such as the `separators` of its slicing columns."""
    about: dict[str, Any] = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    return about


def read_table(source: object, columns: list[str] | None = None) -> pa.Table:
    """Reads a Parquet file without pandas, which pyarrow.parquet.read_table imports in 0.2 s."""
    return pa.parquet.ParquetFile(source).read(columns)


def as_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Returns a numeric column without missing values as an array [N].

    Unlike pyarrow's to_numpy, it does not import pandas.
    """
    return np.from_dlpack(column.combine_chunks())
