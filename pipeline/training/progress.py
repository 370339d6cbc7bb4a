"""The progress of a training run: its evaluations, the best of them, and when to stop."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.monitors import BY_GROUP
from ctrpipe.pipeline.config import Training

_COMBINED = {"auc_minus_log_loss": (-1, "log_loss"), "auc_plus_gauc": (1, "gauc")}  # AUC, and a second metric's sign


@dataclasses.dataclass
class Progress:
    """The progress of a training run, saved in a checkpoint together with the learner's state."""

    evaluation: int = 0  # the number of evaluations due so far, including those without a step in an epoch of few steps
    best: int | None = None  # the index of the best evaluation in `evaluations`
    best_value: float = math.inf  # of the monitored metric; lower is better (all but the log loss are negated)
    waited: int = 0  # evaluations since the best
    plateau_waited: int = 0  # evaluations since the best, or since the learning rate was lowered
    learning_rate: float = 0.0
    stopped: str = ""  # the reason for the stop; "" during training
    not_finite: str = ""  # the figure whose NaN or infinite value stopped the training; "" for none
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    seconds: float = dataclasses.field(default=0.0, compare=False)  # up to the last evaluation, of all processes

    @property
    def improved(self) -> bool:
        """Returns whether the last evaluation is the best one."""
        return self.waited == 0

    def record(self, training: Training, numbers: dict[str, Any]) -> None:
        """Records an evaluation: updates the best, lowers the learning rate at a plateau, or stops the training.

        Args:
            training: The monitored metric, and the settings of early stopping and of the plateau.
            numbers: The metrics of the evaluation.

        Raises:
            InputError: the monitored metric is not defined on the validation rows.
        """
        value = measured(training.monitor, numbers)
        if value is None:
            if training.monitor in BY_GROUP:
                raise InputError("training.monitor: no group of the validation rows has both classes; monitor auc")
            raise InputError("training.monitor: the validation rows have one class only, so no AUC; monitor log_loss")
        value = value if training.monitor == "log_loss" else -value
        self.evaluations.append(numbers)
        self.evaluation += 1
        if training.decay == "cosine":
            self.learning_rate = cosine_rate(training, self.evaluation)
        if value < self.best_value:
            self.best, self.best_value = len(self.evaluations) - 1, value
            self.waited = self.plateau_waited = 0
            return
        self.waited += 1
        self.plateau_waited += 1
        if self.waited >= training.patience:
            self.stopped = f"{training.monitor} did not improve for {training.patience} evaluations"
        elif training.decay == "plateau" and training.plateau and self.plateau_waited >= training.plateau.patience:
            lowered = max(self.learning_rate * training.plateau.factor, training.plateau.minimum)
            self.learning_rate, self.plateau_waited = lowered, 0


def first_rate(training: Training) -> float:
    """Returns the learning rate of the steps before the first evaluation."""
    return cosine_rate(training, 0) if training.decay == "cosine" else training.learning_rate


def cosine_rate(training: Training, evaluation: int) -> float:
    """Returns the learning rate of the steps before an evaluation: half a cosine from `learning_rate` to 0.

    It is the cosine at the middle of these steps, so neither the first nor the last steps are at an end of the cosine
    (Loshchilov and Hutter 2017, equation 5, without restarts).

    Args:
        training: The settings of the training.
        evaluation: The number of evaluations before these steps.
    """
    share = (evaluation + 0.5) / (training.epochs * training.evaluations_per_epoch)
    return training.learning_rate * (1 + math.cos(math.pi * min(share, 1.0))) / 2


def measured(monitor: str, numbers: Mapping[str, Any]) -> float | None:
    """Returns the monitored metric of an evaluation; None if it is not defined on the validation rows.

    Args:
        monitor: A value of `training.monitor`.
        numbers: The metrics of the evaluation.
    """
    if monitor not in _COMBINED:
        value: float | None = numbers.get(f"validation_{monitor}")
        return value
    sign, other = _COMBINED[monitor]
    auc, beside = numbers["validation_auc"], numbers.get(f"validation_{other}")
    return None if auc is None or beside is None else float(auc) + sign * float(beside)
