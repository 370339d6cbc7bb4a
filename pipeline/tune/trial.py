"""Trains one trial, which may be stopped after any evaluation."""

import dataclasses
import gc
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from ctrpipe.common.errors import NotFiniteError
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.pipeline.training.train import train

Judge = Callable[[dict[str, Any]], bool]


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """The result of a trial's training.

    Attributes:
        steps: Training steps done, including first stages.
        best: The metrics of its best evaluation. None if it was stopped or failed.
        stopped: Whether its judge stopped it.
        failure: What was not finite in its training; "" for nothing.
    """

    steps: int
    best: dict[str, Any] | None
    stopped: bool = False
    failure: str = ""


class _Stopped(Exception):
    """Raised inside a training run to end it."""


def train_trial(
    config: RunConfig, log: TransformedLog, work: pathlib.Path, stages: pathlib.Path, judge: Judge
) -> TrialResult:
    """Trains a configuration on the training rows, and evaluates it on the validation rows. Reads no test rows.

    Args:
        config: The trial's configuration.
        log: The transformed log.
        work: Folder of the checkpoint. Training resumes from a checkpoint in it.
        stages: Folder of first stages, shared by the trials of one process.
        judge: Takes the metrics of each evaluation, and returns whether to stop.
    """
    steps: dict[str, int] = {}

    def report(numbers: dict[str, Any]) -> None:
        model = numbers["model"]
        steps[model] = numbers.get("step", 0)
        if model == config.model.name and judge(numbers):
            raise _Stopped

    rows = log.feature_map, log.train, log.validation
    try:
        model = with_encoder(config.model, config.text)
        trained = train(TrainingJob(model, config.training, *rows, config.seed, str(stages)), work, report)
        history = trained.history
        del trained
    except _Stopped:
        return TrialResult(sum(steps.values()), None, stopped=True)
    except NotFiniteError as error:
        return TrialResult(sum(steps.values()), None, failure=error.what)
    finally:
        keras.utils.clear_session()
        gc.collect()
    steps[config.model.name] = history["evaluations"][-1]["step"]
    return TrialResult(sum(steps.values()), history["evaluations"][history["best"]])
