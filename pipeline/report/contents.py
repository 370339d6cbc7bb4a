"""The contents of a report's pages, from the files of report_data/."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ctrpipe.transforms.log.words import WHOLE_ROW

MOST_FILES = 3  # of the log are named at the head of the page
MOST_NAMED = 5  # columns in a warning
LEAST_MALFORMED = 0.01  # of the rows, for a warning
# Figures of a column in statistics.json. A run of an earlier release has only some of them.
_FIGURES = ("missing_rate", "unique", "mean", "low", "high", "elements", "span")
NO_COLUMN: dict[str, Any] = {**dict.fromkeys(_FIGURES), "top": []}
NO_MEASURES: dict[str, Any] = {"cost": None, "auc": None, "calibration": None}


@dataclasses.dataclass(frozen=True)
class Card:
    """A metric on the test rows, at the head of the page.

    Attributes:
        title: Its name.
        value: Its value.
        interval: Its 95% confidence interval; None if unknown.
        baseline: The value of the baseline; None without one.
        meaning: A short explanation.
    """

    title: str
    value: float | None
    interval: Sequence[float] | None
    baseline: float | None
    meaning: str


def cards(metrics: Mapping[str, Any], measured: Mapping[str, Any]) -> Iterator[Card]:
    """Yields a card for each metric of metrics.json.

    Args:
        metrics: The contents of metrics.json.
        measured: See `ctrpipe.pipeline.report.measured.measure`.
    """
    baseline, intervals = metrics["baseline"] or {}, measured["model"]
    chance = f" A perfectly calibrated model has {metrics['ece_if_calibrated']:.4f} on this number of rows by chance."
    meanings = {
        "auc": (
            "AUC",
            "How often a row with a click has a higher prediction than a row without one: 0.5 is chance, 1 perfect.",
        ),
        "log_loss": (
            "Log loss",
            "The mean of -ln of the probability given to what happened: lower is better. It judges ranking and size.",
        ),
        "rig": (
            "RIG",
            "Relative information gain: how much lower the log loss is than with the click rate as every "
            "prediction. 0 is no gain, 1 perfect.",
        ),
        "calibration": (
            "Calibration",
            "Predicted clicks divided by observed clicks: 1 is right, above 1 the model predicts too many.",
        ),
        "ece": (
            "ECE",
            "Expected calibration error: the mean distance between predicted and observed rate in 20 groups of rows "
            "with similar predictions." + (chance if metrics["ece_if_calibrated"] is not None else ""),
        ),
    }
    for name, (title, meaning) in meanings.items():
        yield Card(title, metrics[name], intervals.get(name), baseline.get(name), meaning)
    if of := metrics.get("gauc_groups"):
        interval = [of["low"], of["high"]] if "low" in of else None
        meaning = f"The AUC within each of {of['groups']:,} values of {of['column']}, averaged by {of['weighted_by']}."
        yield Card("gAUC", metrics["gauc"], interval, baseline.get("gauc"), meaning)
    if measured["top"] is not None:
        meaning = "The share of all clicks in the tenth of the rows with the highest predictions. 0.1 is chance."
        yield Card("Clicks in the top 10%", measured["top"], None, None, meaning)


def settings_of(config: str) -> dict[str, Any]:
    """Returns the contents of config.yaml, or {} if it is not a mapping. The page shows the text in either case."""
    try:
        settings = yaml.safe_load(config)
    except yaml.YAMLError:
        return {}
    return settings if isinstance(settings, dict) else {}


def log_text(files: Sequence[Mapping[str, Any]]) -> str:
    """Returns the names of the log's files; for more than MOST_FILES, the first, the last and the number of files."""
    names = [pathlib.PurePath(file["path"]).name for file in files]
    if len(names) > MOST_FILES:
        return f"{names[0]} to {names[-1]}, {len(names):,} files"
    return ", ".join(names)


def splits(statistics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows, clicks, and first and last time of each split; if no time is known, the first and last file.

    A log that is split by time uses the times of the split. Other logs use their first time column.
    """
    times: Mapping[str, Mapping[str, Sequence[str]]] = statistics.get("times", {})
    spans: dict[str, Sequence[str]] = {name: split.get("span", []) for name, split in statistics["splits"].items()}
    if any(pathlib.PurePath(end).is_absolute() for span in spans.values() for end in span) or not any(spans.values()):
        files = {name: [pathlib.PurePath(end).name for end in span] for name, span in spans.items()}
        several = len({end for span in files.values() for end in span}) > 1
        spans = dict(next(iter(times.values()), files if several else {}))
    return [
        {
            "name": name,
            "rows": split["rows"],
            "clicks": split["positives"],
            "rate": split["positives"] / split["rows"] if split["rows"] else None,
            "span": list(spans.get(name, [])),
        }
        for name, split in statistics["splits"].items()
    ]


def span_of_test(parts: Sequence[Mapping[str, Any]]) -> str:
    """Returns the first and the last time, or file, of the test rows; "" if unknown."""
    return next((" to ".join(dict.fromkeys(part["span"])) for part in parts if part["name"] == "test"), "")


def data_warnings(statistics: Mapping[str, Any]) -> list[str]:
    """Returns the warnings about the log that a reader needs before the metrics, without a final period."""
    texts = []
    of_rows = [anomaly for anomaly in statistics["anomalies"] if anomaly["column"] == WHOLE_ROW]
    texts += [f"{anomaly['split']} rows: {anomaly['text']}" for anomaly in of_rows]
    names = list(dict.fromkeys(anomaly["column"] for anomaly in statistics["anomalies"] if anomaly not in of_rows))
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        texts.append(f"look at the columns {', '.join(names[:MOST_NAMED])}{more}: the page Data says why")
    bad, good = statistics["dead_letters"]["rows"], sum(split["rows"] for split in statistics["splits"].values())
    if bad and bad >= LEAST_MALFORMED * (bad + good):
        texts.append(f"{bad:,} of {bad + good:,} rows are malformed and left out: the page Data says why")
    return texts


def columns(statistics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the columns of the data page. Fills in the figures that runs of earlier releases lack."""
    return [{**NO_COLUMN, **column} for column in statistics["columns"]]


def slices(metrics: Mapping[str, Any], measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the slices, those with the largest share of the log loss first."""
    rows = [
        {
            "column": column,
            "value": value,
            "metrics": of_value,
            **NO_MEASURES,
            **measured["slices"].get(column, {}).get(value, {}),
        }
        for column, values in metrics["slices"].items()
        for value, of_value in values.items()
    ]
    return sorted(rows, key=lambda row: -1.0 if row["cost"] is None else row["cost"], reverse=True)
