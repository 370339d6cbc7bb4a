"""Trains boosted trees on the weights of a logistic regression (the model `lightgbm`).

The trees learn from weights that were fitted without the row's fold, and are served the weights of all training rows.
With weights that know the row's label they would trust rare values, whose weight is little else than this label.
"""

import dataclasses
from typing import Any

import numpy as np

from ctrpipe.common.finite import SMALLER_STEPS, check_figures, check_predictions
from ctrpipe.common.metrics import log_loss
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.models.lightgbm import LightGBM
from ctrpipe.models.lr import LR
from ctrpipe.pipeline.config import Model
from ctrpipe.pipeline.training.boosting import grow, load_lightgbm, store
from ctrpipe.pipeline.training.convergence import ALL_DONE
from ctrpipe.pipeline.training.data import packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.finite_learner import check_weights
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.learner import split_weight
from ctrpipe.pipeline.training.linear import fit_linear, own_l2
from ctrpipe.pipeline.training.linear_fit import COARSE, FOLDS, Fit, LinearRows
from ctrpipe.pipeline.training.process import Report
from ctrpipe.pipeline.training.validation import validation_metrics

PATIENCE = 30  # trees without an improvement on the validation rows that end the boosting
EVALUATED = 20  # trees from one evaluation to the next
_CLOSE = 1e-4  # largest difference of a logit between LightGBM's trees and those in the model
_CHECKED = 10_000  # rows that are compared


@dataclasses.dataclass(frozen=True)
class _Stacked:
    """Rows as the trees see them: values `[N, features]`, labels `[N]`, weights `[N]` or None."""

    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None

    def dataset(self, reference: Any = None) -> Any:
        """Returns the rows as LightGBM takes them."""
        return load_lightgbm().Dataset(self.values, self.labels, weight=self.weights, reference=reference)


def train_stacked(job: TrainingJob, report: Report | None) -> TrainResult:
    """Trains a model `lightgbm`, in this process. An interrupted training starts again.

    Args:
        job: The training job. Of `training` only `table_l2`, `refit` and `distillation` have an effect.
        report: Called with the metrics on the validation rows, for each strength of the regression's penalty, and then
            for every EVALUATED trees.

    Raises:
        InputError: OpenMP's library is absent.
        NotFiniteError: a loss, a prediction or a weight is not finite.
    """
    load_lightgbm()  # fails here, not after the regression
    # 1. The regression, and the trees on its weights until the validation rows end them.
    options = {name: value for name, value in job.model.hyperparameters.items() if name in LR.options()}
    linear = dataclasses.replace(
        job, model=Model(name="lr", **options), training=job.with_training(refit=False).training
    )
    fitted = fit_linear(linear, report)
    [variance], [fit], progress = fitted.variances, fitted.fits, fitted.result.progress
    learner = job.served_learner()
    network = learner.network
    assert isinstance(network, LightGBM)
    train = _out_of_fold(job, fitted.rows, job.train_files, network, fit, variance)
    validation = _whole(job, job.validation_files, network)
    data = train.dataset()
    booster = grow(
        network.trees, data, validation.dataset(data), network.trees.trees, job.seed, _settings(network), PATIENCE
    )
    count = store(network.trees, booster)
    network.are_trained.assign([1.0])
    _check_trees(network, booster, validation)

    # 2. Evaluate some numbers of trees, the best one last.
    for trees in [*range(EVALUATED, count, EVALUATED), count]:
        numbers = _evaluation(job, booster, trees, train, validation)
        progress.evaluations.append(numbers)
        if report:
            report({"model": job.model.name, **numbers})
    progress.best = len(progress.evaluations) - 1
    ended = (
        f"{ALL_DONE}{count} trees" if count == network.trees.trees else f"log_loss did not improve after {count} trees"
    )
    progress.stopped = f"{ended}; variance of the regression's prior {variance:.2g}"

    # 3. Again on all rows for a refit, with as many trees.
    if job.training.refit:
        files = job.train_files + job.validation_files
        rows = LinearRows(files, job.feature_map)
        again = rows.fit(0, variance, fit.weights, own_l2(job))
        data = _out_of_fold(job, rows, files, network, again, variance).dataset()
        store(network.trees, grow(network.trees, data, None, count, job.seed, _settings(network), PATIENCE))
    check_weights(job.model.name, learner, "after the training", SMALLER_STEPS)
    return TrainResult(job, learner, progress, trained_here=False)


