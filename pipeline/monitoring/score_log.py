"""`ctrpipe score`: scores a raw log, and compares it with the rows that the model was trained on."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence

from ctrpipe.common.errors import InputError
from ctrpipe.common.extras import missing
from ctrpipe.common.progress import log_announced
from ctrpipe.common.stores import is_url
from ctrpipe.serving.scoring.folder import DEAD_LETTER, stored_scoring, unread_rows_removed
from ctrpipe.serving.scoring.score import Compare, ScoreResult, score


def score_log(
    model: pathlib.Path,
    inputs: Sequence[str],
    output: pathlib.Path | str,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> ScoreResult:
    """Scores a raw log, with or without labels. If TFDV is installed, measures each column's drift from training.

    Args:
        model: The folder of a model's versions (the newest is used), or one version.
        inputs: The log's files and globs.
        output: The output folder, see `ctrpipe.serving.scoring.score.score`, or its URL in a store. After an
            interruption, the same call resumes.
        workers: Number of parts to score in parallel. None: one for each core.
        beam_args: Arguments for Beam. If there are any, Beam scores the parts.
        kept: Columns of the log to copy next to the scores.

    Raises:
        InputError: as in `ctrpipe.serving.scoring.score.score`; or no line could be scored.
    """
    place = contextlib.nullcontext(pathlib.Path(output)) if not is_url(output) else stored_scoring(str(output))
    with log_announced("ctrpipe.serving.scoring.score"), place as folder, unread_rows_removed(folder):
        sample_rows, compare = _drift()
        result = score(model, list(inputs), folder, beam_args, workers, sample_rows, compare, kept)
    result = dataclasses.replace(result, output=output)
    if not result.scored:
        why = f"{output}/{DEAD_LETTER} says why; is it a log of this model?"
        raise InputError(f"none of {result.rows:,} lines could be scored: {why}")
    return result


def _drift() -> tuple[int, Compare]:
    """Returns the number of rows to sample for drift and the function that compares them; 0 rows without TFDV."""
    if missing("pipeline"):
        return 0, lambda version, files, rows, rejected: None
    from ctrpipe.pipeline.monitoring.scored_drift import SAMPLE_ROWS, compare_with_training  # lazy: TFDV takes 2 s

    return SAMPLE_ROWS, compare_with_training
