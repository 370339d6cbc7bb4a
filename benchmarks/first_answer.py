"""Compares a newcomer's first model, by an unedited `ctrpipe init` and `ctrpipe run`, with an expert's models.

    python -m benchmarks.first_answer [--log NAME=PATH ...] [--label NAME=COLUMN ...] [--written NAMES]

In addition to the named logs, this command writes eight: a shop, ads with a click rate of .2%, a log like the bank
marketing data, 300 columns, ratings of films, impressions with histories, titles, and 2,000 rows. All sides have the
draft's training, validation and test rows. The other sides read the log's raw columns:

- scikit-learn's logistic regression: categories, elements of lists and 32 bins of each number as one-hot columns, its
  strength chosen among STRENGTHS by the validation rows;
- LightGBM with its defaults: numbers as they are, categories as its own categories, elements of lists as columns,
  early stopping on the validation rows.

The kinds of a written log's columns are known; for other logs the draft's kinds are used. A log whose answer is in the
folder is not run again. A bar is missed if the interval of the difference over test rows lies below the better of the
two, or if the interval of the calibration lies outside CALIBRATED.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
from rich.table import Table
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, folder_option, named_values
from benchmarks.harness.first_logs import LOGS, FirstLog
from benchmarks.harness.result_table import Cell, result_table
from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import auc_estimate
from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.files import write_json
from ctrpipe.common.metrics import log_loss, summarise
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.rows_and_seeds import difference
from ctrpipe.pipeline.compare.sources import read_sources
from ctrpipe.pipeline.config.load import check_config, read_yaml
from ctrpipe.pipeline.evaluation.slice_calibration import slice_calibrations
from ctrpipe.transforms.log.split_counts import rows_of_splits
from ctrpipe.transforms.log.written import numbers_of

STRENGTHS = (0.01, 0.1, 1.0)  # of scikit-learn's C
BINS = 32
MOST_TREES, PATIENCE = 1000, 50
MOST_WORDS = 300  # columns of LightGBM for the elements of a list
CALIBRATED = (0.95, 1.05)
OURS, LINEAR, TREES = "ctrpipe", "scikit-learn LR", "LightGBM"
INTERVAL = 0.95
_ZONE = r"(?<=:\d\d)(Z|[+-]\d\d:?\d\d)$"  # behind a time, such as 18:30:05+02:00


@dataclasses.dataclass(frozen=True)
class RawRows:
    """A split's raw columns by kind, and its labels `[N]`."""

    numbers: pd.DataFrame
    categories: pd.DataFrame
    lists: pd.DataFrame
    labels: np.ndarray


def answer(
    name: str, path: pathlib.Path, folder: pathlib.Path, label: str | None, known: FirstLog | None
) -> dict[str, Any]:
    """Returns each side's metrics on the test rows of a log, and how far ours is ahead of the others."""
    drafted, run = folder / f"{name}.yaml", folder / name
    started = time.monotonic()
    if not drafted.exists():
        _ctrpipe("init", str(path), "--output", str(drafted), *(["--label", label] if label else []))
    _ctrpipe("run", str(drafted), "--output", str(run))
    seconds = time.monotonic() - started
    values = read_yaml(drafted.read_text())
    [[scored]] = read_sources([[run]], None).values()
    labels, ours = (next(iter(by_task.values())) for by_task in (scored.labels, scored.probabilities))
    splits = raw_rows(values, path, known)
    if not np.array_equal(labels, splits["test"].labels.astype(labels.dtype)):
        raise RuntimeError(f"{name}: the test rows of the run are not those of the other sides")
    sides = {OURS: ours, LINEAR: _linear(splits), TREES: _trees(splits)}
    measures = {side: _measured(labels, probabilities) for side, probabilities in sides.items()}
    best = max((LINEAR, TREES), key=lambda side: measures[side]["auc"])
    estimates = [auc_estimate(labels, sides[side], np.ones(len(labels))) for side in (best, OURS)]
    assert estimates[0] and estimates[1]
    compared = difference([estimates[0]], [estimates[1]])
    return {
        "model": values["model"]["name"],
        "rows": {split: len(rows.labels) for split, rows in splits.items()},
        "clicks": int(labels.sum()),
        "sides": measures,
        "best": best,
        "ahead": compared.interval,
        "seconds": seconds,
    }


