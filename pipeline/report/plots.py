"""The charts of a report: training curves, ROC, precision and recall, calibration, scores by class.

Separate from the page, because importing numpy and pyarrow takes longer than a report with stored charts.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ctrpipe.common import metrics
from ctrpipe.common.charts import Chart, Drawn, Histogram, Line, chart_svg
from ctrpipe.pipeline.evaluation.scored_rows import as_numpy, read_table

SCORE_BINS = 40
CURVE_POINTS = 300  # maximum points of a drawn curve; more are not visible
PLOTTED = ["label", "probability", "uncalibrated_probability", "baseline_probability", "weight"]
UNIT = (0.0, 1.0)
Columns = dict[str, np.ndarray]
# Maps labels, scores and weights to the points of a curve.
Curve = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def draw_plots(predictions: bytes, history: dict[str, Any]) -> dict[str, str]:
    """Returns the charts of `charts` as SVG, by title."""
    return {title: chart_svg(chart) for title, chart in charts(predictions, history).items()}


def charts(predictions: bytes, history: dict[str, Any]) -> dict[str, Drawn]:
    """Returns the charts by title. Charts without enough data are left out.

    Args:
        predictions: The contents of predictions.parquet: label and probability. With a calibration, a baseline or
            weights also the uncalibrated probability, the baseline's probability or the weight.
        history: The contents of history.json.

    Raises:
        ValueError: the predictions are not such a Parquet file.
    """
    plots: dict[str, Drawn] = {}
    if history["evaluations"]:
        plots |= _training(history)
    try:
        table = read_table(pa.BufferReader(predictions), PLOTTED)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"predictions.parquet: {error}") from error
    columns = {name: as_numpy(table[name]) for name in table.column_names}
    known = ~np.isnan(columns["label"])
    columns = {name: values[known] for name, values in columns.items()}
    columns.setdefault("weight", np.ones(len(columns["label"]), np.float32))
    if metrics.auc(columns["label"], columns["probability"], columns["weight"]) is not None:
        plots["ROC"] = _roc(columns)
        plots["Precision and recall"] = _precision_recall(columns)
    plots["Calibration"] = _calibration(columns)
    plots["Scores by class"] = _scores(columns)
    return plots


def _training(history: dict[str, Any]) -> dict[str, Chart]:
    evaluations = history["evaluations"]
    examples = [row["examples"] for row in evaluations]
    best = None if history["best"] is None else examples[history["best"]]

    def line(name: str, key: str) -> Line:
        values = [math.nan if row[key] is None else row[key] for row in evaluations]
        return Line(name, examples, values, dots=True)

    losses = [line("training", "train_loss"), line("validation", "validation_log_loss")]
    ranked = [line("validation", "validation_auc")]
    return {
        "Training: log loss": Chart("Log loss by examples", losses, ("examples", "log loss"), mark=best),
        "Training: AUC": Chart("AUC by examples", ranked, ("examples", "AUC"), mark=best),
    }


def _models(columns: Columns) -> list[tuple[str, np.ndarray]]:
    names = (("model", "probability"), ("baseline", "baseline_probability"))
    return [(label, columns[name]) for label, name in names if name in columns]


def precision_recall_curve(
    labels: np.ndarray, scores: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns recall and precision, `[P]` each, at every score, from the highest: scikit-learn's in reverse order.

    Args:
        labels: 0 or 1, `[N]`, with at least one click.
        scores: The higher, the more likely a click, `[N]`.
        weights: How often each row counts, `[N]`.
    """
    order = np.argsort(-scores, kind="stable")
    last_of_score = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    weighed = weights[order].astype(np.float64)
    clicks = np.cumsum(metrics.class_weights(labels[order], weighed)[0])[last_of_score]
    rows = np.cumsum(weighed)[last_of_score]
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
    return Chart("Precision by recall", lines, labels, UNIT, UNIT, reference=chance)


def _calibration(columns: Columns) -> Chart:
    lines = []
    highest = 0.0
    for name, probability in _models(columns):
        bins = metrics.reliability(columns["label"], probability, columns["weight"])
        predicted, observed = ([float(row[key]) for row in bins] for key in ("predicted", "observed"))
        intervals = [(float(row["low"]), float(row["high"])) for row in bins]
        lines.append(Line(name, predicted, observed, dots=True, intervals=intervals))
        highest = max(highest, *predicted, *observed)
    span, labels = (0.0, highest * 1.02 or 1.0), ("predicted", "observed (bins of equal mass), 95%")
    diagonal = ((0.0, 0.0), (highest, highest))
    return Chart("Observed by predicted rate", lines, labels, span, span, reference=diagonal)


def _scores(columns: Columns) -> Histogram:
    edges = np.linspace(0, max(float(columns["probability"].max()), 1e-6), SCORE_BINS + 1)
    lines = []
    clicks, others = metrics.class_weights(columns["label"], columns["weight"])
    for mass, name in ((others, "no click"), (clicks, "click")):
        own = mass > 0
        density = np.zeros(SCORE_BINS)
        if own.any():
            density = np.histogram(columns["probability"][own], edges, density=True, weights=mass[own])[0]
        lines.append(Line(name, edges.tolist(), density.tolist()))
    labels = ("predicted probability", "density")
    return Histogram("Densities of probabilities by class", lines, labels)
