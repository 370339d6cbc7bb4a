"""Measures on simulated training runs how often gates and comparisons block a good model or pass a bad one.

    python -m benchmarks.gates [--repeats 400] [--output FILE]

Each repeat draws new rows, training runs and slices, from one seed. Each rule is compared with its predecessor, which
is implemented here.

- Training runs: each scores a row by its true logit plus an error that depends on the row's attributes and the run
  (`benchmarks.harness.simulated_trainings`). The noise is the standard deviation of the difference in AUC between two
  training runs of one model, over rows and training runs. The worse model lacks information on each row: its AUC is
  lower by three times the noise.
- Slices: a model with the true click probabilities, and a model that expects twice the clicks on one value.
- Lists of slices: two models whose predictions have errors of the same size.
- Columns: two logs of the same distribution, of 52 rows each.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
import pyarrow as pa
from rich.console import Group
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.simulated_trainings import draw_log, draw_trainings
from ctrpipe.common import metrics
from ctrpipe.common.estimates import Estimate, auc_estimate
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import throttled_announce
from ctrpipe.common.significance import NORMAL_QUANTILE
from ctrpipe.pipeline.compare.models import compare
from ctrpipe.pipeline.config import CalibrationBounds, Gates, Monitoring
from ctrpipe.pipeline.evaluation.gates import change_gate, slice_gates
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.transforms.log.spec import LogSpec

ROWS = 20_000  # test rows
MOST = 5  # training runs of a side
# Deviations of the trainings' errors, in logits. The second gives AUCs the noise that `gates.training_noise` states.
ERRORS = {"small": 0.14, "stated": 0.23}
CALIBRATION_REPEATS, CALIBRATION_ROWS = 300, 400_000
Sides = tuple[Sequence[Estimate], Sequence[Estimate]]
Rule = Callable[[Sequence[Estimate], Sequence[Estimate]], bool]  # whether it blocks the first side

SLICE_ROWS, SLICE_ERROR = 1000, 0.15
RATES, VALUES = (0.17, 0.02), (1, 5, 20)
LIST_ROWS, LIST_SLICES = 8000, 20
COLUMNS, COLUMN_ROWS = 10, 52


# The noise of training runs -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Simulated:
    """Trainings of known quality.

    Attributes:
        error: Deviation of a training's error, in logits.
        lost: Deviation of what the worse model does not know of a row, in logits.
        noise: Standard deviation of the difference in AUC between two training runs of one model.
    """

    error: float
    lost: float
    noise: float

    def draw(self, random: np.random.Generator) -> tuple[Sides, list[Estimate]]:
        """Returns the estimates of this model, of an equal last one, and of the worse one, MOST training runs each."""
        logits, labels, attributes = draw_log(random, ROWS)
        worse = logits + self.lost * random.normal(size=ROWS)
        drawn = [_estimates(random, each, labels, attributes, self.error) for each in (logits, logits, worse)]
        return (drawn[0], drawn[1]), drawn[2]


def _estimates(
    random: np.random.Generator, logits: np.ndarray, labels: np.ndarray, attributes: np.ndarray, error: float
) -> list[Estimate]:
    estimates = [auc_estimate(labels, each) for each in draw_trainings(random, logits, attributes, MOST, error)]
    return [each for each in estimates if each is not None]


def simulated(error: float, seed: int) -> Simulated:
    """Returns training runs of this error, with a worse model whose AUC is lower by three times the noise."""
    random = np.random.default_rng(seed)
    apart = []
    for _ in range(CALIBRATION_REPEATS):
        logits, labels, attributes = draw_log(random, ROWS)
        first, second = draw_trainings(random, logits, attributes, 2, error)
        apart.append(_auc(labels, first) - _auc(labels, second))
    noise = float(np.sqrt(np.mean(np.square(apart))))
    logits, labels, attributes = draw_log(random, CALIBRATION_ROWS)
    unknown = random.normal(size=CALIBRATION_ROWS)

    def mean_auc(lost: float) -> float:
        drawn = draw_trainings(np.random.default_rng(seed), logits + lost * unknown, attributes, 5, error)
        return float(np.mean([_auc(labels, each) for each in drawn]))

    aim, low, high = mean_auc(0.0) - 3 * noise, 0.0, 2.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_auc(middle) > aim else (low, middle)
    return Simulated(error, (low + high) / 2, noise)


def _auc(labels: np.ndarray, probabilities: np.ndarray) -> float:
    value = metrics.auc(labels, probabilities)
    assert value is not None
    return value


def _drop_alone(ours: Sequence[Estimate], last: Sequence[Estimate]) -> bool:
    """Before: the drop of one training itself, at most 0.001."""
    return last[0].value - ours[0].value > 0.001


def _rows_alone(ours: Sequence[Estimate], last: Sequence[Estimate]) -> bool:
    """Before, with max_drop_confidence: DeLong's paired test that the drop is above 0.001."""
    drop = last[0].minus(ours[0])
    return drop.value - 1.6448536269514722 * drop.standard_error > 0.001


