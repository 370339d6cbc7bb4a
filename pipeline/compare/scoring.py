"""Reads the rows of a folder of `ctrpipe score`, with the labels of the log that was scored."""

import hashlib
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.elements import MISSING
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.serving.scoring.folder import SUMMARY, score_columns
from ctrpipe.transforms.log.groups import group_numbers
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.weighted import names_alone


def read_scoring(folder: pathlib.Path, config: RunConfig) -> ScoredRows:
    """Returns the rows of a scoring, with the labels of the log that was scored. Malformed rows are left out.

    Args:
        folder: A folder that `ctrpipe score` wrote.
        config: The log's configuration, with its labels and the columns to slice by.

    Raises:
        InputError: a file is damaged, a score is not finite, the log is missing, or a scored row has no label.
    """
    columns = score_columns(list(config.data.labels))
    try:
        table = pa.concat_tables([pa.parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])
        scores = {task: table[column] for task, column in columns.items()}
        table = table.select(["file", "line"])
        of_columns = json.loads((folder / SUMMARY).read_text()).get("scores", {}) if (folder / SUMMARY).exists() else {}
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        reason = one_line(error, 100)
        raise InputError(f"{folder}: no scoring of a log with these labels ({reason})") from error
    for task, column in columns.items():
        if first := of_columns.get(column, {}).get("first_not_finite"):
            raise _not_finite(folder, task, first)
    valid = pc.is_valid(next(iter(scores.values())))
    table = table.filter(valid)
    for task, values in scores.items():
        if len(wrong := np.flatnonzero(~np.isfinite(values.filter(valid).to_numpy()))):
            file, line = (table[name][int(wrong[0])].as_py() for name in ("file", "line"))
            raise _not_finite(folder, task, f"{file}:{line}")
    names = pc.unique(table["file"]).to_pylist()
    files, lines = table["file"].to_numpy(), table["line"].to_numpy()
    rows = pa.concat_tables([_lines_of(name, lines[files == name], config) for name in names])
    return ScoredRows(
        hashlib.sha256(repr(names).encode() + lines.tobytes()).hexdigest()[:16],
        {task: rows[config.data.columns_by_task[task]].to_numpy() for task in scores},
        {task: values.filter(valid).to_numpy() for task, values in scores.items()},
        {name: _as_text(rows[name], name, config.log_spec) for name in config.evaluation.slices},
        weights=rows[config.data.weight].to_numpy() if config.data.weight else None,
        groups=group_numbers(rows[config.evaluation.group]) if config.evaluation.group else None,
        group_weight=config.evaluation.group_weight,
        separators={
            name: separator
            for name, separator in config.log_spec.separators.items()
            if name in config.evaluation.slices
        },
        numbers=tuple(config.data.number_tasks),
    )


def _not_finite(folder: pathlib.Path, task: str, place: str) -> InputError:
    return InputError(
        f"{folder}: the score of {task} for {place} is not a finite number; correct that row, or score with another "
        "model"
    )


def _lines_of(file: str, lines: np.ndarray, config: RunConfig) -> pa.Table:
    """Returns the labels, the weight and the slice columns of some lines of a raw file, in their order."""
    group = [config.evaluation.group] if config.evaluation.group else []
    columns = list(dict.fromkeys([*config.log_spec.target_columns, *config.evaluation.slices, *group]))
    batches, known = [], []
    for batch in LogReader(config.log_spec).read(file):
        batches.append(batch.rows.select(columns))
        known.append(batch.lines)
    numbers = np.concatenate([*known, np.empty(0, np.int64)])
    places = np.searchsorted(numbers, lines)
    if len(numbers) <= places.max(initial=-1) or (numbers[places] != lines).any():
        raise InputError(f"{file}: rows that were scored are no longer there, or malformed under this configuration")
    return pa.Table.from_batches(batches).take(places)


def _as_text(values: pa.ChunkedArray, column: str, spec: LogSpec) -> pa.ChunkedArray:
    """Returns the values of a slicing column, without weights."""
    texts = values.cast(pa.string()).fill_null(MISSING)
    if before := spec.weight_separators.get(column):
        return pa.chunked_array([names_alone(texts.to_pylist(), spec.separators[column], before)], pa.string())
    return texts
