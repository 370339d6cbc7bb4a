"""The common style of all plots: matplotlib figures, inlined as SVG for light and dark pages, or shown in a notebook.

`style()` draws figures in the colors of palette.py. An SVG has CSS variables instead, which a page sets for light and
dark mode. Importing matplotlib takes 0.3 s of a core, and a chart 0.06 s. This module and `charts` import it when they
draw.
"""

import contextlib
import functools
import io
import json
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ctrpipe.common.files import write_text
from ctrpipe.common.palette import MUTED, RULE, SERIES, TEXT, css, with_variables
from ctrpipe.common.printable import printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ["-", (0, (5, 2)), (0, (1, 1)), "-.", (0, (8, 2)), (0, (3, 1, 1, 1))]
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": TEXT,
    "axes.titlesize": 9.5,
    "figure.constrained_layout.use": True,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "grid.color": RULE,
    "legend.fontsize": 8,
    "legend.framealpha": 0,
    "lines.markersize": 4,
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's font
    "svg.hashsalt": "ctrpipe",  # the same figure has the same bytes
    "text.color": TEXT,
    "text.parse_math": False,  # a column may be named "a$b$"
    "xtick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.color": MUTED,
    "ytick.labelsize": 8,
}
LONGEST_NAME = 24
POINTS = 72  # per inch
LEAST_SIZE = 0.84  # of a plot on a narrow screen, as its text gets no smaller; the rest is scrolled to
_TIPS = "tips "  # prefix of the gid of an artist with tooltips
_SVG = "http://www.w3.org/2000/svg"
_SHAPES = ("use", "path")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_META = ("Creator", "Date", "Format", "Type")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The context, also a decorator, in which a figure is created and drawn."""
    # Lazy: takes 0.3 s, and what prints tables alone does not need it.
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context(_STYLE | {"axes.prop_cycle": cycler(color=SERIES, linestyle=_DASHES)}):
        yield


def with_tips(artist: "Artist", tips: Sequence[str]) -> None:
    """Gives an artist a tooltip for each of its shapes (markers, cells, or the bar itself), shown by `inline_svg`."""
    artist.set_gid(_TIPS + json.dumps([printable(tip) for tip in tips]))


def add_legend(axis: "Axes") -> None:
    """Adds a legend if something on the axes has a name."""
    if axis.get_legend_handles_labels()[1]:
        axis.legend()


def shown_name(name: str) -> str:
    """Returns a log's name for a plot: at most LONGEST_NAME characters, without characters that XML does not allow."""
    name = printable(name)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def inline_svg(figure: "Figure", title: str) -> str:
    """Returns a figure as an <svg> element for a page, with CSS variables instead of colors and no background.

    It gets narrower with its page, down to LEAST_SIZE.

    Args:
        figure: Created within `style()`.
        title: For screen readers.
    """
    root = _element(figure)
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-label", title)
    root.set("style", f"min-width: {LEAST_SIZE * figure.get_figwidth() * POINTS:.0f}pt")
    return ElementTree.tostring(root, encoding="unicode")


def write_svg(figure: "Figure", path: pathlib.Path) -> None:
    """Writes a figure as an SVG file that follows the reader's light or dark mode."""
    root = _element(figure)
    root.set("xmlns", _SVG)
    sheet = ElementTree.Element("style")
    sheet.text = css()
    root.insert(0, sheet)
    write_text(path, ElementTree.tostring(root, encoding="unicode") + "\n")


def shown(figure: "Figure") -> "Figure":
    """Returns the figure with a `_repr_png_`, so a notebook shows it even if pyplot is not imported."""
    vars(figure)["_repr_png_"] = functools.partial(_png, figure)
    return figure


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return buffer.getvalue()


def _element(figure: "Figure") -> ElementTree.Element:
    """Returns a figure as an SVG element: no ids of groups, titles for tooltips, CSS variables for colors."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # lazy, see style

    buffer = io.StringIO()
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's fonts have it
        children: list[Any] = [child for axis in figure.axes for child in axis.child_axes]
        for part in (figure, *figure.axes, *children):
            part.patch.set(facecolor="none", edgecolor="none")
        # `savefig` would draw the figure twice.
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(buffer, metadata=dict.fromkeys(_META))
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")  # HTML knows the tags without a namespace
    for element in root.iter():
        element.text, element.tail = (element.text or "").strip() or None, None
        if link := element.attrib.pop("{http://www.w3.org/1999/xlink}href", None):
            element.set("href", link)
        for name in ("d", "style", "x", "y", "transform"):
            if value := element.get(name):
                element.set(name, _for_pages(value))
        if element.tag == "g":
            name = element.attrib.pop("id", "")
            if name.startswith(_TIPS):
                _add_titles(element, json.loads(name.removeprefix(_TIPS)))
    return root


def _for_pages(value: str) -> str:
    """Returns an attribute with CSS variables, the page's font, and numbers of two decimals, half of a file's size."""
    value = " ".join(with_variables(value).replace("'DejaVu Sans', sans-serif", "inherit, sans-serif").split())
    return _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value)


def _add_titles(group: ElementTree.Element, tips: Sequence[str]) -> None:
    definitions = {shape for part in group.iter("defs") for shape in part.iter()}
    shapes = [shape for shape in group.iter() if shape.tag in _SHAPES and shape not in definitions]
    for shape, tip in zip(shapes, tips, strict=True):
        ElementTree.SubElement(shape, "title").text = tip
