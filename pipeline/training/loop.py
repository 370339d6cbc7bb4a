"""The training loop of all backends: trains a part of an epoch, evaluates, and repeats until the progress stops it."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from ctrpipe.common.errors import NotFiniteError
from ctrpipe.common.finite import check_loss
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.convergence import ALL_DONE, COSINE_ENDED
from ctrpipe.pipeline.training.data import count_rows, groups_of, packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.finite_learner import check_evaluation
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.pipeline.training.progress import Progress
from ctrpipe.pipeline.training.validation import validation_metrics


@dataclasses.dataclass(frozen=True)
class _Epoch:
    """One pass over the rows, in parts with the same number of steps. An evaluation follows each part.

    Args:
        rows: The number of rows.
        steps: The number of steps.
        interval: The number of steps in a part; the last part may have fewer.
    """

    rows: int
    steps: int
    interval: int

    @classmethod
    def of(cls, files: list[str], batch_size: int, parts: int) -> "_Epoch":
        """Returns the epoch of the rows of some files, in at most `parts` parts."""
        rows = count_rows(files)
        steps = math.ceil(rows / batch_size)
        return cls(rows, steps, math.ceil(steps / parts))

    @property
    def parts(self) -> int:
        """Returns the number of parts, at most one per step."""
        return math.ceil(self.steps / self.interval)


def train_and_evaluate(
    job: TrainingJob, learner: Learner, average: WeightAverage, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Trains until the progress stops it, and yields the metrics of each evaluation.

    The progress is up to date when an evaluation is yielded. A training run that resumes from there has the same
    weights.

    Args:
        job: The training job.
        learner: The learner, with the weights of the progress.
        average: The average of the weights at all evaluations so far.
        progress: The progress so far; updated in place.

    Raises:
        InputError: AUC is monitored and the validation rows have one class only.
        NotFiniteError: a number of an evaluation is not finite, and `training.not_finite` is `fail` or no evaluation
            came before.
    """
    training, files = job.training, job.validation_files
    epoch = _Epoch.of(job.train_files, training.batch_size, training.evaluations_per_epoch)
    validation = packed_batches(files, job.feature_map, prediction_rows(job.feature_map))
    weights, groups = weights_of(files), groups_of(files)
    while not progress.stopped:
        number, part = divmod(progress.evaluation, training.evaluations_per_epoch)
        if number >= training.epochs:
            ended = COSINE_ENDED if training.decay == "cosine" else f"{ALL_DONE}{training.epochs} epochs done"
            progress.stopped = ended
        elif part >= epoch.parts:
            progress.evaluation += 1
        else:
            first = part * epoch.interval
            learner.learning_rate = progress.learning_rate
            loss = learner.fit(job.data(job.train_files, number, first, epoch.interval))
            average.add(learner, len(progress.evaluations) + 1)
            with average.loaded(learner):
                labels, probabilities = learner.predict(validation)
            done = number * epoch.steps + min(first + epoch.interval, epoch.steps)
            measured = validation_metrics(
                *(labels, probabilities, weights, job.feature_map.tasks, groups, job.group_weight),
                numbers=[number.task for number in job.feature_map.number_tasks],
            )
            try:
                when = f"in epoch {number + 1} (step {done:,})"
                check_evaluation(job, learner, when, loss, probabilities, measured)
            except NotFiniteError as error:
                if training.not_finite == "fail" or progress.best is None:
                    raise
                progress.not_finite, progress.stopped = error.what, "a number was not finite"
                return
            numbers = {
                "step": done,
                "examples": int(done / epoch.steps * epoch.rows),
                "train_loss": loss,
                **measured,
                "learning_rate": progress.learning_rate,
            }
            progress.record(training, numbers)
            yield numbers


def train_again_on_all_rows(job: TrainingJob, learner: Learner, progress: Progress) -> None:
    """Trains on training and validation rows, with the epochs and learning rates that led to the best evaluation.

    Args:
        job: The training job.
        learner: An untrained learner of the job.
        progress: The progress at the end of the training.

    Raises:
        NotFiniteError: the training loss is not finite.
    """
    training, files = job.training, job.train_files + job.validation_files
    # A short epoch has fewer evaluations than configured: at most one per step.
    evaluations = _Epoch.of(job.train_files, training.batch_size, training.evaluations_per_epoch).parts
    epoch = _Epoch.of(files, training.batch_size, evaluations)
    average = WeightAverage(training.averaged_evaluations)
    for index, numbers in enumerate(progress.evaluations[: (progress.best or 0) + 1]):
        number, part = divmod(index, evaluations)
        if part < epoch.parts:
            learner.learning_rate = numbers["learning_rate"]
            loss = learner.fit(job.data(files, number, part * epoch.interval, epoch.interval))
            check_loss(job.model.name, loss, f"in epoch {number + 1} of the training on all rows")
        average.add(learner, index + 1)
    if average.span > 1:
        learner.load_weights(average.of(learner.weights()))
