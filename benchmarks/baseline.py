"""Compares a run's baseline with scikit-learn's logistic regression, and with the model that `ctrpipe init` drafts.

    python -m benchmarks.baseline [--log NAME=PATH ...] [--label NAME=COLUMN ...] [--folder FOLDER] [--output FILE]

For each log `ctrpipe init` drafts a configuration. All sides get the same rows and columns: scikit-learn's one-hot
logistic regression with its default strength, the same with the strength that the validation rows choose among
STRENGTHS, the baseline that a run trains next to its model, and the drafted model with the drafted settings.
scikit-learn's rows have the shares of a list's elements, and no texts. In addition to the named logs, this command
writes three: `bank` is like the bank marketing data, `numbers` has only numbers, and in `rare` two rows of a thousand
are clicks.

Two more sides show why a calibration is off. "the training rows' rate" predicts this rate for every row: its
calibration is off by as much as the rate of the test rows differs, by chance or because the log changes with time. "the
truth" has the probabilities that the clicks of a written or generated log were drawn with: its calibration is off by
chance alone.

The interval of the difference in AUC covers other test rows, and the interval of the calibration covers as many clicks.
A bar on the AUC is missed if the interval lies beyond it. The bar on the calibration is met by a value within
CALIBRATED, and by an interval that 1 lies in.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.sparse
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, folder_option, named_values
from benchmarks.harness.quality_sides import SPLITS, Baseline, Drafted, Rows
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.small_logs import LOGS, truth_of
from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import auc_estimate
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.metrics import Weights, labelled, log_loss, summarise
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.compare.rows_and_seeds import difference
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.draft.page import draft
from ctrpipe.pipeline.evaluation.slice_calibration import slice_calibrations
from ctrpipe.pipeline.run.prepared import joined

STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of scikit-learn's C
NUMBERS = ("auc", "log_loss", "rig", "calibration")
NEAR, CALIBRATED = 0.002, (0.97, 1.03)  # bars: AUC behind scikit-learn's, and the calibration
INTERVAL = 0.95
SCIKIT = "scikit-learn"
RATE, TRUTH = "the training rows' rate", "the truth"


@dataclasses.dataclass(frozen=True)
class OneHotRows:
    """A split's rows for scikit-learn: one-hot ids and standardized numbers `[N, F]`, labels and weights `[N]`."""

    features: scipy.sparse.csr_array
    labels: np.ndarray
    weights: Weights

    @property
    def known(self) -> np.ndarray:
        """Which rows have a label, `[N]`."""
        return ~np.isnan(self.labels)


