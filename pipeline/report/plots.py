"""The charts of a report: training curves, calibration, ROC, precision and recall, gain, scores by class.

This module is separate from the page, because importing numpy and pyarrow takes longer than rendering a report from
cached charts.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ctrpipe.common import metrics
from ctrpipe.common.charts import Chart, Drawn, Histogram, Line, chart_svg
from ctrpipe.pipeline.report.measured import Columns, gain_curve, read_predictions

SCORE_BINS = 40
CURVE_POINTS = 300  # maximum points of a drawn curve; more are not visible
UNIT = (0.0, 1.0)
SETTLED = 0.05  # recall from which the precision curve determines the height of its chart
CLICKS_OF_GROUP, FEWEST_GROUPS = 10, 5  # of the calibration chart; a point with fewer clicks is mostly noise
MOST_SCORES = 0.999  # share of the rows within the histogram's range; its last bin also counts the rest
# Maps labels, scores and weights to the points of a curve.
Curve = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def draw_plots(predictions: bytes, history: dict[str, Any]) -> dict[str, str]:
    """Returns the charts of `charts` as SVG, by title."""
    return {title: chart_svg(chart) for title, chart in charts(predictions, history).items()}


def charts(predictions: bytes, history: dict[str, Any]) -> dict[str, Drawn]:
    """Returns the charts by title. Charts without enough data are left out.

    Args:
        predictions: The contents of predictions.parquet, see `read_predictions`.
        history: The contents of history.json.

    Raises:
        ValueError: the predictions are not such a Parquet file.
    """
    plots: dict[str, Drawn] = {}
    if history["evaluations"]:
        plots |= _training(history)
    columns, _ = read_predictions(predictions)
    plots["Calibration"] = _calibration(columns)
    if metrics.auc(columns["label"], columns["probability"], columns["weight"]) is not None:
        plots["ROC"] = _roc(columns)
        plots["Precision and recall"] = _precision_recall(columns)
        plots["Gain"] = _gain(columns)
    plots["Scores by class"] = _scores(columns)
    return plots


def _training(history: dict[str, Any]) -> dict[str, Chart]:
    """Returns the learning curves. If one training run followed another, each has its own charts, except for one with
    a single evaluation. Fits of a regression with other variances of its prior are shown by this variance.
    """
    evaluations, best = history["evaluations"], history["best"]
    examples = [row["examples"] for row in evaluations]
    starts = [0, *(place for place in range(1, len(examples)) if examples[place] < examples[place - 1]), len(examples)]
    of_runs = list(itertools.pairwise(starts))
    parts = [(start, stop) for start, stop in of_runs if stop - start > 1] or of_runs
    best_row = None if best is None else evaluations[best]
    charts = {}
    for number, (start, stop) in enumerate(parts, 1):
        rows = evaluations[start:stop]
        by_prior = all(row.get("prior_variance") for row in rows)
        end = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
        end = f"{end} (regression)" if by_prior else end
        by = "variance of the prior, log10" if by_prior else "examples"
        mark = None if best_row is None or not start <= best < stop else _place(best_row, by_prior)
        rows = sorted(rows, key=lambda row: _place(row, by_prior))
        losses = [_history(rows, "training", "train_loss", by_prior)]
        losses.append(_history(rows, "validation", "validation_log_loss", by_prior))
        ranked = [_history(rows, "validation", "validation_auc", by_prior)]
        charts[f"Training: log loss{end}"] = Chart(f"Log loss by {by}", losses, (by, "log loss"), mark=mark)
        charts[f"Training: AUC{end}"] = Chart(f"AUC by {by}", ranked, (by, "AUC"), mark=mark)
    return charts


def _place(row: dict[str, Any], by_prior: bool) -> float:
    return math.log10(row["prior_variance"]) if by_prior else float(row["examples"])


def _history(evaluations: list[dict[str, Any]], name: str, key: str, by_prior: bool) -> Line:
    values = [math.nan if row[key] is None else row[key] for row in evaluations]
    return Line(name, [_place(row, by_prior) for row in evaluations], values, dots=True)


def _models(columns: Columns) -> list[tuple[str, np.ndarray]]:
    names = (("model", "probability"), ("baseline", "baseline_probability"))
    return [(label, columns[name]) for label, name in names if name in columns]


def precision_recall_curve(
    labels: np.ndarray, scores: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns recall and precision, `[P]` each, at every distinct score in descending order.

    scikit-learn's function of the same name returns the points in ascending order.

    Args:
        labels: 0 or 1, `[N]`, with at least one click.
        scores: Scores, `[N]`. A higher score means that a click is more likely.
        weights: Row weights, `[N]`.
    """
    clicks, rows = metrics.clicks_and_rows(labels, scores, weights)
    known = rows > 0  # the first rows may have weight 0
    return clicks[known] / clicks[-1], clicks[known] / rows[known]


