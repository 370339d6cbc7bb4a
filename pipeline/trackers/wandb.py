"""Logs a run to Weights & Biases: configuration, metrics by step, the report and the model.

Without WANDB_MODE, the run is written offline to WANDB_DIR or to the run's own folder. `wandb sync` uploads it later.
"""

import os
from typing import Any

from ctrpipe.common.extras import require
from ctrpipe.pipeline.run.finished import FinishedRun
from ctrpipe.pipeline.trackers.mlflow import numbers


def track(run: FinishedRun) -> str:
    """Logs the run, and returns where it is.

    Raises:
        InputError: the extra wandb is not installed.
    """
    require("wandb", "the tracker wandb")
    import wandb  # lazy: of the extra wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    folder = os.environ.get("WANDB_DIR", str(run.folder))
    made = wandb.init(project=run.name, name=run.name, mode=mode, dir=folder, config=dict(run.config), reinit=True)
    try:
        for each in run.history:
            made.log(dict(numbers(each)), step=each["step"])
        made.summary.update({f"test_{name}": value for name, value in numbers(run.metrics)})
        report = wandb.Artifact(f"{run.name}-report", "report")
        report.add_file(str(run.folder / "report.html"))
        made.log_artifact(report)
        if run.version:
            model = wandb.Artifact(run.name, "model", metadata={"columns": dict(run.columns)})
            model.add_dir(str(run.version))
            made.log_artifact(model)
    finally:
        made.finish()
    return str(made.dir if mode == "online" else folder)
