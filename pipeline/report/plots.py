"""The plots of a report: training curves, ROC, calibration and scores by class, each a PNG.

Kept apart from the page, because importing matplotlib takes four times as long as a report whose plots are kept.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from pipeline.evaluation.scored_rows import as_numpy, read_table

CALIBRATION_BINS = 20
PLOTTED = ["label", "probability", "baseline_probability"]


def draw_plots(predictions: bytes, history: dict[str, Any]) -> dict[str, bytes]:
    """Returns the plots by title, as PNG files; those that the data do not allow are left out.

    Args:
        predictions: The contents of predictions.parquet: label, probability and, with a baseline, its probability.
        history: The contents of history.json.

    Raises:
        ValueError: the predictions are no such Parquet file.
    """
    plots: dict[str, bytes] = {}
    if history["evaluations"]:
        plots["Training curves"] = _draw(lambda axes: _draw_history(axes, history), 2)
    try:
        table = read_table(pa.BufferReader(predictions), PLOTTED)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"predictions.parquet: {error}") from error
    columns = {name: as_numpy(table[name]) for name in table.column_names}
    if 0 < columns["label"].sum() < len(columns["label"]):
        plots["ROC"] = _draw(lambda axes: _draw_roc(axes[0], columns), 1)
    plots["Calibration"] = _draw(lambda axes: _draw_calibration(axes[0], columns), 1)
    plots["Scores by class"] = _draw(lambda axes: _draw_scores(axes[0], columns), 1)
    return plots


def _draw(paint: Callable[[Sequence[Axes]], None], panels: int) -> bytes:
    # Without pyplot, and with margins that need no trial drawing: each takes a tenth of a second.
    figure = matplotlib.figure.Figure(figsize=(4.6 * panels, 3.4))
    margins = {"left": 0.15 / panels, "right": 1 - 0.03 / panels, "bottom": 0.15, "top": 0.96, "wspace": 0.25}
    paint(figure.subplots(1, panels, squeeze=False, gridspec_kw=margins)[0])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _draw_history(axes: Sequence[Axes], history: dict[str, Any]) -> None:
    evaluations = history["evaluations"]
    examples = [row["examples"] for row in evaluations]
    axes[0].plot(examples, [row["train_loss"] for row in evaluations], marker=".", label="training")
    axes[0].plot(examples, [row["validation_log_loss"] for row in evaluations], marker=".", label="validation")
    axes[0].set(xlabel="examples", ylabel="log loss")
    axes[1].plot(examples, [row["validation_auc"] for row in evaluations], marker=".", label="validation")
    axes[1].set(xlabel="examples", ylabel="AUC")
    for axis in axes:
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 25k: labels of six digits would run into each other
        if history["best"] is not None:
            axis.axvline(examples[history["best"]], color="gray", linestyle=":", label="best")
        axis.legend()


def _models(columns: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    names = (("model", "probability"), ("baseline", "baseline_probability"))
    return [(label, columns[name]) for label, name in names if name in columns]


def roc_curve(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the false and the true positive rates, `[P]` each, at every score where the curve bends.

    As scikit-learn's, whose import takes longer than the whole report.

    Args:
        labels: 0 or 1, `[N]`, of both classes.
        scores: The higher, the more likely a click, `[N]`.
    """
    order = np.argsort(-scores, kind="stable")
    last_of_score = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    clicks = np.cumsum(labels[order] > 0.5)[last_of_score]
    others = 1 + last_of_score - clicks
    bends = np.ones(len(clicks), bool)
    bends[1:-1] = (np.diff(clicks, 2) != 0) | (np.diff(others, 2) != 0)
    return np.append(0, others[bends] / others[-1]), np.append(0, clicks[bends] / clicks[-1])


def _draw_roc(axis: Axes, columns: dict[str, np.ndarray]) -> None:
    for name, probability in _models(columns):
        axis.plot(*roc_curve(columns["label"], probability), label=name)
    axis.plot([0, 1], [0, 1], color="gray", linestyle=":")
    axis.set(xlabel="false positive rate", ylabel="true positive rate")
    axis.legend()


def _draw_calibration(axis: Axes, columns: dict[str, np.ndarray]) -> None:
    highest = 0.0
    for name, probability in _models(columns):
        parts = np.array_split(np.argsort(probability, kind="stable"), min(CALIBRATION_BINS, len(probability)))
        predicted = [probability[part].mean() for part in parts]
        axis.plot(predicted, [columns["label"][part].mean() for part in parts], marker=".", label=name)
        highest = max(highest, *predicted)
    axis.plot([0, highest], [0, highest], color="gray", linestyle=":")
    axis.set(xlabel="predicted", ylabel="observed (bins of equal mass)")
    axis.legend()


def _draw_scores(axis: Axes, columns: dict[str, np.ndarray]) -> None:
    bins = np.linspace(0, max(float(columns["probability"].max()), 1e-6), 41)
    for value, name in ((0, "no click"), (1, "click")):
        scores = columns["probability"][columns["label"] == value]
        if len(scores):
            axis.hist(scores, bins=bins.tolist(), density=True, alpha=0.55, label=name)
    axis.set(xlabel="predicted probability", ylabel="density")
    axis.legend()
