"""Compares one model's trainings with another's on the same rows: by rows and seeds, and by shards as BERT4CTR does."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ctrpipe.models.base import metrics
from ctrpipe.models.base.metrics import Weights
from ctrpipe.pipeline.compare.rows_and_seeds import LEVEL, Difference, difference
from ctrpipe.pipeline.compare.shards import SHARDS, Metric, by_shard, paired_t
from ctrpipe.pipeline.evaluation.estimates import Estimate, auc_estimate, rig_estimate

BETTER, WORSE, UNDECIDED = "better", "worse", "no difference shown"
# What is compared: by name the metric and its estimate. More is better of each.
TESTED: dict[str, tuple[Metric, Callable[[np.ndarray, np.ndarray, Weights], Estimate | None]]] = {
    "auc": (metrics.auc, auc_estimate),
    "rig": (metrics.rig, rig_estimate),
}


@dataclasses.dataclass(frozen=True)
class Side:
    """A model's trainings on the same rows.

    Attributes:
        estimates: By metric, one a training; None where these rows do not define it.
        shards: By metric, its mean over the trainings on each shard, `[shards]`.
    """

    estimates: dict[str, list[Estimate] | None]
    shards: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Compared:
    """A difference in a metric, second - first, and what it says.

    Attributes:
        tested: The difference over rows and seeds; None where the rows do not define the metric.
        t_over_shards: BERT4CTR's t, of the rows alone; None where a shard has no value.
    """

    tested: Difference | None
    t_over_shards: float | None

    @property
    def verdict(self) -> str | None:
        """Returns whether the second model is BETTER or WORSE by more than chance, or UNDECIDED."""
        if self.tested is None:
            return None
        if self.tested.p is None or self.tested.p >= 1 - LEVEL:
            return UNDECIDED
        return BETTER if self.tested.difference > 0 else WORSE

    def to_json(self) -> dict[str, Any]:
        """Returns all of it by name; `difference` is None where the rows do not define the metric."""
        of_rows = {field.name: None for field in dataclasses.fields(Difference)}
        values = dataclasses.asdict(self.tested) if self.tested else of_rows
        return {**values, "t_over_shards": self.t_over_shards, "verdict": self.verdict}


def side(
    labels: np.ndarray,
    trainings: Sequence[np.ndarray],
    shard: np.ndarray,
    count: int = SHARDS,
    weights: Weights = None,
) -> Side:
    """Returns a model's side of comparisons.

    Args:
        labels: 0 or 1, `[N]`.
        trainings: The predictions of each training, `[N]`.
        shard: The shard of each row, `[N]`.
        count: Number of shards.
        weights: How often each row counts, `[N]`; None for once.
    """
    estimates: dict[str, list[Estimate] | None] = {}
    by_metric = {}
    for name, (metric, estimate) in TESTED.items():
        known = [one for one in (estimate(labels, values, weights) for values in trainings) if one is not None]
        estimates[name] = known if len(known) == len(trainings) else None
        of_trainings = [by_shard(metric, labels, values, shard, count, weights) for values in trainings]
        by_metric[name] = np.mean(of_trainings, axis=0)
    return Side(estimates, by_metric)


def compare_sides(first: Side, second: Side, metric: str) -> Compared:
    """Returns how the second model differs from the first in a metric of TESTED, on the rows of both sides."""
    of_first, of_second = first.estimates[metric], second.estimates[metric]
    tested = difference(of_first, of_second) if of_first and of_second else None
    return Compared(tested, paired_t(first.shards[metric], second.shards[metric]))
