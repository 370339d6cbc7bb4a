"""Compares the training runs of two models on the same rows: over rows and seeds, and over shards as in BERT4CTR."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ctrpipe.common import metrics
from ctrpipe.common.estimates import (
    Estimate,
    auc_estimate,
    gauc_estimate,
    mae_estimate,
    rig_estimate,
    rmse_estimate,
)
from ctrpipe.common.metrics import Weights
from ctrpipe.pipeline.compare.rows_and_seeds import LEVEL, Difference, difference
from ctrpipe.pipeline.compare.shards import SHARDS, Metric, by_shard, paired_t, shards
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows

BETTER, WORSE, UNDECIDED = "better", "worse", "no difference shown"
_Estimator = Callable[[np.ndarray, np.ndarray, Weights], Estimate | None]
# The compared metrics of clicks by name, with their estimators. For each, higher is better.
TESTED: dict[str, tuple[Metric, _Estimator]] = {
    "auc": (metrics.auc, auc_estimate),
    "rig": (metrics.rig, rig_estimate),
}
# The compared metrics of predicted numbers. For each, lower is better.
TESTED_NUMBERS: dict[str, tuple[Metric, _Estimator]] = {
    "rmse": (metrics.rmse, rmse_estimate),
    "mae": (metrics.mae, mae_estimate),
}


@dataclasses.dataclass(frozen=True)
class Groups:
    """The groups within which gAUC is computed.

    Attributes:
        numbers: The group number of each row, int64 `[N]`.
        weight: The weight of a group's AUC.
    """

    numbers: np.ndarray
    weight: str


def groups_of_rows(scored: ScoredRows) -> Groups | None:
    """Returns the groups of scored rows; None if they have none."""
    return None if scored.groups is None else Groups(scored.groups, scored.group_weight)


@dataclasses.dataclass(frozen=True)
class Side:
    """A model's training runs on the same rows.

    Attributes:
        estimates: For each metric, one estimate per training run. None if the metric is undefined on these rows.
        shards: For each metric, its mean over the training runs on each shard, `[shards]`.
    """

    estimates: dict[str, list[Estimate] | None]
    shards: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Compared:
    """A difference in a metric, second - first, and its verdict.

    Attributes:
        tested: The difference over rows and seeds. None if the metric is undefined on the rows.
        t_over_shards: BERT4CTR's t, over rows only. None if a shard has no value, or all shards have the same
            difference.
        lower_is_better: Whether the metric is an error, as of predicted numbers.
    """

    tested: Difference | None
    t_over_shards: float | None
    lower_is_better: bool = False

    @property
    def verdict(self) -> str | None:
        """Whether the second model is BETTER or WORSE (95% level) or UNDECIDED. None if the metric is undefined."""
        if self.tested is None:
            return None
        return verdict_of(self.tested.difference, self.tested.p, self.lower_is_better)

    def to_json(self) -> dict[str, Any]:
        """Returns all fields by name. `difference` is None if the metric is undefined on the rows."""
        of_rows = {field.name: None for field in dataclasses.fields(Difference)}
        values = dataclasses.asdict(self.tested) if self.tested else of_rows
        about = {"t_over_shards": self.t_over_shards, "verdict": self.verdict}
        return {**values, **about, "lower_is_better": self.lower_is_better}


def verdict_of(difference: float, p_value: float | None, lower_is_better: bool = False) -> str:
    """Returns BETTER, WORSE or UNDECIDED for a difference and its p-value, at LEVEL."""
    if p_value is None or p_value >= 1 - LEVEL:
        return UNDECIDED
    return BETTER if (difference < 0) == lower_is_better else WORSE


def side(
    labels: np.ndarray,
    trainings: Sequence[np.ndarray],
    shard: np.ndarray,
    count: int = SHARDS,
    weights: Weights = None,
    groups: Groups | None = None,
    is_number: bool = False,
) -> Side:
    """Returns the estimates of one model for comparisons.

    Args:
        labels: 0 or 1, or numbers, `[N]`.
        trainings: The predictions of each training run, `[N]`.
        shard: The shard of each row, `[N]`.
        count: Number of shards.
        weights: How often each row counts, `[N]`. None: once.
        groups: The rows' groups, for the gAUC; None for none.
        is_number: Whether the labels and predictions are numbers, whose metrics are TESTED_NUMBERS.
    """
    estimates: dict[str, list[Estimate] | None] = {}
    by_metric = {}
    for name, (metric, estimate) in (TESTED_NUMBERS if is_number else TESTED).items():
        known = [one for one in (estimate(labels, values, weights) for values in trainings) if one is not None]
        estimates[name] = known if len(known) == len(trainings) else None
        of_trainings = [by_shard(metric, labels, values, shard, count, weights) for values in trainings]
        by_metric[name] = np.mean(of_trainings, axis=0)
    if groups is not None and not is_number:
        per_training = [gauc_estimate(groups.numbers, labels, values, weights, groups.weight) for values in trainings]
        of_all = [one for one in per_training if one is not None]
        estimates["gauc"] = of_all if len(of_all) == len(trainings) else None
        by_metric["gauc"] = np.full(count, np.nan)  # a shard of rows has a part of each group
    return Side(estimates, by_metric)


def compare_sides(first: Side, second: Side, metric: str) -> Compared:
    """Returns how the second model differs from the first in a metric of both sides, on their rows."""
    of_first, of_second = first.estimates[metric], second.estimates[metric]
    tested = difference(of_first, of_second) if of_first and of_second else None
    return Compared(tested, paired_t(first.shards[metric], second.shards[metric]), metric in TESTED_NUMBERS)


def compare_trainings(first: Sequence[ScoredRows], second: Sequence[ScoredRows], task: str) -> dict[str, Compared]:
    """Returns how the second model differs from the first in each metric of a task, on all rows.

    Args:
        first: The predictions of each training run of the first model.
        second: The predictions of each training run of the second model, on the same rows.
        task: The label to judge by.
    """
    rows = [each.labelled(task) for each in (*first, *second)]
    labels, weights = rows[0].labels[task], rows[0].weights
    shard = shards(len(labels))
    values = [each.probabilities[task] for each in rows]
    groups = groups_of_rows(rows[0])
    of_models = (values[: len(first)], values[len(first) :])
    is_number = task in rows[0].numbers
    one, other = (
        side(labels, trainings, shard, weights=weights, groups=groups, is_number=is_number) for trainings in of_models
    )
    return {metric: compare_sides(one, other, metric) for metric in one.estimates}
