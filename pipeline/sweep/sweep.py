"""`ctrpipe sweep`: runs a plan's training, and summarizes the results."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.pipeline.sweep.plan import SweepPlan
from ctrpipe.pipeline.sweep.run import run_sweep
from ctrpipe.pipeline.sweep.summary import summarise_sweep, write_sweep


def sweep(plan: SweepPlan, data: Sequence[str], output: pathlib.Path, keep_models: bool = False) -> dict[str, Any]:
    """Trains every point of a plan on the same data. The same call resumes an interrupted sweep.

    Args:
        plan: The points and seeds.
        data: The log's files and globs. Empty for the files of the configuration.
        output: The folder for sweep.json, sweep.csv, sweep.svg and each model's predictions on the test rows.
        keep_models: Whether to save every trained model.

    Returns:
        The contents of sweep.json.

    Raises:
        InputError: the data, a point or the folder cannot be used.
    """
    files = joined(data or plan.base.data.paths, plan.base, output)
    summary = summarise_sweep(plan, run_sweep(plan, files, output, keep_models))
    write_sweep(summary, output)
    return summary
