"""The charts of reports and notebooks, and how each is drawn: lines, histograms, bars, forests, heat maps.

The description of a chart is separate from its drawing: a page inlines a chart as SVG, and a notebook shows several in
one figure.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ctrpipe.common.figures import add_legend, inline_svg, shown, shown_name, style, with_tips
from ctrpipe.common.palette import MINUS, MUTED, PLUS, SERIES, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

COLUMNS = 3  # charts per row of a figure
TICKS = 5
BAR_TICKS = 3  # the names and the values of bars leave little room
LARGE = 10_000  # from this number on, an axis says 10k
FAINTEST = 0.01  # of a cell: no fill at all would have no tooltip
Range = tuple[float, float]
_MARKERS = "osD^v"  # of a forest's estimates, each with all colors


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a chart, with optional dots and an optional interval for each point."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    dots: bool = False
    intervals: Sequence[Range] = ()


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar from 0 to its value, with an optional interval."""

    name: str
    value: float
    interval: Range | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart of lines.

    Attributes:
        title: The title, also for screen readers.
        lines: The lines.
        labels: The axes' names, x first.
        x, y: The axes' ranges. None: the range of the lines.
        reference: Two points of a dotted line.
        mark: The x position of a vertical dotted line.
    """

    title: str
    lines: Sequence[Line]
    labels: tuple[str, str]
    x: Range | None = None
    y: Range | None = None
    reference: tuple[Range, Range] | None = None
    mark: float | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 3.9, 2.9

    def draw(self, axis: "Axes") -> None:
        """Draws the chart on the axes."""
        for line in self.lines:
            [drawn] = axis.plot(line.xs, line.ys, label=line.name)
            color = drawn.get_color()
            for place, ends in zip(line.xs, line.intervals, strict=bool(line.intervals)):
                axis.plot((place, place), ends, color=color, alpha=0.5, linewidth=1, linestyle="-")
            if line.dots:
                known = [(x, y) for x, y in zip(line.xs, line.ys, strict=True) if math.isfinite(y)]
                [dots] = axis.plot([x for x, _ in known], [y for _, y in known], "o", color=color)
                with_tips(
                    dots,
                    [f"{line.name}: {self.labels[0]} {short(x)}, {self.labels[1]} {short(y)}" for x, y in known],
                )
        if self.reference:
            axis.plot(*zip(*self.reference, strict=True), ":", color=MUTED, linewidth=1)
        if self.mark is not None:
            axis.axvline(self.mark, linestyle=":", color=MUTED, linewidth=1)
        _label(axis, self.labels, self.x, self.y)
        for one in (axis.xaxis, axis.yaxis):
            if np.abs(one.get_view_interval()).max() >= LARGE:
                one.set_major_formatter(_engineering())
        add_legend(axis)


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Overlapping histograms. A line's `xs` are the edges, one more than `ys`."""

    title: str
    lines: Sequence[Line]
    labels: tuple[str, str]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 3.9, 2.9

    def draw(self, axis: "Axes") -> None:
        """Draws the histograms on the axes."""
        for line in self.lines:
            axis.stairs(line.ys, line.xs, fill=True, alpha=0.35, label=line.name)
        _label(axis, self.labels, None, None)
        add_legend(axis)


