"""Charts as inline SVG: lines, histograms, bars with intervals, heat maps. Names and values are always escaped.

A chart has CSS classes instead of colors. style.html.jinja sets them for light and dark mode, from Okabe and Ito's
palette, which is safe for color-blind readers. The SVG is built from strings, so a report needs no plotting library.

References:
    Okabe and Ito, "Color Universal Design", 2008.
"""

import dataclasses
import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 30, 44
TICKS = 5
BAR, NAMES, BAR_WIDTH = 20, 130, 490  # a bar's height, the width for its name, the width of a bar chart
MAP, CELL = 430, 28  # a heat map's width, and the maximum size of a cell
SIGNS, SIGN = 13, 5.6  # characters of a name next to a heat map, and a character's width
Range = tuple[float, float]


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
    """A chart of lines or of histograms, independent of how it is drawn.

    Attributes:
        title: The title, also for screen readers.
        lines: The lines. For histograms, `xs` are the edges, one more than `ys`.
        labels: The axes' names, x first.
        x, y: The axes' ranges. None: the range of the lines.
        reference: Two points of a dotted line.
        mark: The x position of a vertical dotted line.
        is_histogram: Whether the lines are histograms.
    """

    title: str
    lines: Sequence[Line]
    labels: tuple[str, str]
    x: Range | None = None
    y: Range | None = None
    reference: tuple[Range, Range] | None = None
    mark: float | None = None
    is_histogram: bool = False

    @property
    def svg(self) -> str:
        """The chart as SVG."""
        if self.is_histogram:
            return histogram(self.title, self.lines, self.labels)
        return line_chart(self.title, self.lines, self.labels, self.x, self.y, self.reference, self.mark)


