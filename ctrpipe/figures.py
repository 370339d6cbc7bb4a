"""Plots of results with matplotlib: line charts, histograms and bar charts."""

import functools
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from ctrpipe.pipeline.report.svg import Bar, Chart

COLUMNS = 3  # charts per row of a figure
BAR_HEIGHT = 0.28  # in inches


def shown(figure: Figure) -> Figure:
    """Returns the figure with a `_repr_png_`, so a notebook shows it even if pyplot is not imported."""
    vars(figure)["_repr_png_"] = functools.partial(_png, figure)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return buffer.getvalue()


def chart_figure(charts: "Sequence[Chart]") -> Figure:
    """Returns one figure with a grid of charts."""
    columns = min(COLUMNS, len(charts))
    rows = math.ceil(len(charts) / columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, chart in zip(axes, charts, strict=False):
        _draw(axis, chart)
    for axis in axes[len(charts) :]:
        axis.remove()
    return shown(figure)


def bar_figure(parts: "Sequence[tuple[str, Sequence[Bar], str]]") -> Figure:
    """Returns one figure with a horizontal bar chart per part, side by side.

    Args:
        parts: Tuples of title, bars (the first on top, with optional intervals) and axis label.
    """
    height = 1.2 + BAR_HEIGHT * max(len(bars) for _, bars, _ in parts)
    figure = Figure(figsize=(5.2 * len(parts), height), layout="constrained")
    for axis, (title, bars, label) in zip(figure.subplots(1, len(parts), squeeze=False).flat, parts, strict=True):
        places = range(len(bars))
        axis.barh(places, [bar.value for bar in bars], color=["C0" if bar.value >= 0 else "C1" for bar in bars])
        for place, bar in zip(places, bars, strict=True):
            if bar.interval:
                axis.plot(bar.interval, (place, place), color="black", linewidth=1)
        axis.set_yticks(places, [f"{bar.name} = {bar.note}" if bar.note else bar.name for bar in bars])
        axis.invert_yaxis()
        axis.axvline(0, color="gray", linewidth=0.8)
        axis.set(title=title, xlabel=label)
        axis.locator_params(axis="x", nbins=5)
    return shown(figure)


def _draw(axis: Axes, chart: "Chart") -> None:
    for line in chart.lines:
        if chart.is_histogram:
            axis.stairs(line.ys, line.xs, fill=True, alpha=0.5, label=line.name)
            continue
        (drawn,) = axis.plot(line.xs, line.ys, marker="o" if line.dots else None, markersize=3, label=line.name)
        for x, ends in zip(line.xs, line.intervals, strict=bool(line.intervals)):
            axis.plot((x, x), ends, color=drawn.get_color(), alpha=0.5, linewidth=1)
    if chart.reference:
        axis.plot(*zip(*chart.reference, strict=True), ":", color="gray")
    if chart.mark is not None:
        axis.axvline(chart.mark, linestyle=":", color="gray")
    axis.set(title=chart.title, xlabel=chart.labels[0], ylabel=chart.labels[1], xlim=chart.x, ylim=chart.y)
    axis.legend(fontsize="small")