@dataclasses.dataclass(frozen=True)
class BarChart:
    """Horizontal bars with their intervals, the first on top, in one color above 0 and in another below.

    Attributes:
        title: The title, also for screen readers.
        bars: The bars.
        label: The name of the value's axis.
        mark: The value of a vertical dotted line.
        signed: Whether a value is a change, which is written with its sign.
    """

    title: str
    bars: Sequence[Bar]
    label: str
    mark: float | None = None
    signed: bool = True

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.4, 0.9 + 0.22 * len(self.bars)

    def draw(self, axis: "Axes") -> None:
        """Draws the bars on the axes."""
        places = range(len(self.bars))
        colors = [PLUS if bar.value >= 0 else MINUS for bar in self.bars]
        drawn = axis.barh(places, [bar.value for bar in self.bars], height=0.7, color=colors)
        for place, bar, patch in zip(places, self.bars, drawn, strict=True):
            with_tips(patch, [f"{_named(bar)}: {self._text(bar.value, 5)}"])
            if bar.interval:
                axis.plot(bar.interval, (place, place), "|-", color=TEXT, linewidth=1, markersize=5)
        axis.set_yticks(places, [shown_name(_named(bar)) for bar in self.bars])
        values = axis.secondary_yaxis("right")
        values.set_yticks(places, [self._text(bar.value, 4) for bar in self.bars])
        for one in (axis, values):
            one.tick_params(axis="y", length=0)
            one.spines[:].set_visible(False)
        axis.invert_yaxis()
        axis.grid(False, axis="y")
        axis.grid(True, axis="x")
        axis.axvline(0, color=MUTED, linewidth=0.8)
        if self.mark is not None:
            axis.axvline(self.mark, linestyle=":", color=MUTED)
        axis.set_xlabel(self.label)
        _limit_ticks(axis, BAR_TICKS)

    def _text(self, value: float, decimals: int) -> str:
        return f"{value:+.{decimals}f}" if self.signed else f"{value:.{decimals - 2}f}"


@dataclasses.dataclass(frozen=True)
class Estimated:
    """A model's estimate on each row of a forest plot, with its interval; None where it is not defined."""

    name: str
    values: Sequence[float | None]
    intervals: Sequence[Range | None]


