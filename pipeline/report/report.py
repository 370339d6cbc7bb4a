"""report.html: one file that opens offline, from what a run left in its folder."""

import base64
import io
import json
import pathlib
from typing import Any

import jinja2
import matplotlib.figure
import numpy as np
import pyarrow.parquet

from common.errors import InputError, one_line
from common.files import write_text
from pipeline.evaluation.scored_rows import as_numpy, read_table

CALIBRATION_BINS = 20
PLOTTED = ["label", "probability", "baseline_probability"]


def write_report(directory: pathlib.Path) -> pathlib.Path:
    """Writes DIRECTORY/report.html and returns its path.

    Raises:
        InputError: there is no finished run in the folder, or what it left is incomplete or damaged.
    """
    if not (directory / "metrics.json").exists():
        raise InputError(f"{directory}: no finished run here (metrics.json is absent); run `ctrpipe run` first")
    data = directory / "report_data"
    try:
        text = _render(directory / "metrics.json", data)
    except (jinja2.UndefinedError, pyarrow.ArrowException, LookupError, TypeError, ValueError) as error:
        reason = one_line(error, 200)
        raise InputError(f"{data}: not as `ctrpipe run` leaves it ({reason}); run it again") from error
    path = directory / "report.html"
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def _render(metrics: pathlib.Path, data: pathlib.Path) -> str:
    history = _read_json(data / "history.json")
    return template("report.html.jinja").render(
        metrics={"tail": None, **_read_json(metrics)},
        gates=_read_json(data / "gates.json"),
        history=history,
        statistics=_read_json(data / "statistics.json"),
        drift=_read_json(data / "drift.json") if (data / "drift.json").exists() else None,
        lineage=_read_json(data / "lineage.json"),
        config=_read(data / "config.yaml").decode("utf-8"),
        plots=_plots(_read(data / "predictions.parquet"), history),
    )


def template(name: str) -> jinja2.Template:
    """Returns a page of this folder: values are escaped, an unknown one is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(number=_number, share=_share)
    return environment.get_template(name)


def _read(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); run `ctrpipe run` again") from error


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(_read(path))
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}); run `ctrpipe run` again") from error


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _share(value: float) -> str:
    return f"{value:.2%}"


def _plots(predictions: bytes, history: dict[str, Any]) -> dict[str, str]:
    """Plots by title, as data URIs."""
    plots: dict[str, str] = {}
    if history["evaluations"]:
        plots["Training curves"] = _draw(lambda axes: _draw_history(axes, history), 2)
    table = read_table(pyarrow.BufferReader(predictions), PLOTTED)
    columns = {name: as_numpy(table[name]) for name in table.column_names}
    if 0 < columns["label"].sum() < len(columns["label"]):
        plots["ROC"] = _draw(lambda axes: _draw_roc(axes[0], columns), 1)
    plots["Calibration"] = _draw(lambda axes: _draw_calibration(axes[0], columns), 1)
    plots["Scores by class"] = _draw(lambda axes: _draw_scores(axes[0], columns), 1)
    return plots


def _draw(paint: Any, panels: int) -> str:
    # Without pyplot, and with margins that need no trial drawing: each takes a tenth of a second.
    figure = matplotlib.figure.Figure(figsize=(4.6 * panels, 3.4))
    margins = {"left": 0.15 / panels, "right": 1 - 0.03 / panels, "bottom": 0.15, "top": 0.96, "wspace": 0.25}
    paint(figure.subplots(1, panels, squeeze=False, gridspec_kw=margins)[0])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _draw_history(axes: Any, history: dict[str, Any]) -> None:
    seen = [row["examples"] for row in history["evaluations"]]
    axes[0].plot(seen, [row["train_loss"] for row in history["evaluations"]], marker=".", label="training")
    axes[0].plot(seen, [row["validation_log_loss"] for row in history["evaluations"]], marker=".", label="validation")
    axes[0].set(xlabel="examples", ylabel="log loss")
    axes[1].plot(seen, [row["validation_auc"] for row in history["evaluations"]], marker=".", label="validation")
    axes[1].set(xlabel="examples", ylabel="AUC")
    for axis in axes:
        if history["best"] is not None:
            axis.axvline(seen[history["best"]], color="gray", linestyle=":", label="best")
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


def _draw_roc(axis: Any, columns: dict[str, np.ndarray]) -> None:
    for name, probability in _models(columns):
        axis.plot(*roc_curve(columns["label"], probability), label=name)
    axis.plot([0, 1], [0, 1], color="gray", linestyle=":")
    axis.set(xlabel="false positive rate", ylabel="true positive rate")
    axis.legend()


def _draw_calibration(axis: Any, columns: dict[str, np.ndarray]) -> None:
    highest = 0.0
    for name, probability in _models(columns):
        parts = np.array_split(np.argsort(probability, kind="stable"), min(CALIBRATION_BINS, len(probability)))
        predicted = [probability[part].mean() for part in parts]
        axis.plot(predicted, [columns["label"][part].mean() for part in parts], marker=".", label=name)
        highest = max(highest, *predicted)
    axis.plot([0, highest], [0, highest], color="gray", linestyle=":")
    axis.set(xlabel="predicted", ylabel="observed (bins of equal mass)")
    axis.legend()


def _draw_scores(axis: Any, columns: dict[str, np.ndarray]) -> None:
    bins = np.linspace(0, max(float(columns["probability"].max()), 1e-6), 41)
    for value, name in ((0, "no click"), (1, "click")):
        scores = columns["probability"][columns["label"] == value]
        if len(scores):
            axis.hist(scores, bins=bins, density=True, alpha=0.55, label=name)
    axis.set(xlabel="predicted probability", ylabel="density")
    axis.legend()