def text(x: float, y: float, shown: str, kind: str = "", anchor: str = "start", more: str = "") -> str:
    """Returns a text element of a chart, escaped."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}{more}>{html.escape(shown)}</text>'


def short(value: float) -> str:
    """Formats a number in few characters: 25k, 0.05, 1.2e-05."""
    size = abs(value)
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= factor:
            return f"{value / factor:.4g}{unit}"
    return f"{value:.4g}" if value else "0"


def ticks(low: float, high: float) -> list[float]:
    """Returns about TICKS round numbers between two ends."""
    if not high > low:
        return [low]
    raw = (high - low) / TICKS
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclasses.dataclass(frozen=True)
class _Axes:
    """The axes' ranges of a chart, and the mapping of points to its coordinates."""

    x: Range
    y: Range

    def at(self, x: float, y: float) -> tuple[float, float]:
        right, down = _part(x, self.x), _part(y, self.y)
        return LEFT + right * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - down * (HEIGHT - TOP - BOTTOM)

    def frame(self, x_label: str, y_label: str) -> str:
        left, bottom = self.at(self.x[0], self.y[0])
        parts = []
        for value in ticks(*self.y):
            _, y = self.at(self.x[0], value)
            parts.append(f'<line x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            parts.append(text(left - 6, y + 4, short(value), "tick", "end"))
        for value in ticks(*self.x):
            x, _ = self.at(value, self.y[0])
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{bottom + 4:.1f}" class="axis"/>')
            parts.append(text(x, bottom + 17, short(value), "tick", "middle"))
        parts.append(f'<line x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{bottom:.1f}" y2="{bottom:.1f}" class="axis"/>')
        parts.append(text((left + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "label", "middle"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        turn = f' transform="rotate(-90 14 {middle:.1f})"'
        return "".join(parts) + text(14, middle, y_label, "label", "middle", turn)


def _part(value: float, span: Range) -> float:
    low, high = span
    return (value - low) / (high - low) if high > low else 0.5


def _around(values: Sequence[float]) -> Range:
    """Returns the range of the finite values, widened by a margin."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    margin = (high - low) * 0.04 or abs(high) * 0.05 or 0.5
    return low - margin, high + margin


def _svg(width: float, height: float, title: str, body: str) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    return f'<svg {size} role="img" aria-label="{html.escape(title)}" class="chart">{body}</svg>'


def _legend(names: Sequence[str]) -> str:
    """Returns the legend above a chart: a color swatch and a name for each line or area."""
    parts, x = [], float(LEFT)
    for number, name in enumerate(names):
        parts.append(f'<rect x="{x:.0f}" y="11" width="14" height="5" class="f{number}"/>' + text(x + 19, 18, name))
        x += 36 + 6.6 * len(name)
    return "".join(parts)


def line_chart(
    title: str,
    lines: Sequence[Line],
    labels: tuple[str, str],
    x: Range | None = None,
    y: Range | None = None,
    reference: tuple[Range, Range] | None = None,
    mark: float | None = None,
) -> str:
    """Returns a line chart.

    Args:
        title: The title, for screen readers.
        lines: The lines.
        labels: The axes' names, x first.
        x, y: The axes' ranges. None: the range of the lines.
        reference: Two points of a dotted line.
        mark: The x position of a vertical dotted line.
    """
    xs = [value for line in lines for value in line.xs]
    ys = [value for line in lines for value in line.ys if math.isfinite(value)]
    axes = _Axes(x or _around(xs), y or _around(ys))
    parts = [axes.frame(*labels)]
    ends = [reference] if reference else []
    ends += [((mark, axes.y[0]), (mark, axes.y[1]))] if mark is not None else []
    for first, last in ends:
        (x1, y1), (x2, y2) = axes.at(*first), axes.at(*last)
        parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="dotted"/>')
    for number, line in enumerate(lines):
        known = [(x, y) for x, y in zip(line.xs, line.ys, strict=True) if math.isfinite(y)]
        points = [axes.at(*point) for point in known]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" class="line s{number}"/>')
        for place, (low, high) in zip(line.xs, line.intervals, strict=bool(line.intervals)):
            (px, bottom), (_, top) = axes.at(place, low), axes.at(place, min(high, axes.y[1]))
            parts.append(f'<path d="M{px:.1f} {bottom:.1f}V{top:.1f}" class="spread s{number}"/>')
        for (px, py), (vx, vy) in zip(points, known, strict=True) if line.dots else ():
            shown = html.escape(f"{line.name}: {labels[0]} {short(vx)}, {labels[1]} {short(vy)}")
            parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" class="f{number}"><title>{shown}</title></circle>')
    return _svg(WIDTH, HEIGHT, title, "".join(parts) + _legend([line.name for line in lines]))


def histogram(title: str, lines: Sequence[Line], labels: tuple[str, str]) -> str:
    """Returns overlapping histograms. A line's `xs` are the edges, one more than `ys`."""
    highest = max((value for line in lines for value in line.ys), default=1.0) or 1.0
    edges = [value for line in lines for value in line.xs]
    axes = _Axes((min(edges), max(edges)), (0.0, highest * 1.04))
    parts = [axes.frame(*labels)]
    for number, line in enumerate(lines):
        points = [axes.at(line.xs[0], 0.0)]
        for left, right, value in zip(line.xs[:-1], line.xs[1:], line.ys, strict=True):
            points += [axes.at(left, value), axes.at(right, value)]
        points.append(axes.at(line.xs[-1], 0.0))
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polygon points="{path}" class="area s{number} f{number}"/>')
    return _svg(WIDTH, HEIGHT, title, "".join(parts) + _legend([line.name for line in lines]))


def bar_chart(title: str, bars: Sequence[Bar], label: str) -> str:
    """Returns horizontal bars with their intervals, in one color above 0 and in another below."""
    ends = [0.0] + [bar.value for bar in bars] + [end for bar in bars for end in bar.interval or ()]
    low, high = min(ends), max(ends)
    span = (low, high if high > low else low + 1.0)
    right = BAR_WIDTH - 64

    def at(value: float) -> float:
        return NAMES + _part(value, span) * (right - NAMES)

    height = len(bars) * BAR + 36
    parts = []
    for value in ticks(*span):
        parts.append(f'<line x1="{at(value):.1f}" x2="{at(value):.1f}" y1="0" y2="{height - 32}" class="grid"/>')
        parts.append(text(at(value), height - 19, short(value), "tick", "middle"))
    for number, bar in enumerate(bars):
        y = number * BAR + 3
        left, width = min(at(0.0), at(bar.value)), abs(at(bar.value) - at(0.0))
        tip = html.escape(f"{bar.name}{bar.note and ' = ' + bar.note}: {bar.value:+.5f}")
        kind = "plus" if bar.value >= 0 else "minus"
        parts.append(
            f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{BAR - 6}" class="{kind}">'
            f"<title>{tip}</title></rect>"
        )
        if bar.interval:
            low_end, high_end = (at(end) for end in bar.interval)
            middle = y + (BAR - 6) / 2
            parts.append(
                f'<path d="M{low_end:.1f} {middle}H{high_end:.1f}M{low_end:.1f} {middle - 3}v6M{high_end:.1f} '
                f'{middle - 3}v6" class="whisker"/>'
            )
        name = bar.name + (f" = {bar.note}" if bar.note else "")
        parts.append(text(NAMES - 6, y + 11, _cut(name, 20), "", "end"))
        parts.append(text(BAR_WIDTH - 2, y + 11, f"{bar.value:+.4f}", "tick", "end"))
    parts.append(f'<line x1="{at(0.0):.1f}" x2="{at(0.0):.1f}" y1="0" y2="{height - 32}" class="axis"/>')
    parts.append(text((NAMES + right) / 2, height - 4, label, "label", "middle"))
    return _svg(BAR_WIDTH, height, title, "".join(parts))


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    unit: str,
) -> str:
    """Returns a heat map. Color strength is the distance from 0, blue above and orange below. None is an empty cell.

    Args:
        title: The title, for screen readers.
        rows, columns: Names.
        values: By row and column.
        unit: The unit of the values, for the scale and the cells' tooltips.
    """
    largest = max((abs(value) for row in values for value in row if value is not None), default=0.0) or 1.0
    cell = min(CELL, MAP / max(len(columns), 1))
    left, top = (12 + SIGN * max((min(len(name), SIGNS) for name in names), default=0) for names in (rows, columns))
    width, bottom = max(left + cell * len(columns) + 8, 330), top + cell * len(rows)
    parts = []
    for number, name in enumerate(rows):
        parts.append(text(left - 5, top + (number + 0.75) * cell, _cut(name, SIGNS), "cell", "end"))
        for place, value in enumerate(values[number]):
            if value is None:
                continue
            tip = html.escape(f"{name} x {columns[place]}: {value:+.5g} {unit}")
            parts.append(
                f'<rect x="{left + place * cell:.1f}" y="{top + number * cell:.1f}" width="{cell:.1f}" '
                f'height="{cell:.1f}" class="{"plus" if value >= 0 else "minus"}" '
                f'fill-opacity="{abs(value) / largest:.3f}"><title>{tip}</title></rect>'
            )
    for place, name in enumerate(columns):
        x = left + (place + 0.7) * cell
        turn = f' transform="rotate(-90 {x:.1f} {top - 5})"'
        parts.append(text(x, top - 5, _cut(name, SIGNS), "cell", "start", turn))
    parts.append(
        f'<rect x="{left}" y="{top}" width="{cell * len(columns):.1f}" height="{cell * len(rows):.1f}" class="box"/>'
    )
    lowest = min((value for row in values for value in row if value is not None), default=0.0)
    shown = [(-largest, "minus")] if lowest < 0 else []
    x = left
    for value, kind in [*shown, (0.0, "plus"), (largest / 2, "plus"), (largest, "plus")]:
        opacity = abs(value) / largest
        parts.append(f'<rect x="{x}" y="{bottom + 14:.1f}" width="12" height="12" class="{kind}" ')
        parts.append(f'fill-opacity="{opacity:.2f}" stroke="currentColor" stroke-opacity="0.3"/>')
        parts.append(text(x + 16, bottom + 24, f"{value:.2g}", "tick"))
        x += 70
    parts.append(text(left, bottom + 42, unit, "label"))
    return _svg(width, bottom + 50, title, "".join(parts))


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
