"""Reads predictions to compare: of a run's folder, of a file that a sweep left, of a scoring's folder."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.errors import InputError
from pipeline.evaluation.scored_rows import ScoredRows, read_scored

if TYPE_CHECKING:
    from pipeline.config import RunConfig

SUMMARY = "_summary.json"


def read_sources(paths: Sequence[pathlib.Path], config: "RunConfig | None") -> dict[str, ScoredRows]:
    """Returns the predictions at each path, by a name: the path's last part, or the whole path where two are alike.

    Args:
        paths: Folders of runs or of scorings, or files that a sweep left in `results`.
        config: The log's configuration, which a scoring needs: it says which columns are labels, and by what to slice.

    Raises:
        InputError: a path holds no predictions or comes twice, or a scoring is given without a configuration.
    """
    if len(set(paths)) < len(paths):
        raise InputError("the same folder is named twice; compare one run with another")
    short = [path.stem if path.suffix == ".parquet" else path.resolve().name for path in paths]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    return {name: _read(path, config) for name, path in zip(names, paths, strict=True)}


def _read(path: pathlib.Path, config: "RunConfig | None") -> ScoredRows:
    if path.is_file():
        return read_scored(path)
    if (path / SUMMARY).exists():
        if config is None:
            raise InputError(f"{path}: a scoring has no labels; give --config, the configuration of the log")
        from pipeline.compare.scoring import read_scoring  # 0.2 s, which comparing runs does without

        return read_scoring(path, config)
    kept = path / "report_data" / "predictions.parquet"
    if not kept.exists():
        raise InputError(
            f"{path}: no finished run and no scoring here; give folders of `ctrpipe run` or `ctrpipe score`"
        )
    return read_scored(kept)