def _ctrpipe(*arguments: str) -> None:
    """Runs a command of ctrpipe. A run that a gate blocks has an answer too."""
    process = subprocess.run([sys.executable, "-m", "ctrpipe", *arguments], capture_output=True, text=True)
    if process.returncode not in (0, BLOCKED):
        lines = (process.stdout + process.stderr).strip().splitlines() or [""]
        raise InputError(f"ctrpipe {arguments[0]} {arguments[1]}: ended with {process.returncode}: {lines[-1]}")


def raw_rows(drafted: dict[str, Any], path: pathlib.Path, known: FirstLog | None) -> dict[str, RawRows]:
    """Returns the raw columns of a log's splits, which are the draft's.

    Args:
        drafted: The values of the drafted configuration.
        path: The log.
        known: What is known of a written log. None for another one.
    """
    spec = check_config(drafted, (), path).log_spec
    kinds: dict[str, dict[str, Any]] = {
        column: {"kind": feature.kind, **({"separator": between} if (between := feature.list_separator) else {})}
        for column, feature in spec.inputs.items()  # the log's columns, not those derived from them
    }
    as_text = [
        {
            "columns": [column],
            "kind": "multivalent",
            "separator": kind["separator"],
            "max_length": 1,
            "whole_numbers": False,
        }
        if "separator" in kind
        else {"columns": [column], "kind": "categorical", "whole_numbers": False}
        for column, kind in kinds.items()
    ]
    plain = {key: value for key, value in drafted.items() if key != "derived"}
    config = check_config({**plain, "features": as_text, "model": {"name": "lr"}, "gates": {}}, (), path)
    lists = (
        known.lists if known else {column: kind["separator"] for column, kind in kinds.items() if "separator" in kind}
    )
    tables = rows_of_splits(config.log_spec, [str(path)])
    frames = {split: table.to_pandas() for split, table in tables.items()}
    for frame in frames.values():
        for column, form in spec.text_forms.items():
            if column in kinds:
                texts = _texts(frame[column])
                present = texts.dropna()
                frame[column] = pd.Series(numbers_of(form, list(present)), present.index).reindex(texts.index)
    numeric = [column for column in kinds if column not in lists and _is_number(column, kinds[column], frames, known)]
    label = next(iter(config.data.columns_by_task.values()))
    return {split: _rows(frame, kinds, numeric, lists, frame[label].to_numpy()) for split, frame in frames.items()}


def _is_number(
    column: str, kind: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], known: FirstLog | None
) -> bool:
    if kind["kind"] == "time" or (known is None and kind["kind"] != "numeric"):
        return False
    values = _texts(frames["train"][column])
    is_numeric = pd.to_numeric(values, errors="coerce").notna().sum() >= 0.9 * values.notna().sum()
    return bool(is_numeric) and not (known and column in known.categories)


def _texts(values: pd.Series) -> pd.Series:
    return values.map(lambda value: value.decode("utf-8", "replace") if isinstance(value, bytes) else value).replace(
        "", None
    )


def _rows(
    frame: pd.DataFrame,
    kinds: Mapping[str, Mapping[str, Any]],
    numeric: Sequence[str],
    lists: Mapping[str, str],
    labels: np.ndarray,
) -> RawRows:
    texts = {column: _texts(frame[column]) for column in kinds}
    numbers = {column: pd.to_numeric(texts[column], errors="coerce") for column in numeric}
    for column, kind in kinds.items():
        if kind["kind"] == "time" and column not in lists:
            moments = _moments(texts[column])
            numbers |= {f"{column} hour": moments.dt.hour, f"{column} weekday": moments.dt.day_of_week}
    others = [column for column, kind in kinds.items() if column not in (*numeric, *lists) and kind["kind"] != "time"]
    return RawRows(
        pd.DataFrame(numbers, index=frame.index),
        pd.DataFrame({column: texts[column] for column in others}, index=frame.index),
        pd.DataFrame({column: texts[column].fillna("") for column in lists if column in texts}, index=frame.index),
        labels.astype(np.float64),
    )


