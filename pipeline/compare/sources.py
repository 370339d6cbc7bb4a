"""Where comparable answers lie: the folder of a run, a file of a sweep's, the folder of a scoring."""

import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from common.errors import InputError, one_line
from pipeline.config import RunConfig
from pipeline.evaluation.scored_rows import ScoredRows, read_scored
from serving.scoring.folder import score_columns
from transforms.log.readers import LogReader

SUMMARY = "_summary.json"


def read_sources(paths: Sequence[pathlib.Path], config: RunConfig | None) -> dict[str, ScoredRows]:
    """Returns the sources by a name for each path: its last part, where that tells them apart.

    Args:
        paths: Folders of runs or of scorings, or files that a sweep left in `results`.
        config: Of the log, where scorings are compared: it says which columns are labels, and by what to slice.

    Raises:
        InputError: a path holds no answers, comes twice, or there is a scoring and no configuration.
    """
    if len(set(paths)) < len(paths):
        raise InputError("the same folder is named twice; compare one run with another")
    short = [path.stem if path.suffix == ".parquet" else path.resolve().name for path in paths]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    return {name: _read(path, config) for name, path in zip(names, paths, strict=True)}


def _read(path: pathlib.Path, config: RunConfig | None) -> ScoredRows:
    if path.is_file():
        return read_scored(path)
    if (path / SUMMARY).exists():
        if config is None:
            raise InputError(f"{path}: a scoring has no labels; give --config, the configuration of the log")
        return read_scoring(path, config)
    kept = path / "report_data" / "predictions.parquet"
    if not kept.exists():
        raise InputError(
            f"{path}: no finished run and no scoring here; give folders of `ctrpipe run` or `ctrpipe score`"
        )
    return read_scored(kept)


def read_scoring(folder: pathlib.Path, config: RunConfig) -> ScoredRows:
    """Returns the scored rows of a scoring, with the labels of the log that was scored. Malformed rows are left out.

    Raises:
        InputError: a file is damaged, or the log is no longer there, or has no label where it was scored.
    """
    columns = score_columns(list(config.data.labels))
    try:
        table = pa.concat_tables([pa.parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])
        scores = {task: table[column] for task, column in columns.items()}
        table = table.select(["file", "line"])
    except (pa.ArrowException, OSError, LookupError) as error:
        reason = one_line(error, 100)
        raise InputError(f"{folder}: no scoring of a log with these labels ({reason})") from error
    valid = pc.is_valid(next(iter(scores.values())))
    table = table.filter(valid)
    names = pc.unique(table["file"]).to_pylist()
    files, lines = table["file"].to_numpy(), table["line"].to_numpy()
    rows = pa.concat_tables([_lines_of(name, lines[files == name], config) for name in names])
    return ScoredRows(
        hashlib.sha256(repr(names).encode() + lines.tobytes()).hexdigest()[:16],
        {task: rows[config.data.labels[task]].to_numpy() for task in scores},
        {task: values.filter(valid).to_numpy() for task, values in scores.items()},
        {name: _as_text(rows[name]) for name in config.evaluation.slices},
    )


def _lines_of(file: str, lines: np.ndarray, config: RunConfig) -> pa.Table:
    """Returns the labels and the columns to slice by of some lines of a raw file, in their order."""
    columns = [*config.log_spec.label_columns, *config.evaluation.slices]
    batches, known = [], []
    for batch in LogReader(config.log_spec).read(file):
        batches.append(batch.rows.select(columns))
        known.append(batch.lines)
    numbers = np.concatenate([*known, np.empty(0, np.int64)])
    places = np.searchsorted(numbers, lines)
    if len(numbers) <= places.max(initial=-1) or (numbers[places] != lines).any():
        raise InputError(f"{file}: rows that were scored are no longer there, or malformed under this configuration")
    return pa.Table.from_batches(batches).take(places)


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(pa.string()).fill_null("(missing)")
