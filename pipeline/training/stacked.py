"""Trains boosted trees on top of a logistic regression (the model `lightgbm`).

For training, the trees read regression weights that were fitted without the row's fold. For serving, they read the
weights that were fitted on all training rows. If the weights were fitted on the row itself, the trees would rely on
rare values, because the weight of a rare value is almost a copy of the row's label.
"""

import dataclasses
from typing import Any

import numpy as np

from ctrpipe.common.finite import SMALLER_STEPS
from ctrpipe.models.lightgbm import LightGBM
from ctrpipe.models.lr import LR
from ctrpipe.pipeline.config import Model
from ctrpipe.pipeline.training.boosting import grow, load_lightgbm, store
from ctrpipe.pipeline.training.convergence import ALL_DONE
from ctrpipe.pipeline.training.finite_learner import check_weights
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.linear import fit_linear
from ctrpipe.pipeline.training.process import Report
from ctrpipe.pipeline.training.stacked_rows import StackedRows, all_rows, evaluation, out_of_fold, whole

PATIENCE = 30  # trees without an improvement on the validation rows after which boosting stops
EVALUATED = 20  # trees between two evaluations
_CLOSE = 1e-4  # largest difference of a logit between LightGBM's trees and those in the model
_CHECKED = 10_000  # rows that are compared


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
    # 1. The regression, and trees on its weights until early stopping on the validation rows.
    options = {name: value for name, value in job.model.hyperparameters.items() if name in LR.options()}
    linear = dataclasses.replace(
        job, model=Model(name="lr", **options), training=job.with_training(refit=False).training
    )
    fitted = fit_linear(linear, report)
    [variance], [fit], progress = fitted.variances, fitted.fits, fitted.result.progress
    learner = job.served_learner()
    network = learner.network
    assert isinstance(network, LightGBM)
    train = out_of_fold(job, fitted.rows, job.train_files, network, fit, variance)
    validation = whole(job, job.validation_files, network)
    data = train.dataset()
    booster = grow(
        network.trees, data, validation.dataset(data), network.trees.trees, job.seed, _settings(network), PATIENCE
    )
    count = store(network.trees, booster)
    _check_trees(network, booster, validation)

    # 2. Evaluate some numbers of trees, the best one last.
    for trees in [*range(EVALUATED, count, EVALUATED), count]:
        numbers = evaluation(job, booster, trees, train, validation)
        progress.evaluations.append(numbers)
        if report:
            report({"model": job.model.name, **numbers})
    progress.best = len(progress.evaluations) - 1
    grown = f"{count} tree{'s' if count != 1 else ''}"
    ended = f"{ALL_DONE}{grown}" if count == network.trees.trees else f"log_loss did not improve after {grown}"
    progress.stopped = f"{ended}; variance of the regression's prior {variance:.2g}"

    # 3. Again on all rows for a refit, with as many trees.
    if job.training.refit:
        data = all_rows(job, network, fit, variance).dataset()
        store(network.trees, grow(network.trees, data, None, count, job.seed, _settings(network), PATIENCE))
    check_weights(job.model.name, learner, "after the training", SMALLER_STEPS)
    return TrainResult(job, learner, progress, trained_here=False)


def _settings(network: LightGBM) -> dict[str, float]:
    """Returns a model's parameters for LightGBM."""
    return {
        "learning_rate": network.rate,
        "feature_fraction": network.columns,
        "min_data_in_leaf": network.leaf_rows,
        "lambda_l2": network.leaf_l2,
    }


def _check_trees(network: LightGBM, booster: Any, rows: StackedRows) -> None:
    """Raises RuntimeError if the trees in the model differ from LightGBM's."""
    values = rows.values[:_CHECKED]
    logits = np.asarray(network.trees(values))[:, 0]
    expected = booster.predict(values, raw_score=True)
    if (distance := float(np.abs(logits - expected).max())) > _CLOSE:
        raise RuntimeError(f"a logit of the trees in the model is {distance:.2g} off LightGBM's")