def _test(seeds: int, versions: int) -> Rule:
    """Returns the default gate, with this many training runs of the run and of the last blessed configuration."""
    return lambda ours, last: not change_gate("auc", 0.0, Gates(), ours[:seeds], last[:versions])["passed"]


RULES: dict[str, Rule] = {
    "before: a drop of .001": _drop_alone,
    "before: .001, max_drop_confidence .95": _rows_alone,
    "one training, one version: the stated noise": _test(1, 1),
    "--seeds 3, one version": _test(3, 1),
    "--seeds 5, one version": _test(5, 1),
    "one training, 5 versions": _test(1, 5),
    "--seeds 3, 3 versions": _test(3, 3),
    "--seeds 5, 5 versions": _test(5, 5),
}


def drop_rates(repeats: int, seed: int) -> dict[str, Any]:
    """Returns, for each size of the noise and each rule, how often an equal model is blocked and a worse one passes."""
    progress, rates = throttled_announce(), {}
    for number, (name, error) in enumerate(ERRORS.items()):
        trainings = simulated(error, seed + number)
        wrong = {rule: np.zeros(2) for rule in RULES}
        for repeat in range(repeats):
            (equal, last), worse = trainings.draw(np.random.default_rng([seed, number, repeat]))
            for rule, blocks in RULES.items():
                wrong[rule] += [blocks(equal, last), not blocks(worse, last)]
            progress(f"{name} noise: {repeat + 1} of {repeats}")
        shares = {rule: (counts / repeats).tolist() for rule, counts in wrong.items()}
        rates[name] = {"noise": trainings.noise, "rates": shares}
    return rates


# Slices ---------------------------------------------------------------------------------------------------------------


def slice_rates(repeats: int, seed: int) -> list[dict[str, Any]]:
    """Returns how often a calibrated model is blocked, before and after, and a miscalibrated one passes."""
    rates = []
    bounds = CalibrationBounds(slices=["site"], max_error=SLICE_ERROR)
    for rate in RATES:
        for values in VALUES:
            wrong = np.zeros(4)
            for repeat in range(repeats):
                random = np.random.default_rng([seed, repeat, values, int(1000 * rate)])
                codes = np.repeat(np.arange(values), SLICE_ROWS)
                probabilities = 1 / (1 + np.exp(-np.log(rate / (1 - rate)) - random.normal(scale=0.5, size=len(codes))))
                labels = (random.random(len(codes)) < probabilities).astype(float)
                twice = np.where(codes == 0, np.minimum(2 * probabilities, 1), probabilities)
                outcomes = []
                for predicted in (probabilities, twice):
                    expected, clicks = np.bincount(codes, predicted), np.bincount(codes, labels)
                    ratios = np.divide(expected, clicks, out=np.full(values, np.inf), where=clicks > 0)
                    outcomes.append(bool(np.max(np.abs(ratios - 1)) > SLICE_ERROR))
                    column = pa.array(codes.astype(str))
                    scored = ScoredRows("rows", {"ctr": labels}, {"ctr": predicted}, {"site": column})
                    outcomes.append(not slice_gates(bounds, scored, "ctr")[0]["passed"])
                wrong += [outcomes[0], outcomes[1], not outcomes[2], not outcomes[3]]
            shares = dict(zip(("before", "after", "bad_before", "bad_after"), (wrong / repeats).tolist(), strict=True))
            rates.append({"rate": rate, "values": values, **shares})
    return rates


# Lists ----------------------------------------------------------------------------------------------------------------


def list_rates(repeats: int, seed: int) -> dict[str, float]:
    """Returns how often some slice of two equal models differs, before and after the correction."""
    before = after = 0
    sites = pa.chunked_array([pa.array((np.arange(LIST_ROWS) % LIST_SLICES).astype(str))])
    for repeat in range(repeats):
        random = np.random.default_rng([seed, repeat])
        logits, labels, _ = draw_log(random, LIST_ROWS)
        sides = {}
        for name in ("first", "second"):
            values = 1 / (1 + np.exp(-logits - 0.5 * random.normal(size=LIST_ROWS)))
            sides[name] = [ScoredRows("rows", {"ctr": labels}, {"ctr": values}, {"site": sites})]
        slices = [part["differences"]["second"]["auc"] for part in compare(sides)["slices"][1:]]
        before += any(abs(one["t"]) > NORMAL_QUANTILE for one in slices)
        after += any(one["verdict"] != "no difference shown" for one in slices)
    return {"repeats": repeats, "before": before / repeats, "after": after / repeats}