def compare(path: pathlib.Path, folder: pathlib.Path, label: str | None = None) -> list[dict[str, Any]]:
    """Returns each side's metrics on the test rows of a log; the baseline and the draft are the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    drafted = folder / "draft.yaml"
    drafted.write_text(draft([str(path)], label, name="log")[0])
    config = load_config(drafted)
    rows, splits = one_hot_rows(config, path, folder / "run")
    test = splits["test"]
    predicted: dict[str, np.ndarray] = {RATE: np.full(len(test.labels), _rate(splits["train"]))}
    if (truth := _truth(path, len(test.labels), config)) is not None:
        predicted[TRUTH] = truth
    fits = {strength: _fitted(splits["train"], strength) for strength in STRENGTHS}
    losses = {strength: _loss(splits["validation"], fits[strength]) for strength in STRENGTHS}
    for strength in (1.0, min(losses, key=lambda strength: losses[strength])):
        name = f"{SCIKIT}, C={strength:g}" + (", chosen" if f"{SCIKIT}, C={strength:g}" in predicted else "")
        predicted[name] = fits[strength].predict_proba(test.features)[:, 1]
    predicted["baseline lr"] = Baseline().train("lr", {}, 1, rows, folder / "work").probabilities
    made = Drafted(config).train(config.model.name, {}, 1, rows, folder / "work").probabilities
    predicted[f"drafted {config.model.name}"] = made
    theirs = list(predicted.values())[-3]
    sides = []
    for name, probabilities in predicted.items():
        numbers = measured(test, probabilities, theirs)
        sides.append({"side": name, **numbers})
        announce(f"{path.name}, {name}: AUC {numbers['auc']:.4f}, calibration {numbers['calibration']:.4f}")
    return sides


def one_hot_rows(config: RunConfig, path: pathlib.Path, folder: pathlib.Path) -> tuple[Rows, dict[str, OneHotRows]]:
    """Returns the transformed log, and its splits as scikit-learn takes them."""
    load_tensorflow()
    from ctrpipe.pipeline.run.run import transform  # imports TensorFlow
    from ctrpipe.pipeline.training.data import packed_reader, weights_of

    log = transform(config, joined([str(path)], config, folder), folder)
    files = dict(zip(SPLITS, (log.train, log.validation, log.test), strict=True))
    splits, scale = {}, None
    for name, patterns in files.items():
        batches = list(packed_reader(patterns, log.feature_map, 8192))
        labels = np.concatenate([labels[:, 0] for _, labels in batches])
        dense = [inputs["dense"] for inputs, _ in batches if "dense" in inputs]
        numbers = np.concatenate(dense) if dense else np.zeros((len(labels), 0))
        scale = scale or (numbers.mean(axis=0), np.where(numbers.std(axis=0) > 0, numbers.std(axis=0), 1.0))
        parts = [scipy.sparse.csr_array((numbers - scale[0]) / scale[1])]
        if log.feature_map.fields:
            ids = np.concatenate([inputs["ids"] for inputs, _ in batches])
            parts.append(shares(ids, log.feature_map))
        splits[name] = OneHotRows(scipy.sparse.hstack(parts).tocsr(), labels, weights_of(patterns))
    return Rows(folder, log.feature_map, files), splits


def shares(ids: np.ndarray, feature_map: FeatureMap) -> scipy.sparse.csr_array:
    """Returns each id's share of its field's elements, `[N, ids]`; its count if the field is pooled by a sum."""
    values = (ids > 0).astype(np.float64)
    for field in feature_map.fields:
        own = feature_map.slots_of(field.name)
        if field.pooling != "sum":
            values[:, own] /= np.maximum(values[:, own].sum(axis=1, keepdims=True), 1)
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    shape = (len(ids), feature_map.total_ids)
    return scipy.sparse.coo_array((values.reshape(-1), (rows, ids.reshape(-1))), shape).tocsr()


def _fitted(rows: OneHotRows, strength: float) -> LogisticRegression:
    known = rows.known
    weights = None if rows.weights is None else rows.weights[known]
    return LogisticRegression(C=strength, max_iter=1000).fit(rows.features[known], rows.labels[known], weights)


def _loss(rows: OneHotRows, fit: LogisticRegression) -> float:
    return log_loss(rows.labels, fit.predict_proba(rows.features)[:, 1], rows.weights) or 0.0


def _rate(rows: OneHotRows) -> float:
    """Returns the share of clicks among the weighted rows."""
    known = rows.known
    return float(np.average(rows.labels[known], weights=None if rows.weights is None else rows.weights[known]))


def _truth(path: pathlib.Path, test_rows: int, config: RunConfig) -> np.ndarray | None:
    """Returns the true probabilities of the last rows, the test rows of a log that is divided by order."""
    truth = truth_of(path)
    if config.data.split.by != "order" or config.events or not truth.exists():
        return None
    return np.asarray(pa.parquet.read_table(truth)["probability"].to_numpy()[-test_rows:], np.float64)


def measured(test: OneHotRows, probabilities: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Returns a side's metrics on the test rows with their intervals.

    Args:
        test: The test rows.
        probabilities: The side's predictions, `[N]`.
        theirs: The predictions that its AUC is compared with, `[N]`.
    """
    numbers = summarise(test.labels, probabilities, test.weights)
    whole = pa.array(["all"] * len(test.labels))
    sums = slice_calibrations(whole, test.labels, probabilities, test.weights, min_clicks=0)
    sides = [auc_estimate(*labelled(test.labels, each, test.weights)) for each in (theirs, probabilities)]
    assert sides[0] and sides[1]
    return {
        **{key: numbers[key] for key in NUMBERS},
        "calibration_interval": sums.interval(0, INTERVAL),
        "ahead": difference([sides[0]], [sides[1]]).interval,
    }


