"""Trains a linear model to its optimum (`optimizer: lbfgs`).

The strength of the L2 penalty is chosen by the log loss on unseen rows. The search begins with the strongest penalty,
each fit starts from the previous one, and the search ends when weaker penalties are no better. A few steps of a
stochastic optimizer may end far from the optimum, with a wrong mean prediction. Compared with such a baseline every
model looks good.
"""

import dataclasses
import functools
import math

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.finite import check_figures, check_predictions
from ctrpipe.models.lr import LR
from ctrpipe.pipeline.training.convergence import ALL_DONE
from ctrpipe.pipeline.training.data import count_rows, groups_of, packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.finite_learner import check_weights
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.linear_fit import COARSE, FOLDS, Fit, LinearRows, Weights
from ctrpipe.pipeline.training.process import Report
from ctrpipe.pipeline.training.progress import Progress
from ctrpipe.pipeline.training.validation import validation_metrics

# The variances of the prior that are tried: 0.001, 0.0032, 0.01, ...
FIRST, RATIO, MOST = 1e-3, math.sqrt(10), 15
PATIENCE = 2  # consecutive variances without an improvement after which a task's search ends
# With fewer clicks (or rows without one) among the validation rows, the choice also uses cross-validation on the
# training rows, because the log loss of 100 clicks has an error of 10%.
FEW = 300
# The search uses only so many training rows, and so many clicks (or rows without one) among them, because its variances
# are a factor of 3 apart. This takes a third off the time for a log of a million rows.
SEARCHED_ROWS, SEARCHED_CLICKS = 1 << 18, 20_000
_CLOSE = 1e-3  # largest difference of a logit between the fit, in float64, and the model, in float32

_ADAM = "set training.optimizer: adam"


@dataclasses.dataclass
class _Search:
    """A task's search for the variance.

    Attributes:
        task: The index of the task.
        own_l2: As in `LinearRows.fit`.
        last: The fit of the last variance.
        best, variance, loss: The fit with the lowest log loss on unseen rows, its variance, and this loss.
        waited: The number of variances since the best.
        iterations: The steps of all fits.
    """

    task: int
    own_l2: float
    last: Fit | None = None
    best: Fit | None = None
    variance: float = FIRST
    loss: float = math.inf
    waited: int = 0
    iterations: int = 0
    _of_folds: dict[int, Weights] = dataclasses.field(default_factory=dict)

    def fit(self, rows: LinearRows, variance: float) -> None:
        """Fits the training rows under the next variance."""
        start = self.last.weights if self.last else None
        self.last = rows.fit(self.task, variance, start, self.own_l2, decrease=COARSE)
        self.iterations += self.last.iterations

    def cross_validated(self, rows: LinearRows, variance: float) -> tuple[float, float]:
        """Returns the sum of the cross-validated log losses of the training rows, and the sum of their weights."""
        loss = total = 0.0
        for fold in range(FOLDS):
            start = self._of_folds.get(fold)
            fit = rows.fit(self.task, variance, start, self.own_l2, fold, COARSE)
            self._of_folds[fold] = fit.weights
            self.iterations += fit.iterations
            held_out = rows.loss(fit.weights, self.task, fold, held_out=True)
            loss, total = loss + held_out[0], total + held_out[1]
        return loss, total

    def record(self, variance: float, loss: float) -> None:
        """Makes the last fit the best one if its loss is lower."""
        self.waited += 1
        if self.best is None or loss < self.loss:
            self.best, self.variance, self.loss, self.waited = self.last, variance, loss, 0


@dataclasses.dataclass(frozen=True)
class LinearFit:
    """A trained linear model with the rows and the fits behind it.

    Attributes:
        result: The trained model.
        rows: The rows of the last fit.
        fits: The fit of each task.
        variances: The variance of the prior of each task.
    """

    result: TrainResult
    rows: LinearRows
    fits: list[Fit]
    variances: list[float]


def train_linear(job: TrainingJob, report: Report | None) -> TrainResult:
    """Trains a linear model, as `fit_linear` does."""
    return fit_linear(job, report).result