def _moments(texts: pd.Series) -> pd.Series:
    epochs = pd.to_numeric(texts, errors="coerce")
    if epochs.notna().all() and (epochs > 1e8).all():
        return pd.to_datetime(epochs, unit="s" if epochs.max() < 1e11 else "ms")
    if epochs.notna().all():
        return pd.to_datetime(texts, format="%y%m%d%H", errors="coerce")
    as_written = texts.str.replace(_ZONE, "", regex=True)  # the hour of its place
    return pd.to_datetime(as_written, errors="coerce", format="mixed")


# The other sides -----------------------------------------------------------------------------------------------------


def _words(splits: Mapping[str, RawRows], most: int | None) -> dict[str, scipy.sparse.csr_array]:
    """Returns the elements of all lists of each split, a column each, `[N, elements]`."""
    parts: dict[str, list[Any]] = {
        split: [scipy.sparse.csr_array((len(rows.labels), 0))] for split, rows in splits.items()
    }
    for column in splits["train"].lists:
        counter = CountVectorizer(
            analyzer=lambda text: [word for word in text.replace("|", " ").split(" ") if word],
            binary=True,
            min_df=2,
            max_features=most,
        )
        counter.fit(splits["train"].lists[column])
        for split, rows in splits.items():
            parts[split].append(counter.transform(rows.lists[column]))
    return {split: scipy.sparse.hstack(matrices).tocsr() for split, matrices in parts.items()}


def _linear(splits: Mapping[str, RawRows]) -> np.ndarray:
    """Returns the predictions of a one-hot logistic regression for the test rows, `[N]`."""
    edges = {
        column: np.unique(values.quantile(np.linspace(0, 1, BINS + 1)[1:-1]).dropna())
        for column, values in splits["train"].numbers.items()
    }

    def codes(rows: RawRows) -> pd.DataFrame:
        binned = {
            column: np.where(rows.numbers[column].isna(), -1, np.searchsorted(ends, rows.numbers[column], side="right"))
            for column, ends in edges.items()
        }
        return pd.concat(
            [
                pd.DataFrame(binned, index=rows.labels.astype(int)).reset_index(drop=True).astype(str),
                rows.categories.reset_index(drop=True).fillna("missing"),
            ],
            axis=1,
        )

    encoder = OneHotEncoder(handle_unknown="ignore").fit(codes(splits["train"]))
    words = _words(splits, None)
    features = {
        split: scipy.sparse.hstack([encoder.transform(codes(rows)), words[split]]).tocsr()
        for split, rows in splits.items()
    }
    fits = [
        LogisticRegression(C=one, max_iter=2000).fit(features["train"], splits["train"].labels) for one in STRENGTHS
    ]
    losses = [
        log_loss(splits["validation"].labels, fit.predict_proba(features["validation"])[:, 1]) or 0.0 for fit in fits
    ]
    best = fits[int(np.argmin(losses))]
    return np.asarray(best.predict_proba(features["test"])[:, 1])


def _trees(splits: Mapping[str, RawRows]) -> np.ndarray:
    """Returns LightGBM's predictions for the test rows, `[N]`."""
    import lightgbm

    words = _words(splits, MOST_WORDS)
    known = {
        column: pd.CategoricalDtype(sorted(values.dropna().unique()))
        for column, values in splits["train"].categories.items()
    }

    def frame(split: str) -> pd.DataFrame:
        rows = splits[split]
        seen = {column: values.isin(known[column].categories) for column, values in rows.categories.items()}
        categories = rows.categories.where(pd.DataFrame(seen)).astype(known).reset_index(drop=True)
        elements = pd.DataFrame(words[split].toarray()).astype(np.float32).add_prefix("word ")
        whole = pd.concat([rows.numbers.reset_index(drop=True), categories, elements], axis=1)
        return whole.set_axis([f"x{place}" for place in range(whole.shape[1])], axis=1)

    model = lightgbm.LGBMClassifier(n_estimators=MOST_TREES, verbose=-1, n_jobs=1)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    validation = frame("validation"), splits["validation"].labels
    model.fit(
        frame("train"), splits["train"].labels, eval_set=[validation], eval_metric="binary_logloss", callbacks=[stop]
    )
    return np.asarray(model.predict_proba(frame("test"))[:, 1])