def table(report: Mapping[str, Any]) -> Table:
    """Returns the table with a row for each log's side."""
    columns: dict[str, Cell] = {
        "log": "{log}",
        "side": "{side}",
        "AUC": "{auc:.4f}",
        "ahead of theirs, 95%": lambda one: "{:+.4f} .. {:+.4f}".format(*one["ahead"]) if any(one["ahead"]) else "",
        "log loss": "{log_loss:.4f}",
        "RIG": "{rig:.4f}",
        "calibration": "{calibration:.4f}",
        "95%": "{calibration_interval[0]:.3f} .. {calibration_interval[1]:.3f}",
    }
    return result_table(
        "", columns, [{"log": name, **side} for name, sides in report["logs"].items() for side in sides]
    )


def bars(logs: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns the bars of each log: the baseline's AUC and the draft's against scikit-learn's, and the calibration.

    The draft is held to the baseline: its AUC may be behind by no more than chance explains.
    """
    lines = []
    for name, sides in logs.items():
        theirs, ours, drafted = sides[-3:]
        ahead = ours["auc"] - theirs["auc"]
        met = ahead >= -NEAR or ours["ahead"][1] >= 0
        lines.append({"bar": f"{name}: AUC ahead of {theirs['side']}", "value": ahead, "met": met})
        low, high = ours["calibration_interval"]
        within = CALIBRATED[0] <= ours["calibration"] <= CALIBRATED[1]
        lines.append({"bar": f"{name}: calibration", "value": ours["calibration"], "met": within or low <= 1 <= high})
        ahead = drafted["auc"] - ours["auc"]
        lines.append(
            {"bar": f"{name}: AUC of {drafted['side']} ahead of lr", "value": ahead, "met": ahead >= -_chance(drafted)}
        )
    return lines


def _chance(side: Mapping[str, Any]) -> float:
    """Returns half of the interval of a side's difference of the AUC."""
    low, high = side["ahead"]
    return float(high - low) / 2


@Benchmark("benchmarks.baseline", table)
@click.option("--log", "logs", multiple=True, callback=named_values, help="NAME=PATH of a log; repeat for more.")
@click.option(
    "--label", "labels", multiple=True, callback=named_values, help="NAME=COLUMN of a log's label, if not guessed."
)
@click.option("--written", default=",".join(LOGS), help="Logs that this command writes, separated by commas; or none.")
@folder_option("baseline")
def main(report: Report, logs: dict[str, str], labels: dict[str, str], written: str, folder: pathlib.Path) -> None:
    """Compare a run's baseline with scikit-learn's logistic regression, on small logs."""
    paths = {name: pathlib.Path(path) for name, path in logs.items()}
    if unknown := sorted(set(labels) - set(paths)):
        raise InputError(f"--label {unknown[0]}: no --log has this name")
    for name in [] if written == "none" else chosen_names("--written", written, LOGS):
        paths[name] = folder / f"{name}.csv"
        if not truth_of(paths[name]).exists():
            folder.mkdir(parents=True, exist_ok=True)
            LOGS[name](paths[name])
    report["logs"] = {}
    for name, path in paths.items():
        report["logs"][name] = compare(path, folder / name, labels.get(name))
        report.write()
    report["bars"] = bars(report["logs"])
    for line in report["bars"]:
        announce(f"{'met' if line['met'] else 'MISSED'}: {line['bar']}, {line['value']:+.4f}")


if __name__ == "__main__":
    main()
