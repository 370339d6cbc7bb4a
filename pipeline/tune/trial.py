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
from ctrpipe.pipeline.training.checkpoint import saved_evaluations
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.pipeline.training.train import train

Judge = Callable[[dict[str, Any]], bool]


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """The result of a trial's training.

    Attributes:
        steps: Training steps done, without first stages.
        best: The metrics of its best evaluation. None if it was stopped or failed.
        stopped: Whether its judge stopped it.
        failure: The figure that was not finite in its training; "" if all were finite.
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
        judge: Takes the metrics of each evaluation, with the name of the `model`, and returns whether to stop. A
            resumed trial first passes the evaluations up to its checkpoint, because a killed process may have saved
            one without reporting it. `judge` also receives the evaluations of first stages, but cannot stop them.
    """
    steps = 0

    def report(numbers: dict[str, Any]) -> None:
        nonlocal steps
        own = numbers["model"] == config.model.name
        steps = numbers["step"] if own else steps
        if judge(numbers) and own:
            raise _Stopped

    rows = log.feature_map, log.train, log.validation
    try:
        for numbers in saved_evaluations(work):
            report({"model": config.model.name, **numbers})
        model = with_encoder(config.model, config.text)
        trained = train(
            TrainingJob(
                model,
                config.training,
                *rows,
                config.seed,
                str(stages),
                group_weight=config.evaluation.group_weight,
                start_vectors=log.start_vectors,
            ),
            work,
            report,
        )
        history = trained.history
        del trained
    except _Stopped:
        return TrialResult(steps, None, stopped=True)
    except NotFiniteError as error:
        return TrialResult(steps, None, failure=error.what)
    finally:
        keras.utils.clear_session()
        gc.collect()
    return TrialResult(history["evaluations"][-1]["step"], history["evaluations"][history["best"]])
