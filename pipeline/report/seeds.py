"""The summary of a run with several seeds, for the terminal and the report."""

import statistics

from ctrpipe.pipeline.compare.show import verdict
from ctrpipe.pipeline.evaluation.seeds import Seeds, SeedSide

METRICS = ("auc", "log_loss", "rig", "calibration")


def spread(side: SeedSide) -> dict[str, tuple[float | None, float | None]]:
    """Returns the mean and the standard deviation of each of METRICS over the training runs of one side.

    Both are None if a training lacks the metric, and the deviation is None for one training run.
    """
    spreads: dict[str, tuple[float | None, float | None]] = {}
    for name in METRICS:
        values = [value for training in side.trainings if (value := training.metrics[name]) is not None]
        known, several = len(values) == len(side.trainings), len(values) > 1
        spreads[name] = (
            statistics.fmean(values) if known else None,
            statistics.stdev(values) if known and several else None,
        )
    return spreads


def seeds_verdict(seeds: Seeds) -> str:
    """Returns the verdict on the model and its baseline over rows and training runs; "" without a baseline."""
    if seeds.baseline is None or seeds.difference is None:
        return ""
    sides = {seeds.model.name: seeds.model, f"the baseline {seeds.baseline.name}": seeds.baseline}
    text = verdict(f"{seeds.model.name}: AUC", seeds.difference["auc"], seeds.baseline.name)
    for task, difference in (seeds.differences or {}).items():
        if task != seeds.task:
            metric = "rmse" if "rmse" in difference else "auc"
            text += f"; {verdict(f'{metric.upper()} of {task}', difference[metric], seeds.baseline.name)}"
    alone = [name for name, side in sides.items() if len(side.trainings) == 1]
    if alone:
        has = "has" if len(alone) == 1 else "have"
        text += (
            f"; {' and '.join(alone)} {has} one training run, because L-BFGS ends at the same weights with every seed"
        )
    unconverged = {name: sum(each.converged is False for each in side.trainings) for name, side in sides.items()}
    if named := [f"{name} ({count} of {len(sides[name].trainings)})" for name, count in unconverged.items() if count]:
        text += f". Not converged when the epochs ended: {' and '.join(named)}"
    return text