def _thinned(name: str, xs: np.ndarray, ys: np.ndarray) -> Line:
    """Returns a line of about CURVE_POINTS points, evenly spaced along the x axis, including both ends."""
    if len(xs) > CURVE_POINTS:
        places = np.unique(np.searchsorted(xs, np.linspace(xs[0], xs[-1], CURVE_POINTS)))
        places = np.unique(np.append(places, [0, len(xs) - 1]))
        xs, ys = xs[places], ys[places]
    return Line(name, xs.tolist(), ys.tolist())


def _lines(columns: Columns, curve: Curve) -> list[Line]:
    labels, weights = columns["label"], columns["weight"]
    return [_thinned(name, *curve(labels, values, weights)) for name, values in _models(columns)]


def _roc(columns: Columns) -> Chart:
    labels = ("false positive rate", "true positive rate")
    chance = ((0.0, 0.0), (1.0, 1.0))
    return Chart("ROC curve", _lines(columns, _roc_rates), labels, UNIT, UNIT, reference=chance)


def _roc_rates(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return metrics.roc_points(labels, scores, weights)[:2]


def _precision_recall(columns: Columns) -> Chart:
    rate = float(np.average(columns["label"], weights=columns["weight"]))
    lines, labels, chance = _lines(columns, precision_recall_curve), ("recall", "precision"), ((0.0, rate), (1.0, rate))
    # The precision of the first few rows is arbitrary. It would flatten the rest of the curve at a low click rate.
    settled = [y for line in lines for x, y in zip(line.xs, line.ys, strict=True) if x >= SETTLED]
    span = (0.0, min(1.0, 1.2 * max(settled, default=1.0)))
    return Chart("Precision by recall", lines, labels, UNIT, span, reference=chance)


def _gain(columns: Columns) -> Chart:
    rate = float(np.average(columns["label"], weights=columns["weight"]))
    lines = [*_lines(columns, gain_curve), Line("perfect", [0.0, rate, 1.0], [0.0, 1.0, 1.0])]
    labels = ("share of the rows, highest prediction first", "share of the clicks")
    return Chart("Clicks by rows", lines, labels, UNIT, UNIT, reference=((0.0, 0.0), (1.0, 1.0)))


def _calibration(columns: Columns) -> Chart:
    lines = []
    highest = 0.0
    clicks, others = metrics.class_weights(columns["label"], columns["weight"])
    rarer = int(min(np.count_nonzero(clicks), np.count_nonzero(others)))
    groups = min(max(rarer // CLICKS_OF_GROUP, FEWEST_GROUPS), metrics.ECE_BINS)
    for name, probability in _models(columns):
        bins = metrics.reliability(columns["label"], probability, columns["weight"], groups)
        predicted, observed = ([float(row[key]) for row in bins] for key in ("predicted", "observed"))
        intervals = [(float(row["low"]), float(row["high"])) for row in bins]
        lines.append(Line(name, predicted, observed, dots=True, intervals=intervals))
        highest = max(highest, *predicted, *observed, *(high for _, high in intervals))
    span, labels = (0.0, highest * 1.02 or 1.0), ("predicted", "observed (bins of equal mass), 95%")
    diagonal = ((0.0, 0.0), (highest, highest))
    return Chart("Observed by predicted rate", lines, labels, span, span, reference=diagonal)


def _scores(columns: Columns) -> Histogram:
    scores = columns["probability"]
    edges = np.linspace(0, max(float(np.quantile(scores, MOST_SCORES)), 1e-6), SCORE_BINS + 1)
    shown = np.minimum(scores, edges[-1])
    lines = []
    clicks, others = metrics.class_weights(columns["label"], columns["weight"])
    for mass, name in ((others, "no click"), (clicks, "click")):
        own = mass > 0
        density = np.zeros(SCORE_BINS)
        if own.any():
            density = np.histogram(shown[own], edges, density=True, weights=mass[own])[0]
        lines.append(Line(name, edges.tolist(), density.tolist()))
    labels = ("predicted probability", "density")
    return Histogram("Densities of probabilities by class", lines, labels)
