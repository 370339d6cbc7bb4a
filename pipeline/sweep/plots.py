"""The plots of a sweep: one column per group of points, one row per metric."""

import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ctrpipe.common.figures import add_legend, shown_name, style, write_svg
from ctrpipe.common.palette import SERIES

Points = list[dict[str, Any]]


def plot_sweep(summary: dict[str, Any], path: pathlib.Path) -> None:
    """Writes the plot of a sweep as an SVG file."""
    write_svg(sweep_figure(summary), path)


@style()
def sweep_figure(summary: dict[str, Any]) -> Figure:
    """Plots AUC, log loss and, if measured, latency: one row per metric, one column per group.

    A group that varies one or two keys is drawn as lines, any other group as one dot per point. Error bars are the
    standard deviation over seeds. AUC and log loss are shown for the test and the validation rows.

    Args:
        summary: The contents of sweep.json.
    """
    groups = _groups(summary["points"])
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("AUC", ("auc", "validation_auc")),
        ("log loss", ("log_loss", "validation_log_loss")),
    ]
    if any(point["metrics"]["latency_ms"]["mean"] is not None for point in summary["points"]):
        rows.append(("latency, ms", ("latency_ms",)))
    tallest = max(len(points) for points in groups.values())
    height = max(3.0, 0.25 * tallest)
    figure = Figure(figsize=(4.5 * len(groups), height * len(rows)))
    axes = figure.subplots(len(rows), len(groups), squeeze=False)
    for column, (name, points) in enumerate(groups.items()):
        for row, (title, metrics) in enumerate(rows):
            axis = axes[row][column]
            if 1 <= len(points[0]["grid"]) <= 2 and len(points) > 1:
                _lines(axis, points, metrics, title)
            else:
                _dots(axis, points, metrics, title)
            if row == 0 and len(groups) > 1:
                axis.set_title(shown_name(name))
    figure.suptitle(summary["name"])
    return figure


@style()
def plot_loss(summary: dict[str, Any], path: pathlib.Path) -> None:
    """Writes an SVG file of the training loss in the first epoch, one line per point (BERT4CTR, Figure 5).

    The loss is measured at every evaluation, over the rows trained since the previous one, and averaged over seeds. If
    the first epoch has only one evaluation, no file is written.

    Args:
        summary: The contents of sweep.json.
        path: The file to write.
    """
    lines = {point["name"]: _first_epoch(point["runs"]) for point in summary["points"]}
    lines = {name: line for name, line in lines.items() if len(line) > 1}
    if not lines:
        return
    figure = Figure(figsize=(7, 4.5))
    axis = figure.subplots()
    for name, line in lines.items():
        axis.plot(*zip(*line, strict=True), marker="o", label=shown_name(name))
    axis.set(xlabel="training rows", ylabel="training log loss of the rows since the last point")
    axis.legend()
    figure.suptitle(summary["name"])
    write_svg(figure, path)


def _first_epoch(runs: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Returns the rows seen and the mean loss at each evaluation of the first epoch that all runs have."""
    parts = [run["evaluations"][: run["training"]["evaluations_per_epoch"]] for run in runs]
    return [
        (each[0]["examples"], statistics.fmean(numbers["train_loss"] for numbers in each))
        for each in zip(*parts, strict=False)
    ]


def _groups(points: Points) -> dict[str, Points]:
    """Returns the points by group. All points without a grid form the group `points`."""
    groups: dict[str, Points] = {}
    for point in points:
        groups.setdefault(point["group"] if point["grid"] else "points", []).append(point)
    return groups


def _lines(axis: Axes, points: Points, metrics: tuple[str, ...], title: str) -> None:
    x_key, *others = points[0]["grid"]
    values = list(dict.fromkeys(_text(point["grid"][x_key]) for point in points))
    for index, other in enumerate(dict.fromkeys(_text(point["grid"][others[0]]) if others else "" for point in points)):
        line = [point for point in points if not others or _text(point["grid"][others[0]]) == other]
        for metric, look in zip(metrics, ("-", ":"), strict=False):
            x = [values.index(_text(point["grid"][x_key])) + 0.03 * index for point in line]  # keeps error bars apart
            where = "" if len(metrics) == 1 else "validation" if metric.startswith("validation") else "test"
            label = ", ".join(part for part in (f"{_short(others[0])}={other}" if others else "", where) if part)
            _bars(axis, x, line, metric, fmt=f"o{look}", color=SERIES[index % len(SERIES)], label=label or None)
    axis.set_xticks(range(len(values)), values)
    axis.set_xlabel(_short(x_key))
    axis.set_ylabel(title)
    add_legend(axis)


def _dots(axis: Axes, points: Points, metrics: tuple[str, ...], title: str) -> None:
    for offset, metric in zip((0.0, 0.25), metrics, strict=False):
        places = [index + offset for index in range(len(points))]
        where = "validation" if metric.startswith("validation") else "test"
        _bars(axis, places, points, metric, sideways=True, fmt="o", label=where if len(metrics) > 1 else None)
    axis.set_yticks(range(len(points)), [shown_name(point["name"]) for point in points])
    axis.invert_yaxis()
    axis.set_xlabel(title)
    add_legend(axis)


def _bars(
    axis: Axes, places: Sequence[float], points: Points, metric: str, sideways: bool = False, **options: Any
) -> None:
    spreads = [point["metrics"][metric] for point in points]
    means = [float("nan") if spread["mean"] is None else spread["mean"] for spread in spreads]
    errors = [spread["std"] or 0.0 for spread in spreads]
    if sideways:
        axis.errorbar(means, places, xerr=errors, capsize=3, **options)
    else:
        axis.errorbar(places, means, yerr=errors, capsize=3, **options)


def _text(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(key: str) -> str:
    return key.rpartition(".")[2]
