"""Measures the error rates of comparisons: equal models called different, and planted differences detected.

    python -m studies.seed_noise [--rows 60000] [--seeds 5] [--repeats 400] [--difference 0.002] [--output FILE]

Training runs are simulated: each scores a row by its true logit plus an error. The error is a sum of the row's
attributes with random weights of the training run. Thus training runs of one model differ by more than their test rows
explain, as real ones do. Their AUCs have a standard deviation of about 0.0018. Half of the comparisons compare a model
with itself. In the other half the second side has smaller errors and an AUC larger by --difference over all rows and
seeds. Each repeat draws new rows and new training runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.result_table import result_table
from benchmarks.harness.simulated_trainings import draw_log, draw_trainings
from ctrpipe.common import metrics
from ctrpipe.common.progress import throttled_announce
from ctrpipe.pipeline.compare.rows_and_seeds import LEVEL
from ctrpipe.pipeline.compare.shards import shards
from ctrpipe.pipeline.compare.sides import Compared, compare_sides, side

ERROR = 0.2  # standard deviation of a training run's error, in logits
SHARDS_BOUND = 3.0  # t over shards above which BERT4CTR, section 4.1.4, calls a difference significant
CALIBRATION_ROWS = 400_000
RULES = ("rows and seeds", "rows alone, one seed a side", "t over shards above 3, one seed a side")


def smaller_error(difference: float, seed: int = 0) -> float:
    """Returns the standard deviation of the errors of a model whose AUC is larger by `difference` than with ERROR."""
    random = np.random.default_rng(seed)
    logits, labels, attributes = draw_log(random, CALIBRATION_ROWS)

    def mean_auc(error: float) -> float:
        scored = draw_trainings(np.random.default_rng(seed + 1), logits, attributes, 20, error)
        return float(np.mean([metrics.auc(labels, values) for values in scored]))

    aim, low, high = mean_auc(ERROR) + difference, 0.0, ERROR
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_auc(middle) > aim else (low, middle)
    return (low + high) / 2


def called_different(first: Sequence[np.ndarray], second: Sequence[np.ndarray], labels: np.ndarray) -> tuple[bool, ...]:
    """Returns, for each of RULES, whether the second side's AUC differs from the first's."""
    shard = shards(len(labels))

    def compared(seeds: int | None) -> Compared:
        return compare_sides(*(side(labels, each[:seeds], shard) for each in (first, second)), "auc")

    of_all, of_one = compared(None), compared(1)
    t = of_one.t_over_shards
    return (_is_below(of_all), _is_below(of_one), t is not None and abs(t) > SHARDS_BOUND)


def _is_below(compared: Compared) -> bool:
    return compared.tested is not None and compared.tested.p is not None and compared.tested.p < 1 - LEVEL


def rates(rows: int, seeds: int, repeats: int, errors: tuple[float, float], seed: int) -> tuple[float, ...]:
    """Returns, for each of RULES, how often two models with these error deviations are called different."""
    progress, called = throttled_announce(), []
    for repeat in range(repeats):
        random = np.random.default_rng([seed, repeat])
        logits, labels, attributes = draw_log(random, rows)
        first, second = (draw_trainings(random, logits, attributes, seeds, one) for one in errors)
        called.append(called_different(first, second, labels))
        progress(f"{repeat + 1} of {repeats} comparisons")
    return tuple(np.mean(called, axis=0).tolist())


def table(report: Mapping[str, Any]) -> Table:
    columns = {"models": "{models}", **{rule: f"{{{rule}:.1%}}" for rule in RULES}}
    rows = [{"models": name, **shares} for name, shares in report["called_different"].items()]
    title = f"{report['repeats']} comparisons each, {report['rows']:,} test rows, {report['seeds']} seeds a side"
    return result_table(f"{title}: called different at 5%", columns, rows)


@Benchmark("studies.seed_noise", table)
@click.option("--rows", type=click.IntRange(1000), default=60_000, help="Test rows.")
@click.option("--seeds", type=click.IntRange(2), default=5, help="Training runs of each side.")
@click.option("--repeats", type=click.IntRange(1), default=400, help="Comparisons of each kind.")
@click.option("--difference", type=click.FloatRange(0, 0.02), default=0.002, help="Planted difference in AUC.")
def main(report: Report, rows: int, seeds: int, repeats: int, difference: float) -> None:
    """Measure the error rates of comparisons, on simulated training runs.

    Prints a table of the shares called different, and writes the report as JSON.
    """
    shares_by_kind = {
        "same model": rates(rows, seeds, repeats, (ERROR, ERROR), seed=1),
        f"AUC larger by {difference}": rates(rows, seeds, repeats, (ERROR, smaller_error(difference)), seed=2),
    }
    report |= {"rows": rows, "seeds": seeds, "repeats": repeats}
    report["called_different"] = {name: dict(zip(RULES, of, strict=True)) for name, of in shares_by_kind.items()}


if __name__ == "__main__":
    main()