def _measured(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, Any]:
    numbers = summarise(labels, probabilities, None)
    sums = slice_calibrations(pa.array(["all"] * len(labels)), labels, probabilities, None, min_clicks=0)
    return {
        **{key: numbers[key] for key in ("auc", "log_loss", "rig", "calibration")},
        "calibration_interval": sums.interval(0, INTERVAL),
    }


# What is shown -------------------------------------------------------------------------------------------------------


def bars(answers: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the bars of each log: the AUC against the better of the other sides, and the calibration."""
    lines = []
    for name, result in answers.items():
        ours, best = result["sides"][OURS], result["sides"][result["best"]]
        lines.append(
            {
                "bar": f"{name}: AUC ahead of {result['best']}",
                "value": ours["auc"] - best["auc"],
                "met": ours["auc"] >= best["auc"] or result["ahead"][1] >= 0,
            }
        )
        low, high = ours["calibration_interval"]
        met = low <= CALIBRATED[1] and high >= CALIBRATED[0]
        lines.append({"bar": f"{name}: calibration", "value": ours["calibration"], "met": met})
    return lines


def table(report: Mapping[str, Any]) -> Table:
    """Returns the table with a row for each log."""
    columns: dict[str, Cell] = {
        "log": "{log}",
        "model": "{model}",
        "test rows": "{rows[test]:,}",
        "clicks": "{clicks:,}",
        **{side: f"{{sides[{side}][auc]:.4f}}" for side in (OURS, LINEAR, TREES)},
        "ahead of the better, 95%": "{ahead[0]:+.4f} .. {ahead[1]:+.4f}",
        "calibration": f"{{sides[{OURS}][calibration]:.3f}}",
        "95%": f"{{sides[{OURS}][calibration_interval][0]:.3f}} .. {{sides[{OURS}][calibration_interval][1]:.3f}}",
    }
    return result_table("", columns, [{"log": name, **result} for name, result in report["logs"].items()])


@Benchmark("benchmarks.first_answer", table)
@click.option("--log", "logs", multiple=True, callback=named_values, help="NAME=PATH of a log; repeat for more.")
@click.option(
    "--label", "labels", multiple=True, callback=named_values, help="NAME=COLUMN of a log's label, if not guessed."
)
@click.option("--written", default=",".join(LOGS), help="Logs that this command writes, separated by commas; or none.")
@folder_option("first_answer")
def main(report: Report, logs: dict[str, str], labels: dict[str, str], written: str, folder: pathlib.Path) -> None:
    """Compare `ctrpipe init` and `ctrpipe run` with scikit-learn's logistic regression and with LightGBM."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: pathlib.Path(path) for name, path in logs.items()}
    if unknown := sorted(set(labels) - set(paths)):
        raise InputError(f"--label {unknown[0]}: no --log has this name")
    for name in [] if written == "none" else chosen_names("--written", written, LOGS):
        paths[name] = folder / f"{name}_log{LOGS[name].suffix}"
        if not paths[name].exists():
            LOGS[name].write(paths[name])
    report["logs"] = {}
    for name, path in paths.items():
        kept = folder / f"{name}.json"
        if not kept.exists():
            known = LOGS.get(name) if name not in logs else None
            write_json(kept, answer(name, path, folder, labels.get(name), known))
        report["logs"][name] = json.loads(kept.read_text())
        report.write()
        aucs = ", ".join(f"{side} {result['auc']:.4f}" for side, result in report["logs"][name]["sides"].items())
        announce(f"{name}: AUC {aucs}")
    report["bars"] = bars(report["logs"])
    for line in report["bars"]:
        announce(f"{'met' if line['met'] else 'MISSED'}: {line['bar']}, {line['value']:+.4f}")


if __name__ == "__main__":
    main()
