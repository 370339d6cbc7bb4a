"""`ctrpipe compare`: compares folders of runs, sweeps and scorings on the same test rows."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import throttled_announce
from ctrpipe.pipeline.compare.models import compare
from ctrpipe.pipeline.compare.shards import SHARDS
from ctrpipe.pipeline.compare.sources import read_sources

if TYPE_CHECKING:
    from ctrpipe.pipeline.config import RunConfig


def compare_folders(
    models: Sequence[Sequence[pathlib.Path]],
    task: str | None = None,
    shards: int = SHARDS,
    config: "RunConfig | None" = None,
) -> dict[str, Any]:
    """Compares models by their predictions on the same test rows.

    Args:
        models: For each model, the folders of its training runs, as in `read_sources`.
        task: The label to judge by. None: the first, with the others as further tasks.
        shards: Number of shards of the test rows, for t values.
        config: The log's configuration. Required for a scoring.

    Returns:
        The contents of the JSON file of `ctrpipe compare`.

    Raises:
        InputError: there are fewer than two models, a folder holds no finished run and no scoring, or the folders are
            not on the same test rows.
    """
    scored = read_sources([trainings for trainings in models if trainings], config)
    if len(scored) < 2:
        raise InputError("give two models or more: ctrpipe compare runs/a runs/b")
    return compare(scored, task, shards, throttled_announce())