def _settings(network: LightGBM) -> dict[str, float]:
    """Returns LightGBM's parameters of a model."""
    return {
        "learning_rate": network.rate,
        "feature_fraction": network.columns,
        "min_data_in_leaf": network.leaf_rows,
        "lambda_l2": network.leaf_l2,
    }


def _out_of_fold(
    job: TrainingJob, rows: LinearRows, files: list[str], network: LightGBM, fit: Fit, variance: float
) -> _Stacked:
    """Returns training rows with the weights of fits without their folds, and leaves the whole fit in the network."""
    values = np.empty((rows.count, _width(job, network)), np.float32)
    labels = np.empty(rows.count, np.float32)
    for fold in range(FOLDS):
        # From 0: steps that begin at the whole fit and end early would keep what it knows of the fold's labels.
        _load(rows, network, rows.fit(0, variance, None, own_l2(job), fold, COARSE))
        start = 0
        for folds, (inputs, targets) in rows.batches():
            if len(own := np.flatnonzero(folds == fold)):
                others = split_weight(inputs)[0]
                values[start + own] = network.values({name: value[own] for name, value in others.items()})
                labels[start + own] = targets[own, 0]
            start += len(folds)
    _load(rows, network, fit)
    return _finite(job, _Stacked(values, labels, weights_of(files)), "train")


def _whole(job: TrainingJob, files: list[str], network: LightGBM) -> _Stacked:
    """Returns rows with the weights that the network has."""
    values, labels = [], []
    for inputs, targets in packed_batches(files, job.feature_map, prediction_rows(job.feature_map)):
        values.append(np.asarray(network.values(inputs)))
        labels.append(targets[:, 0])
    return _finite(job, _Stacked(np.concatenate(values), np.concatenate(labels), weights_of(files)), "validation")


def _width(job: TrainingJob, network: LightGBM) -> int:
    return int(network.values(empty_row(job.feature_map)).shape[1])


def _load(rows: LinearRows, network: LightGBM, fit: Fit) -> None:
    rows.load(network, [fit.weights])
    network.round_weights()


def _finite(job: TrainingJob, rows: _Stacked, split: str) -> _Stacked:
    in_order = job.feature_map.negative_sampling == 1
    check_predictions(f"{job.model.name} before its trees", rows.values, split, in_order=in_order)
    return rows


def _evaluation(
    job: TrainingJob, booster: Any, trees: int, train: _Stacked, validation: _Stacked
) -> dict[str, float | None]:
    """Returns the metrics of the first trees, as an evaluation of a training."""
    predicted = booster.predict(validation.values, num_iteration=trees)
    numbers: dict[str, float | None] = {
        "step": trees,
        "examples": trees * len(train.labels),
        "train_loss": log_loss(train.labels, booster.predict(train.values, num_iteration=trees), train.weights),
        **validation_metrics(validation.labels[:, None], predicted[:, None], validation.weights, job.feature_map.tasks),
    }
    check_figures(job.model.name, numbers, SMALLER_STEPS, "validation")
    return numbers


def _check_trees(network: LightGBM, booster: Any, rows: _Stacked) -> None:
    """Checks the trees in the model against LightGBM's. Raises RuntimeError where they differ."""
    values = rows.values[:_CHECKED]
    found = np.asarray(network.trees(values))[:, 0]
    expected = booster.predict(values, raw_score=True)
    if (distance := float(np.abs(found - expected).max())) > _CLOSE:
        raise RuntimeError(f"a logit of the trees in the model is {distance:.2g} off LightGBM's")