def fit_linear(job: TrainingJob, report: Report | None) -> LinearFit:
    """Trains a linear model, in this process. An interrupted training starts again.

    Args:
        job: The training job. If `training.table_l2` is set, it is the strength of the penalty, without a search.
        report: Called with the metrics on the validation rows for each variance.

    Raises:
        InputError: the model is not linear.
        NotFiniteError: a loss, a prediction or a weight is not finite.
    """
    learner = job.served_learner()
    network, tasks = learner.network, job.feature_map.tasks
    if not isinstance(network, LR):
        raise InputError(
            f"training.optimizer: lbfgs trains only linear models, such as lr; use adam for {job.model.name}"
        )
    validation = packed_batches(job.validation_files, job.feature_map, prediction_rows(job.feature_map))
    predict = functools.partial(learner.predict, validation)
    weights, groups = weights_of(job.validation_files), groups_of(job.validation_files)
    labels = predict()[0]
    count, fixed = count_rows(job.train_files), job.training.table_l2
    variances = [1 / (fixed * count)] if fixed else [FIRST * RATIO**index for index in range(MOST)]
    every = 1 if fixed else _searched_share(count, labels)
    rows = LinearRows(job.train_files, job.feature_map, every)
    known = _known_rows(labels, weights, rows.mean_weight)
    searches = [_Search(index, own_l2(job)) for index in range(len(tasks))]
    progress = Progress()

    def evaluate(fits: list[Fit], variance: float | None) -> list[float]:
        """Records the metrics on the validation rows, and returns the log loss of each task."""
        rows.load(network, [fit.weights for fit in fits])
        labels, probabilities = predict()
        in_order = job.feature_map.negative_sampling == 1
        check_predictions(job.model.name, probabilities, "validation", in_order=in_order, advice=_ADAM)
        metrics = validation_metrics(labels, probabilities, weights, tasks, groups, job.group_weight)
        steps = sum(search.iterations for search in searches)
        numbers = {"step": steps, "examples": steps * rows.count, "prior_variance": variance}
        numbers |= {"train_loss": float(np.mean([fit.loss for fit in fits])), **metrics}
        check_figures(job.model.name, numbers, _ADAM, "train")
        progress.evaluations.append(numbers)
        if report:
            report({"model": job.model.name, **numbers})
        names = [f"validation_{task}_log_loss" if index else "validation_log_loss" for index, task in enumerate(tasks)]
        losses = [metrics[name] for name in names]
        return [math.inf if loss is None else float(loss) for loss in losses]

    # 1. Fit the variances, from the smallest on.
    for variance in variances:
        searching = [search for search in searches if search.waited < PATIENCE]
        if not searching:
            break
        for search in searching:
            search.fit(rows, variance)
        losses = evaluate([search.last for search in searches if search.last], variance)
        for search in searching:
            loss, (few, total) = losses[search.task], known[search.task]
            if few < FEW and rows.is_small and len(variances) > 1:
                of_training = search.cross_validated(rows, variance)
                loss = (of_training[0] + (loss * total if total else 0)) / (of_training[1] + total)
            search.record(variance, loss)

    # 2. Fit each task's best to the end on all training rows, for a refit on the validation rows, too.
    if job.training.refit or every > 1:
        learnt = job.train_files + (job.validation_files if job.training.refit else [])
        del rows  # before more of them are read
        rows = LinearRows(learnt, job.feature_map)
    best = []
    for search in searches:
        assert search.best
        best.append(rows.fit(search.task, search.variance, search.best.weights, own_l2(job)))
    if not job.training.refit:
        evaluate(best, searches[0].variance if len(tasks) == 1 else None)
    progress.best = len(progress.evaluations) - 1
    rows.load(network, [fit.weights for fit in best])
    check_weights(job.model.name, learner, "after the training", _ADAM)
    if (distance := rows.distance(network, [fit.weights for fit in best])) > _CLOSE:
        raise InputError(
            f"training.optimizer: a logit of {job.model.name} is {distance:.2g} off the linear one; use adam"
        )
    chosen = ", ".join(f"{search.variance:.2g}" for search in searches)
    ended = "L-BFGS converged" if all(fit.converged for fit in best) else f"{ALL_DONE}iterations of L-BFGS done"
    progress.stopped = f"{ended}; variance of the prior {chosen}"
    result = TrainResult(job, learner, progress, trained_here=False)
    return LinearFit(result, rows, best, [search.variance for search in searches])


def own_l2(job: TrainingJob) -> float:
    """Returns the model's own penalty `l2` on the weights of a row's ids (see `LinearRows.fit`)."""
    return float(job.model.hyperparameters.get("l2", 0.0))


def _searched_share(rows: int, labels: np.ndarray) -> int:
    """Returns n if the search uses every n-th block of training rows.

    Args:
        rows: The number of training rows.
        labels: The validation rows' labels, `[N, tasks]`.
    """
    is_known = np.isfinite(labels)
    clicks = np.where(is_known, labels, 0.0).sum(axis=0)
    rarest = float(np.minimum(clicks, is_known.sum(axis=0) - clicks).min()) / max(len(labels), 1)
    needed = max(SEARCHED_ROWS, SEARCHED_CLICKS / max(rarest, 1e-9))
    return max(1, int(rows / needed))


def _known_rows(labels: np.ndarray, weights: np.ndarray | None, mean_weight: float) -> list[tuple[float, float]]:
    """Returns for each task the number of rows of its rarer class, and the weight of all its rows.

    Args:
        labels: The validation rows' labels, `[N, tasks]`.
        weights: Their weights, `[N]`; None: 1 for each row.
        mean_weight: The mean weight of the training rows, which is the unit of the weights.
    """
    counted = []
    for values in labels.T:
        is_known = np.isfinite(values)
        clicks = float(values[is_known].sum())
        total = float(is_known.sum())
        if weights is not None:
            total = float(weights[is_known].sum(dtype=np.float64)) / mean_weight
        counted.append((min(clicks, is_known.sum() - clicks), total))
    return counted
