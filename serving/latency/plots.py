"""The plots of a latency benchmark's page: percentiles and rates by rows, and the percentiles of the open loop."""

from collections.abc import Iterable
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ctrpipe.common.figures import inline_svg, style
from ctrpipe.common.palette import SERIES
from ctrpipe.serving.latency.sample import PERCENTILES, name_of

Cells = list[dict[str, Any]]
_MARKERS = "os^D"


@style()
def draw_plots(report: dict[str, Any]) -> dict[str, str]:
    """Returns the plots as inline SVG, by title."""
    if not report["models"]:
        return {}
    cells = report["models"][0]["cells"]
    closed = [cell for cell in cells if cell["loop"] == "closed"]
    plots = {}
    clients = sorted({cell["concurrency"] for cell in closed})
    for count in clients:
        chosen = [cell for cell in closed if cell["concurrency"] == count]
        label = f"{count} client{'s' if count > 1 else ''}"
        for title, draw in (("p50 (line) and p99 (dotted), ms", _latency_plot), ("rows/s", _rate_plot)):
            plots[f"{title}, {label}"] = draw(chosen, f"{title}, {label}")
    opened = [cell for cell in cells if cell["loop"] == "open"]
    if opened:
        title = "Open loop: percentiles from the intended start, ms"
        plots[title] = _open_plot(opened, title)
    return plots


def _lines(cells: Cells) -> Iterable[tuple[str, Cells]]:
    for kind in dict.fromkeys(cell["kind"] for cell in cells):
        yield kind, sorted((cell for cell in cells if cell["kind"] == kind), key=lambda cell: cell["rows"])


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.5))
    return figure, figure.subplots()


def _latency_plot(cells: Cells, title: str) -> str:
    figure, axis = _figure()
    for place, (kind, line) in enumerate(_lines(cells)):
        for name, label in (("p50_ms", kind), ("p99_ms", None)):
            known = [(cell["rows"], cell[name]) for cell in line if cell[name] is not None]
            look = (
                {"linestyle": "-", "marker": _marker(place)}
                if label
                else {"linestyle": ":", "color": axis.lines[-1].get_color()}
            )
            axis.plot([rows for rows, _ in known], [ms for _, ms in known], label=label, **look)
    axis.set(xlabel="rows in a request", ylabel="ms")
    _by_factors(axis, "x", "y")
    return _picture(figure, axis, title)


def _rate_plot(cells: Cells, title: str) -> str:
    figure, axis = _figure()
    for place, (kind, line) in enumerate(_lines(cells)):
        rates = [cell["rows_per_s"] for cell in line]
        axis.plot([cell["rows"] for cell in line], rates, linestyle="-", marker=_marker(place), label=kind)
    axis.set(xlabel="rows in a request", ylabel="rows/s")
    _by_factors(axis, "x", "y")
    return _picture(figure, axis, title)


def _open_plot(cells: Cells, title: str) -> str:
    figure, axis = _figure()
    for place, cell in enumerate(cells):
        known = [(f"p{p:g}", cell[name_of(p)]) for p in PERCENTILES if cell[name_of(p)] is not None]
        label = f"{cell['kind']}, {cell['rows']} rows, {cell['rate_per_s']:,.0f}/s"
        values = [value for _, value in known]
        axis.plot([name for name, _ in known], values, linestyle="-", marker=_marker(place), label=label)
    axis.set(ylabel="ms")
    _by_factors(axis, "y")
    return _picture(figure, axis, title)


def _marker(place: int) -> str:
    """Returns the marker of a line. Markers differ between lines with the same color."""
    return _MARKERS[place // len(SERIES) % len(_MARKERS)]


def _by_factors(axis: Axes, *directions: Literal["x", "y"]) -> None:
    """Sets a logarithmic axis with plain numbers as labels, because SVG does not render formulas such as 10^2."""
    for direction in directions:
        axis.set(**{f"{direction}scale": "log"})
        scale = axis.xaxis if direction == "x" else axis.yaxis
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        scale.set_minor_formatter(NullFormatter())


def _picture(figure: Figure, axis: Axes, title: str) -> str:
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return inline_svg(figure, title)
