"""Whether a model is worse than the last blessed one by more than the noise of test rows and of training runs.

A metric of a trained model has two kinds of noise. Other test rows give another value. So does another training run of
the same configuration: its seed draws other initial weights and another order of rows. A test that ignores the second
kind calls two training runs of one model different far more often than its level.

References:
    Obuchowski and Rockette, "Hypothesis testing of diagnostic accuracy for multiple readers and multiple tests", 1995:
    rows crossed with training runs, which are nested in models.
    Hillis, "A marginal-mean ANOVA approach for analyzing multireader multicase radiological imaging data", 2014.
"""

import dataclasses
import math
import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import Estimate
from ctrpipe.common.processes import Workers
from ctrpipe.common.significance import quantile
from ctrpipe.pipeline.evaluation.predictions import predict, prediction_column
from ctrpipe.transforms.log.payload import read_payload

# Standard deviation of a metric over training runs that differ by their seeds, where the run has measured none: of the
# AUC, and of the log loss as a share of it. Most training runs on small logs have smaller ones (docs/measured.md).
STATED = {"auc": 0.002, "gauc": 0.002, "log_loss": 0.002}
# Fewer measured degrees of freedom than this say too little, and are pooled with as many of the stated noise.
ENOUGH_FREEDOM = 4
RETRAINED = "retrained"  # the folder of their predictions, and their name in prediction_column


@dataclasses.dataclass(frozen=True)
class NoisyDifference:
    """A difference of two models in a metric: the second model's mean over training runs minus the first's.

    Attributes:
        value: The difference on the test rows.
        standard_error: Its standard error over other test rows and other training runs.
        freedom: Degrees of freedom of the standard error. None if none of it is estimated from training runs.
        noise: A text about the source of the noise of training runs.
    """

    value: float
    standard_error: float
    freedom: float | None
    noise: str

    def at_least(self, confidence: float) -> float:
        """Returns the difference's one-sided lower confidence limit."""
        return self.value - quantile(confidence, self.freedom) * self.standard_error


def noisy_difference(first: Sequence[Estimate], second: Sequence[Estimate], stated: float) -> NoisyDifference:
    """Returns the difference of two models with the noise of test rows and of training runs.

    With S_1 and S_2 training runs, the variance is |c_1 - c_2|^2 + s^2 (1 / S_1 + 1 / S_2). c_m are the mean components
    of a model's estimates, so the first term is the variance over rows. s^2 is the variance of the metric over
    training runs, pooled over both models and reduced by the part that is due to the rows.

    With fewer than ENOUGH_FREEDOM degrees of freedom, s^2 is pooled with the stated variance; with none, it is the
    stated variance. The degrees of freedom of the total are Satterthwaite's.

    Args:
        first: The first model's estimates on the same rows, one per training run.
        second: The second model's estimates.
        stated: Standard deviation of the metric over training runs, used if there are too few to estimate it.
    """
    sides = (first, second)
    values = [np.array([estimate.value for estimate in side]) for side in sides]
    means = [np.mean([estimate.components for estimate in side], axis=0) for side in sides]
    of_rows = float(np.sum((means[1] - means[0]) ** 2))
    share = sum(1 / len(side) for side in sides)
    measured = sum(len(side) - 1 for side in sides)
    value = float(values[1].mean() - values[0].mean())
    if not measured:
        error = math.sqrt(of_rows + share * stated**2)
        return NoisyDifference(value, error, None, f"with a stated noise of training runs of {stated:.2g}")
    squares = sum(float(np.sum((each - each.mean()) ** 2)) for each in values)
    # Two training runs also differ by the errors that each makes on these rows alone. of_rows has them already.
    alone = sum(_apart(side, mean) for side, mean in zip(sides, means, strict=True))
    of_trainings, noise = max(squares - alone, 0.0) / measured, f"noise of {measured + 2} training runs"
    freedom = float(measured)
    if measured < ENOUGH_FREEDOM:
        freedom += ENOUGH_FREEDOM
        of_trainings = (measured * of_trainings + ENOUGH_FREEDOM * stated**2) / freedom
        noise += f" and a stated one of {stated:.2g}"
    variance = of_rows + share * of_trainings
    estimated = share * max(of_trainings, squares / measured if measured >= ENOUGH_FREEDOM else 0.0)
    free = (variance / estimated) ** 2 * freedom if estimated else None
    return NoisyDifference(value, math.sqrt(variance), free, noise)


def _apart(trainings: Sequence[Estimate], mean: np.ndarray) -> float:
    """Returns the part of the trainings' sum of squares that is expected from the rows."""
    return float(sum(np.sum((estimate.components - mean) ** 2) for estimate in trainings))


def retrained_probabilities(
    versions: Sequence[pathlib.Path],
    files: Sequence[pathlib.Path],
    task: str,
    folder: pathlib.Path,
    workers: Workers,
) -> list[np.ndarray]:
    """Returns the probabilities of a task, `[N]`, that earlier versions give the test rows.

    The versions are loaded one after the other, so that memory holds one model.

    Args:
        versions: The versions' folders. Versions that are missing, cannot read the rows or lack the task are skipped.
        files: The payload files of the test rows.
        task: The task.
        folder: An existing folder for temporary files.
        workers: The processes that predict.
    """
    probabilities = []
    work, column = folder / RETRAINED, prediction_column(RETRAINED, task)
    for version in filter(pathlib.Path.exists, versions):
        try:
            predicted = predict({RETRAINED: version}, files, [], work, workers)
            if column in pa.parquet.read_schema(predicted[0]).names:
                probabilities.append(pa.Table.from_batches(read_payload(predicted, [column]))[column].to_numpy())
        except InputError:  # it reads other columns, and is no training of the same configuration
            continue
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return probabilities
