"""The plots of a study."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ctrpipe.common.figures import style
from ctrpipe.common.palette import MINUS, MUTED, PAGE, PLUS
from ctrpipe.pipeline.tune.summary import best_first, setting_text

BUDGET = "The budget's curve"
FAINTEST = 0.25  # opacity of the line of the worst trial
WIDTH = 4.4  # inches; a phone shows this width without scrolling
TICKS = 5  # ticks of a range's axis in the parallel coordinates


@style()
def study_figures(report: dict[str, Any]) -> dict[str, Figure]:
    """Returns the plots by title. Importance is included if enough trials are complete.

    Args:
        report: The contents of tune.json.
    """
    plots = {BUDGET: _budget(report)}
    if report["importance"]:
        plots["Importance"] = _importance(report["importance"])
    plots["Parallel coordinates of the completed trials"] = _coordinates(report)
    return plots


def budget_curve(report: dict[str, Any]) -> tuple[list[int], list[float | None], list[float | None]]:
    """Returns for each trial the steps spent until its end, its value or None, and the best value so far or None.

    Steps of stopped trials count too.
    """
    better = min if report["objective"] == "validation_log_loss" else max
    spent, values, best = [], [], []
    steps, leader = 0, None
    for trial in report["trials"]:
        steps += trial["steps"]
        value = trial["value"]
        if value is not None:
            leader = value if leader is None else better(leader, value)
        spent.append(steps)
        values.append(value)
        best.append(leader)
    return spent, values, best


def _budget(report: dict[str, Any]) -> Figure:
    spent, values, best = budget_curve(report)
    figure = Figure(figsize=(WIDTH, 3.2))
    axis = figure.subplots()
    known = [(steps, value) for steps, value in zip(spent, values, strict=True) if value is not None]
    axis.plot(*zip(*known, strict=True), "o", color=PLUS, alpha=0.6, label="completed trial")
    curve = [(steps, value) for steps, value in zip(spent, best, strict=True) if value is not None]
    axis.step(*zip(*curve, strict=True), where="post", color=MINUS, linestyle="-", label="best so far")
    for steps, value in zip(spent, values, strict=True):
        if value is None:
            axis.axvline(steps, ymax=0.04, color=MUTED, linewidth=1)
    axis.plot([], [], color=MUTED, linewidth=1, label="stopped or refused trial")
    axis.set(xlabel="training steps spent", ylabel=report["objective"].replace("_", " "))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.legend()
    return figure


def _importance(importance: dict[str, float]) -> Figure:
    figure = Figure(figsize=(4.4, 0.8 + 0.3 * len(importance)))
    axis = figure.subplots()
    names = list(importance)[::-1]
    axis.barh(names, [importance[name] for name in names])
    axis.grid(False, axis="y")
    axis.grid(True, axis="x")
    axis.set(xlabel="share of the variance of the trials (fANOVA)")
    return figure


def _coordinates(report: dict[str, Any]) -> Figure:
    trials = best_first(report)[::-1]  # the best is drawn last, on top
    keys = [*report["space"]]
    rows = len(keys) + 1
    figure = Figure(figsize=(WIDTH, 0.5 + 0.65 * rows))
    axis = figure.subplots()
    places = {key: _places([trial["settings"][key] for trial in trials], report["space"][key]) for key in keys}
    values = np.array([trial["value"] for trial in trials])
    span = np.ptp(values) or 1.0
    shares = (values - values.min()) / span
    lines = [
        [*((places[key][0][trial], row) for row, key in enumerate(keys)), (shares[trial], len(keys))]
        for trial in range(len(trials))
    ]
    good = 1 - shares if report["objective"] == "validation_log_loss" else shares
    colors = [
        to_rgba(MINUS if best else PLUS, FAINTEST + (1 - FAINTEST) * one)
        for one, best in zip(good, good == 1, strict=True)
    ]
    axis.add_collection(LineCollection(lines, colors=colors, linewidths=1 + 1.5 * (good == 1)))
    for row, key in enumerate(keys):
        _draw_axis(axis, row, places[key][1])
    _draw_axis(axis, len(keys), [(0.0, f"{values.min():.4f}"), (1.0, f"{values.min() + np.ptp(values):.4f}")])
    axis.set(xlim=(-0.05, 1.05), ylim=(rows - 0.4, -0.3), xticks=[])
    axis.grid(False)
    objective = report["objective"].replace("_", " ")
    axis.set_yticks(
        range(rows), [*(key.partition(".")[2].replace("_", "\n") for key in keys), objective.replace(" ", "\n")]
    )
    for side in ("top", "left", "right", "bottom"):
        axis.spines[side].set_visible(False)
    return figure


def _draw_axis(axis: Axes, row: int, ticks: Sequence[tuple[float, str]]) -> None:
    axis.axhline(row, color=MUTED, linewidth=0.8, zorder=0)
    for place, text in ticks:
        at = {0.0: "left", 1.0: "right"}.get(place, "center")
        drawn = axis.text(place, row + 0.12, text, fontsize="x-small", horizontalalignment=at, verticalalignment="top")
        drawn.set_bbox({"facecolor": PAGE, "edgecolor": "none", "alpha": 0.85, "pad": 1})  # lines run behind it


def _places(values: list[Any], space: Any) -> tuple[list[float], list[tuple[float, str]]]:
    """Returns the positions of values on their axis, 0 to 1, and the axis's ticks."""
    if isinstance(space, list):
        texts = [setting_text(value) for value in space]
        top = max(1, len(texts) - 1)
        heights = [texts.index(setting_text(value)) / top for value in values]
        return heights, [(index / top, text) for index, text in enumerate(texts)]
    is_log = "log" in space
    low, high = (np.log(space["log"]) if is_log else np.array(space["linear"], float)).tolist()
    ticks = np.linspace(low, high, TICKS)
    measured = np.log(values) if is_log else np.array(values, float)
    shown = np.exp(ticks) if is_log else ticks
    named = [(index / (TICKS - 1), f"{value:.2g}") for index, value in enumerate(shown.tolist())]
    return ((measured - low) / (high - low)).tolist(), named