def drift_rates(repeats: int, seed: int) -> dict[str, float]:
    """Returns how often any column of two logs of one distribution is a breach, and how often a drifted column is
    found."""
    load_tensorflow()
    from ctrpipe.pipeline.monitoring.drift import compare_logs  # TFDV takes seconds to import

    names = [f"c{number}" for number in range(COLUMNS)]
    spec = LogSpec.model_validate(
        {
            "data": {"columns": ["click", *names], "labels": {"ctr": "click"}},
            "features": [
                {"kind": "numeric", "columns": names[:2]},
                {"kind": "categorical", "columns": names[2:]},
            ],
        }
    )
    counts = np.zeros(4)
    with tempfile.TemporaryDirectory(prefix="ctrpipe-") as folder:
        for repeat in range(repeats):
            random = np.random.default_rng([seed, repeat])
            paths = [pathlib.Path(folder) / name for name in ("new", "old", "moved")]
            for path in paths:
                columns = [random.integers(2, size=COLUMN_ROWS), random.normal(size=COLUMN_ROWS)]
                columns += [random.lognormal(size=COLUMN_ROWS)]
                columns += [random.choice(list("abcd"), COLUMN_ROWS) for _ in names[2:]]
                if path.name == "moved":
                    columns[-1] = random.choice(list("cdef"), COLUMN_ROWS)
                path.write_text("".join("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)))
            for place, path in ((0, paths[0]), (2, paths[2])):
                compared = compare_logs(
                    spec, [str(path)], [str(paths[1])], "drift", Monitoring(), 10_000, 0, Workers(processes=1)
                )
                by_name = {column["column"]: column for column in compared["comparisons"][0]["columns"]}
                judged = list(by_name.values()) if not place else [by_name[names[-1]]]
                counts[place] += any(column["distance"] > column["threshold"] for column in judged)
                counts[place + 1] += any(column["breached"] for column in judged)
    before, after, _, moved = (counts / max(repeats, 1)).tolist()
    return {"repeats": repeats, "before": before, "after": after, "moved_found": moved}


# The command ----------------------------------------------------------------------------------------------------------


def tables(report: Mapping[str, Any]) -> Group:
    return Group(drops_table(report["drops"]), slices_table(report["slices"]), lists_table(report))


def drops_table(drops: Mapping[str, Any]) -> Table:
    def shares(name: str) -> Callable[[Mapping[str, Any]], str]:
        rates = drops[name]["rates"]
        return lambda row: "{:.1%}; {:.1%}".format(*rates[row["rule"]])

    by_noise = {f"{name} noise ({of_noise['noise']:.4f})": shares(name) for name, of_noise in drops.items()}
    title = "max_drop: an equal model blocked; one worse by three times the noise let through"
    return result_table(title, {"rule": "{rule}", **by_noise}, [{"rule": rule} for rule in RULES])


def slices_table(slices: Sequence[Mapping[str, Any]]) -> Table:
    columns: dict[str, Cell] = {
        "click rate": "{rate:g}",
        "values": "{values}",
        "blocked, before": "{before:.1%}",
        "after": "{after:.1%}",
        "one value expects twice its clicks, let through: before": "{bad_before:.1%}",
        "and after": "{bad_after:.1%}",
    }
    return result_table("calibration.slices: a calibrated model", columns, slices)


def lists_table(report: Mapping[str, Any]) -> Table:
    moved = "half of a column's values were replaced, and it is found"
    rows = [
        {"list": f"some of {LIST_SLICES} slices of two equal models", **report["compare"]},
        {"list": f"some of {COLUMNS + 1} columns of two logs of {COLUMN_ROWS} rows", **report["drift"]},
        {"list": moved, "before": None, "after": report["drift"]["moved_found"]},
    ]
    columns: dict[str, Cell] = {"list": "{list}", "before": if_any("before", "{before:.1%}"), "after": "{after:.1%}"}
    return result_table("Something differs where nothing does", columns, rows)


@Benchmark("benchmarks.gates", tables)
@click.option("--repeats", type=click.IntRange(1), default=400, help="Repeats of each simulation; of drift a tenth.")
def main(report: Report, repeats: int) -> None:
    """Measure on simulated training runs how often gates block a good model or pass a bad one.

    Prints tables of the error rates before and after, and writes the report as JSON.
    """
    report |= {
        "repeats": repeats,
        "drops": drop_rates(repeats, seed=1),
        "slices": slice_rates(repeats, seed=2),
        "compare": list_rates(max(1, repeats // 2), seed=3),
        "drift": drift_rates(max(1, repeats // 10), seed=4),
    }


if __name__ == "__main__":
    main()
