"""The inputs of the trees of the model `lightgbm`: numbers, ordinals, and the weights of a logistic regression."""

import dataclasses
from typing import Any

import numpy as np
from scipy.special import expit

from ctrpipe.common.finite import SMALLER_STEPS, check_figures, check_predictions
from ctrpipe.common.metrics import log_loss
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.models.lightgbm import LightGBM
from ctrpipe.pipeline.training.boosting import load_lightgbm, not_below_rows
from ctrpipe.pipeline.training.data import packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import split_weight
from ctrpipe.pipeline.training.linear import own_l2
from ctrpipe.pipeline.training.linear_fit import COARSE, FOLDS, Fit, LinearRows
from ctrpipe.pipeline.training.validation import validation_metrics


@dataclasses.dataclass(frozen=True)
class StackedRows:
    """Rows as inputs of the trees: values `[N, features]`, labels `[N]`, weights `[N]` or None."""

    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None

    def dataset(self, reference: Any = None) -> Any:
        """Returns the rows as a LightGBM dataset, with the regression's logits as initial scores."""
        start = self.values[:, -1].astype(np.float64)
        # Otherwise LightGBM drops features that its default leaves of 20 rows cannot split, and refuses smaller leaves.
        unfiltered = {"feature_pre_filter": False}
        weight = not_below_rows(self.weights)
        return load_lightgbm().Dataset(
            self.values, self.labels, weight=weight, init_score=start, reference=reference, params=unfiltered
        )

    def predicted(self, booster: Any, trees: int) -> np.ndarray:
        """Returns the probabilities of the regression with the first trees, `[N]`."""
        return np.asarray(expit(self.values[:, -1] + booster.predict(self.values, num_iteration=trees, raw_score=True)))


def out_of_fold(
    job: TrainingJob, rows: LinearRows, files: list[str], network: LightGBM, fit: Fit, variance: float
) -> StackedRows:
    """Returns training rows with the weights of fits without their folds. Afterwards, the network has `fit`."""
    values = np.empty((rows.count, _width(job, network)), np.float32)
    labels = np.empty(rows.count, np.float32)
    for fold in range(FOLDS):
        # Starts from 0, because a fit that starts from the whole fit and ends early would remember the fold's labels.
        _load(rows, network, rows.fit(0, variance, None, own_l2(job), fold, COARSE))
        start = 0
        for folds, (inputs, targets) in rows.batches():
            if len(own := np.flatnonzero(folds == fold)):
                others = split_weight(inputs)[0]
                values[start + own] = network.values({name: value[own] for name, value in others.items()})
                labels[start + own] = targets[own, 0]
            start += len(folds)
    _load(rows, network, fit)
    return _finite(job, StackedRows(values, labels, weights_of(files)), "train")


def whole(job: TrainingJob, files: list[str], network: LightGBM) -> StackedRows:
    """Returns rows with the network's current weights."""
    values, labels = [], []
    for inputs, targets in packed_batches(files, job.feature_map, prediction_rows(job.feature_map)):
        values.append(np.asarray(network.values(inputs)))
        labels.append(targets[:, 0])
    return _finite(job, StackedRows(np.concatenate(values), np.concatenate(labels), weights_of(files)), "validation")


def _width(job: TrainingJob, network: LightGBM) -> int:
    return int(network.values(empty_row(job.feature_map)).shape[1])


def _load(rows: LinearRows, network: LightGBM, fit: Fit) -> None:
    rows.load(network, [fit.weights])
    network.round_weights()


def _finite(job: TrainingJob, rows: StackedRows, split: str) -> StackedRows:
    in_order = job.feature_map.negative_sampling == 1
    check_predictions(f"{job.model.name} before its trees", rows.values, split, in_order=in_order)
    return rows


def evaluation(
    job: TrainingJob, booster: Any, trees: int, train: StackedRows, validation: StackedRows
) -> dict[str, float | None]:
    """Returns the metrics of the regression with the first trees, in the form of an evaluation."""
    predicted = validation.predicted(booster, trees)
    numbers: dict[str, float | None] = {
        "step": trees,
        "examples": trees * len(train.labels),
        "train_loss": log_loss(train.labels, train.predicted(booster, trees), train.weights),
        **validation_metrics(validation.labels[:, None], predicted[:, None], validation.weights, job.feature_map.tasks),
    }
    check_figures(job.model.name, numbers, SMALLER_STEPS, "validation")
    return numbers


def all_rows(job: TrainingJob, network: LightGBM, fit: Fit, variance: float) -> StackedRows:
    """Returns the training and validation rows for a refit. Afterwards, the network has a fit to these rows.

    Args:
        job: The training job.
        network: The model.
        fit: The fit to the training rows, as initial values.
        variance: The variance of the prior.
    """
    files = job.train_files + job.validation_files
    rows = LinearRows(files, job.feature_map)
    again = rows.fit(0, variance, fit.weights, own_l2(job))
    return out_of_fold(job, rows, files, network, again, variance)
