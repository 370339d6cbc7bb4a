"""Measures the effect of a calibration on the log loss of models with a known error.

    python -m benchmarks.calibration [--trials 10] [--seed 1]

Log-odds are drawn, and clicks from them. A model predicts them with a known error: none, overconfident, too high, or
bent. Each trial draws new validation rows and fits each method twice: always used, without a minimum number of clicks
per step, and as in a run, chosen on held-out folds. The log loss is the expectation over other rows with known true
rates, so it has no noise of labels.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from rich.table import Table
from scipy.special import expit, logit

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.result_table import Cell, result_table
from ctrpipe.common.metrics import log_loss
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import Calibration
from ctrpipe.pipeline.training.calibrate import CalibrationRows, fit_overall, fit_task
from ctrpipe.serving.calibration import TaskCalibration

Floats = npt.NDArray[np.float64]

METHODS = ("isotonic", "platt")  # beta is one of those that isotonic is chosen from
SIZES = ((10_000, 0.01), (10_000, 0.17), (100_000, 0.01))  # validation rows and click rate
OTHERS = 50_000  # other rows
DEVIATION = 2.0  # of the true log-odds
# The model's log-odds by its error, from the true ones and their mean.
MODELS: dict[str, Callable[[Floats, float], Floats]] = {
    "right": lambda truth, mean: truth,
    "too sure": lambda truth, mean: mean + 1.5 * (truth - mean),
    "too high": lambda truth, mean: truth + 0.3,
    "bent": lambda truth, mean: truth + 0.1 * (truth - mean) ** 2,
}


@dataclasses.dataclass(frozen=True)
class Excess:
    """The effect of a calibration in one trial.

    Attributes:
        alone, chosen: Expected log loss minus the uncalibrated model's, in nats, if the method is fitted alone and
            chosen on held-out folds.
        highest_alone, highest_chosen: The largest ratio of the calibrated odds to the true odds over the other rows.
        taken: The method that was taken.
    """

    alone: float
    chosen: float
    highest_alone: float
    highest_chosen: float
    taken: str


def measure(model: str, rows: int, rate: float, seed: Sequence[int]) -> dict[str, Excess]:
    """Returns the effect of each calibration method on a model in one trial.

    Args:
        model: The model's error, of MODELS.
        rows: Number of validation rows.
        rate: Their click rate.
        seed: Seed of the trial.
    """
    random = np.random.default_rng([*seed, rows, round(rate * 1000), list(MODELS).index(model)])
    mean = mean_log_odds(rate)
    truth, others = (random.normal(mean, DEVIATION, count) for count in (rows, OTHERS))
    labels = (random.random(rows) < expit(truth)).astype(np.float64)
    answers = MODELS[model](truth, mean).astype(np.float32).astype(np.float64)
    of_others = tf.constant(MODELS[model](others, mean), tf.float32)
    known = CalibrationRows(answers, labels, np.ones(rows))
    before = expected_loss(others, tf.sigmoid(of_others).numpy())
    effects = {}
    for method in METHODS:
        bare = Calibration(method=method, clicks_per_step=0)
        alone = TaskCalibration(fit_overall(bare, method, known)).probabilities(of_others, None).numpy()
        task = fit_task(Calibration(method=method), known, FeatureMap.from_sizes([]), np.zeros((rows, 0), np.int32))
        chosen = task.probabilities(of_others, None).numpy()
        assert task.choice
        of_both = [(expected_loss(others, each) - before, highest(others, each)) for each in (alone, chosen)]
        (alone_loss, alone_ratio), (chosen_loss, chosen_ratio) = of_both
        effects[method] = Excess(alone_loss, chosen_loss, alone_ratio, chosen_ratio, task.choice.taken)
    return effects


def mean_log_odds(rate: float) -> float:
    """Returns the mean of normal log-odds of DEVIATION whose mean click rate is `rate`."""
    from scipy.optimize import brentq

    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    shares = weights / weights.sum()
    return float(brentq(lambda mean: shares @ expit(mean + DEVIATION * nodes) - rate, logit(rate) - 5, logit(rate)))


def expected_loss(log_odds: Floats, probabilities: npt.NDArray[np.float32]) -> float:
    """Returns the expected log loss, in nats, over the labels of rows with the true `log_odds`."""
    loss = log_loss(expit(log_odds), probabilities)
    assert loss is not None
    return loss


def highest(log_odds: Floats, probabilities: npt.NDArray[np.float32]) -> float:
    """Returns the largest ratio of the odds to the true odds."""
    return float(np.exp((logit(probabilities.astype(np.float64)) - log_odds).max()))


def summary(trials: Sequence[Excess]) -> dict[str, object]:
    """Returns the means over trials, the largest ratios, and how often each method was chosen."""
    taken = [each.taken for each in trials]
    return {
        "alone": float(np.mean([each.alone for each in trials])),
        "chosen": float(np.mean([each.chosen for each in trials])),
        "worst_alone": max(each.alone for each in trials),
        "worst_chosen": max(each.chosen for each in trials),
        "highest_alone": max(each.highest_alone for each in trials),
        "highest_chosen": max(each.highest_chosen for each in trials),
        "taken": {name: taken.count(name) for name in sorted(set(taken))},
    }


def table(report: Mapping[str, Any]) -> Table:
    columns: dict[str, Cell] = {
        "rows": "{rows:,}",
        "rate": "{rate}",
        "model": "{model}",
        "method": "{method}",
        **{
            part: lambda one, part=part: f"{1e4 * one[part]:+.2f} ({1e4 * one[f'worst_{part}']:+.1f})"  # type: ignore[misc]
            for part in ("alone", "chosen")
        },
        "odds": "{highest_alone:.3g} -> {highest_chosen:.3g}",
        "taken": lambda one: ", ".join(f"{name} {count}" for name, count in one["taken"].items()),
    }
    title = "Log loss minus the model's own (x 1e-4, mean and worst trial), and the highest odds over the true odds"
    return result_table(title, columns, report["results"])


@Benchmark("benchmarks.calibration", table)
@click.option("--trials", type=click.IntRange(1), default=10, help="Trials of each model and number of rows.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the random rows.")
def main(report: Report, trials: int, seed: int) -> None:
    """Fit calibrations to models with a known error, and print their effect on the log loss."""
    report |= {"trials": trials, "seed": seed, "results": []}
    for rows, rate in SIZES:
        for model in MODELS:
            announce(f"{rows:,} validation rows, click rate {rate:g}: a model that is {model}")
            effects = [measure(model, rows, rate, (seed, trial)) for trial in range(trials)]
            for method in METHODS:
                about = {"model": model, "rows": rows, "rate": rate, "method": method}
                report["results"].append(about | summary([each[method] for each in effects]))
        report.write()


if __name__ == "__main__":
    main()
