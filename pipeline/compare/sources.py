"""Reads the predictions to compare, from folders of runs, sweeps and scorings."""

import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored
from ctrpipe.serving.layout import run_of

if TYPE_CHECKING:
    from ctrpipe.pipeline.config import RunConfig

SUMMARY = "_summary.json"
SWEEP = "sweep.json"


def read_sources(models: Sequence[Sequence[pathlib.Path]], config: "RunConfig | None") -> dict[str, list[ScoredRows]]:
    """Returns the predictions of each model's training runs, by the model's name.

    A training run is named by the last part of its path, or by the whole path if two are equal. A model of several
    training runs is named by the folder that holds them all, or by its first run. The folder of a sweep contributes
    all its points, one model each.

    Args:
        models: For each model, the folders of its runs (or of what they pushed) or scorings, or files that a sweep left
            in `results`.
        config: The log's configuration, with the label and slice columns. Required for a scoring.

    Raises:
        InputError: a path holds no predictions or comes twice, or a scoring is given without a configuration.
    """
    models = [[run_of(path) for path in trainings] for trainings in models]
    paths = [path for trainings in models for path in trainings]
    if len(set(paths)) < len(paths):
        raise InputError("the same folder is named twice; compare one run with another")
    sources: dict[str, list[pathlib.Path]] = {}
    for trainings in models:
        for name, files in (_points(trainings) or {_name(trainings, paths): list(trainings)}).items():
            sources[f"{trainings[0]}: {name}" if name in sources else name] = files
    return {name: [_read(path, config) for path in trainings] for name, trainings in sources.items()}


def _points(trainings: Sequence[pathlib.Path]) -> dict[str, list[pathlib.Path]]:
    """Returns the files of a sweep by point if the path is a finished sweep's folder, otherwise {}.

    Raises:
        InputError: the sweep's summary is damaged, or its predictions were removed.
    """
    [folder, *others] = trainings
    summary = folder / SWEEP
    if others or not summary.is_file():
        return {}
    try:
        points = json.loads(summary.read_text())["points"]
        return {
            point["name"]: [folder / "results" / pathlib.Path(run["predictions"]).name for run in point["runs"]]
            for point in points
        }
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{summary}: has no predictions that can be compared ({one_line(error, 100)}); run `ctrpipe sweep` again"
        ) from error


def _name(trainings: Sequence[pathlib.Path], paths: Sequence[pathlib.Path]) -> str:
    if len(trainings) > 1 and len(parents := {path.resolve().parent for path in trainings}) == 1:
        [parent] = parents
        if all(path in trainings for path in paths if path.resolve().parent == parent):
            return parent.name
    short = [_last_part(path) for path in paths]
    first = trainings[0]
    return _last_part(first) if short.count(_last_part(first)) == 1 else str(first)


def _last_part(path: pathlib.Path) -> str:
    return path.stem if path.suffix == ".parquet" else path.resolve().name


def _read(path: pathlib.Path, config: "RunConfig | None") -> ScoredRows:
    if path.is_file():
        return read_scored(path)
    if (path / SUMMARY).exists():
        if config is None:
            raise InputError(f"{path}: a scoring has no labels; give --config, the configuration of the log")
        from ctrpipe.pipeline.compare.scoring import read_scoring  # lazy: takes 0.2 s, and runs are compared without it

        return read_scoring(path, config)
    kept = path / "report_data" / "predictions.parquet"
    if not kept.exists():
        raise InputError(
            f"{path}: no finished run and no scoring here; give folders of `ctrpipe run`, `sweep` or `score`"
        )
    return read_scored(kept)