@dataclasses.dataclass(frozen=True)
class Forest:
    """A forest plot: horizontal intervals with a dot, a few next to each other on each row, the first row on top.

    Attributes:
        title: The title, also for screen readers.
        rows: The rows' names.
        estimates: The estimates of each row.
        label: The name of the value's axis.
        mark: The value of the vertical line for no difference.
    """

    title: str
    rows: Sequence[str]
    estimates: Sequence[Estimated]
    label: str
    mark: float = 0.0

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 4.4, 1.1 + (0.12 + 0.14 * len(self.estimates)) * len(self.rows) + 0.16 * self._named

    @property
    def _named(self) -> int:
        """The number of names in the legend, which is left out for one."""
        return len(self.estimates) if len(self.estimates) > 1 else 0

    def draw(self, axis: "Axes") -> None:
        """Draws the intervals on the axes."""
        axis.axvline(self.mark, color=MUTED, linewidth=0.8)
        for number, one in enumerate(self.estimates):
            color, marker = SERIES[number % len(SERIES)], _MARKERS[number // len(SERIES) % len(_MARKERS)]
            shift = (number + 1) / (len(self.estimates) + 1) - 0.5
            known = [(row, value) for row, value in enumerate(one.values) if value is not None]
            for row, _ in known:
                if ends := one.intervals[row]:
                    axis.plot(ends, (row + shift, row + shift), "|-", color=color, linewidth=1, markersize=5)
            label = shown_name(one.name) if self._named else None
            places = [row + shift for row, _ in known]
            [dots] = axis.plot([value for _, value in known], places, marker, color=color, linestyle="", label=label)
            with_tips(dots, [self._tip(one, row) for row, _ in known])
        axis.set_yticks(range(len(self.rows)), [shown_name(name) for name in self.rows])
        axis.tick_params(axis="y", length=0)
        axis.set_ylim(len(self.rows) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.grid(True, axis="x")
        axis.set_xlabel(self.label)
        _limit_ticks(axis)
        if self._named:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=4)

    def _tip(self, one: Estimated, row: int) -> str:
        ends = one.intervals[row]
        interval = f", 95% {ends[0]:+.5f} to {ends[1]:+.5f}" if ends else ""
        return f"{one.name}, {self.rows[row]}: {one.values[row]:+.5f}{interval}"


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """A heat map. A color's strength is the distance from 0, one color above and another below. None is an empty cell.

    Attributes:
        title: The title, also for screen readers.
        rows, columns: Names.
        values: By row and column.
        unit: The unit of the values, for the scale and the cells' tooltips.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    unit: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        cell = min(0.3, 4.6 / max(len(self.columns), 1))
        return max(1.6 + cell * len(self.columns), 3.4), 1.7 + cell * len(self.rows)

    def draw(self, axis: "Axes") -> None:
        """Draws the cells and the scale on the axes."""
        # Lazy: a drawing has imported matplotlib, see figures.style.
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import to_rgba

        known = [
            (row, column, value)
            for row, values in enumerate(self.values)
            for column, value in enumerate(values)
            if value is not None
        ]
        largest = max((abs(value) for _, _, value in known), default=0.0) or 1.0
        cells = PolyCollection(
            [_square(column, row) for row, column, _ in known],
            facecolors=[
                to_rgba(PLUS if value >= 0 else MINUS, max(abs(value) / largest, FAINTEST)) for _, _, value in known
            ],
            clip_on=False,
        )
        axis.add_collection(cells)
        with_tips(cells, [self._tip(*cell) for cell in known])
        axis.set(xlim=(0, len(self.columns)), ylim=(len(self.rows), 0))
        axis.grid(False)
        small = min(8.0, 190 / max(len(self.columns), 1))
        axis.set_xticks(
            [place + 0.5 for place in range(len(self.columns))], [shown_name(name) for name in self.columns]
        )
        axis.tick_params(axis="x", labelrotation=90, labeltop=True, labelbottom=False, length=0, labelsize=small)
        axis.set_yticks([place + 0.5 for place in range(len(self.rows))], list(map(shown_name, self.rows)))
        axis.tick_params(axis="y", length=0, labelsize=small)
        lowest = min((value for _, _, value in known), default=0.0)
        scale = [value for value in (-largest, 0.0, largest / 2, largest) if value >= 0 or lowest < 0]
        for value in scale:
            color = to_rgba(PLUS if value >= 0 else MINUS, abs(value) / largest)
            axis.plot([], [], "s", color=color, label=f"{value:.2g}", markeredgecolor=MUTED, markeredgewidth=0.4)
        axis.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            borderaxespad=0.3,
            ncols=len(scale),
            columnspacing=1.0,
            handletextpad=0.1,
            title=self.unit,
            title_fontsize=8,
        )

    def _tip(self, row: int, column: int, value: float) -> str:
        return f"{self.rows[row]} x {self.columns[column]}: {value:+.5g} {self.unit}"


Drawn = Chart | Histogram | BarChart | Forest | HeatMap


@style()
def chart_svg(chart: Drawn) -> str:
    """Returns a chart as inline SVG."""
    figure = _figure(*chart.size)
    chart.draw(figure.subplots())
    return inline_svg(figure, chart.title)


@style()
def chart_figure(charts: Sequence[Drawn]) -> "Figure":
    """Returns one figure with a grid of charts, each under its title, for a notebook."""
    columns = min(COLUMNS, len(charts))
    rows = math.ceil(len(charts) / columns)
    width, height = (max(chart.size[side] for chart in charts) for side in (0, 1))
    figure = _figure(width * columns, (height + 0.3) * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, chart in zip(axes, charts, strict=False):
        chart.draw(axis)
        axis.set_title(chart.title)
    for axis in axes[len(charts) :]:
        axis.remove()
    return shown(figure)


def short(value: float) -> str:
    """Formats a number in few characters: 25k, 0.05, 1.2e-05."""
    return _engineering()(value) if abs(value) >= 1000 else f"{value:.4g}"


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure  # lazy, see figures.style

    return Figure(figsize=(width, height))


def _engineering() -> "EngFormatter":
    from matplotlib.ticker import EngFormatter  # lazy, see figures.style

    return EngFormatter(sep="")


def _limit_ticks(axis: "Axes", ticks: int = TICKS) -> None:
    from matplotlib.ticker import MaxNLocator  # lazy, see figures.style

    axis.xaxis.set_major_locator(MaxNLocator(ticks))


def _named(bar: Bar) -> str:
    return f"{bar.name} = {bar.note}" if bar.note else bar.name


def _label(axis: "Axes", labels: tuple[str, str], x: Range | None, y: Range | None) -> None:
    axis.set(xlabel=labels[0], ylabel=labels[1])
    if x:
        axis.set_xlim(x)
    if y:
        axis.set_ylim(y)


def _square(x: float, y: float) -> list[tuple[float, float]]:
    return [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]
