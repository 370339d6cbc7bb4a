"""The charts of pages: where things lie, which tooltips they have, and that names are text."""

import re
import xml.etree.ElementTree

import numpy as np
import pytest

from ctrpipe.common.charts import (
    Bar,
    BarChart,
    Chart,
    Estimated,
    Forest,
    HeatMap,
    Histogram,
    Line,
    chart_figure,
    chart_svg,
    short,
)
from ctrpipe.common.palette import COLORS

HOSTILE = '<script>alert(1)</script>"&'


def parsed(svg: str) -> xml.etree.ElementTree.Element:
    return xml.etree.ElementTree.fromstring(svg)


def elements(svg: str, tag: str) -> list[xml.etree.ElementTree.Element]:
    return [element for element in parsed(svg).iter() if element.tag == tag]


def with_titles(svg: str) -> dict[str, xml.etree.ElementTree.Element]:
    """The shapes that have a tooltip, by its text."""
    return {child.text: element for element in parsed(svg).iter() for child in element if child.tag == "title"}


def numbers(path: str) -> np.ndarray:
    """The points of a path."""
    return np.array([float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]).reshape(-1, 2)


def paths(svg: str, color: str) -> list[np.ndarray]:
    drawn = [path for path in elements(svg, "path") if f"stroke: var({color}" in path.get("style", "")]
    return [numbers(path.get("d")) for path in drawn if "clip-path" in path.attrib]


def test_numbers_are_short():
    values = [short(value) for value in (0, 0.05, 25000, 2.5e6, -1200, 1.25e-5)]
    assert values == ["0", "0.05", "25k", "2.5M", "-1.2k".replace("-", "\N{MINUS SIGN}"), "1.25e-05"]


def test_lines_go_through_their_points_and_leave_out_what_is_no_number():
    ends = (0, 1)
    lines = [Line("a", [0, 1], [0, 1]), Line("b", [0, 1, 1], [1, float("nan"), 0])]
    svg = chart_svg(Chart("t", lines, ("x", "y"), ends, ends))
    [first] = paths(svg, "--c0")
    [(left, low), (right, high)] = first
    assert left < right and low > high  # up is less
    [second] = paths(svg, "--c1")
    assert second[0].tolist() == [left, high]
    # 1 of the figure's width and height is the range
    half = chart_svg(Chart("t", [Line("a", [0, 0.5], [0, 0.5])], ("x", "y"), ends, ends))
    [[start, end]] = paths(half, "--c0")
    assert (end - start).tolist() == pytest.approx([(right - left) / 2, (high - low) / 2], abs=0.6)


def test_a_dot_has_its_values_as_a_tooltip_and_an_interval_is_at_its_point():
    line = Line("a", [0, 1], [0, 1], dots=True, intervals=[(0, 0.5), (0.5, 0.75)])
    svg = chart_svg(Chart("t", [line], ("x", "y"), (0, 1), (0, 1)))
    dots = with_titles(svg)
    assert set(dots) == {"a: x 0, y 0", "a: x 1, y 1"}
    places = {text: (float(dot.get("x")), float(dot.get("y"))) for text, dot in dots.items()}
    whole, *intervals = paths(svg, "--c0")
    assert sorted(places.values()) == sorted(map(tuple, whole.tolist()))
    height = whole[0][1] - whole[1][1]
    for interval, place, (low, high) in zip(intervals, whole, line.intervals, strict=True):
        assert set(interval[:, 0]) == {place[0]}
        ends = (whole[0][1] - interval[:, 1]) / height
        assert sorted(ends) == pytest.approx([low, high], abs=0.01)


def test_a_bar_reaches_from_0_to_its_value_and_its_interval_beyond():
    bars = [Bar("a", 4.0, (3.0, 5.0)), Bar("b", -1.0), Bar(HOSTILE, 0.0, note=HOSTILE)]
    svg = chart_svg(BarChart("t", bars, "unit"))
    drawn = with_titles(svg)
    assert list(drawn) == ["a: +4.00000", "b: -1.00000", f"{HOSTILE} = {HOSTILE}: +0.00000"]
    ratios = chart_svg(BarChart("t", bars, "ratio", signed=False))
    assert list(with_titles(ratios)) == ["a: 4.000", "b: -1.000", f"{HOSTILE} = {HOSTILE}: 0.000"]
    assert ">4.00<" in ratios and "+4" not in ratios and ">+4.0000<" in svg
    spans = [np.sort(np.unique(numbers(bar.get("d"))[:, 0])) for bar in drawn.values()]
    above, below = np.ptp(spans[0]), np.ptp(spans[1])
    assert above == pytest.approx(4 * below, rel=0.01) and len(spans[2]) == 1
    assert spans[1][1] == pytest.approx(spans[0][0], abs=0.02)
    colors = [re.search(r"fill: var\((--c\d)", bar.get("style"))[1] for bar in drawn.values()]
    assert colors == ["--c0", "--c1", "--c0"]
    [interval] = paths(svg, "--text")
    zero = spans[0][0]
    assert ((interval[:, 0] - zero) / below).tolist() == pytest.approx([3, 5], abs=0.01)
    assert "<script" not in svg


def test_a_forest_has_a_dot_and_an_interval_where_something_is_known():
    first = Estimated("a", [1.0, None, -1.0], [(0.5, 2.0), None, None])
    second = Estimated(HOSTILE, [0.0, 0.5, 0.5], [(-1.0, 1.0), (0.0, 1.0), (0.5, 0.5)])
    svg = chart_svg(Forest("t", ["all", "x", HOSTILE], [first, second], "AUC"))
    dots = with_titles(svg)
    assert list(dots) == [
        "a, all: +1.00000, 95% +0.50000 to +2.00000",
        f"a, {HOSTILE}: -1.00000",
        f"{HOSTILE}, all: +0.00000, 95% -1.00000 to +1.00000",
        f"{HOSTILE}, x: +0.50000, 95% +0.00000 to +1.00000",
        f"{HOSTILE}, {HOSTILE}: +0.50000, 95% +0.50000 to +0.50000",
    ]
    places = [(float(dot.get("x")), float(dot.get("y"))) for dot in dots.values()]
    (one, top), (minus, bottom), (zero, beside), *_ = places
    assert one - zero == pytest.approx(zero - minus, abs=0.02) and top < beside < bottom
    [interval] = paths(svg, "--c0")
    assert set(interval[:, 1]) == {top}
    assert ((interval[:, 0] - zero) / (one - zero)).tolist() == pytest.approx([0.5, 2.0], abs=0.01)
    assert len(paths(svg, "--c1")) == 3 and "<script" not in svg
    alone = chart_svg(Forest("t", ["x", "y", "z"], [first], "AUC"))
    assert "a" not in [text.text for text in elements(alone, "text")]  # no legend for one


def test_a_cell_of_a_heat_map_is_the_stronger_the_further_from_0():
    svg = chart_svg(HeatMap(HOSTILE, ["a", HOSTILE], ["x", "y"], [[1.0, None], [-0.5, 0.0]], "bits"))
    found = {
        text: (
            re.search(r"fill: var\((--c\d)", cell.get("style"))[1],
            cell.get("style").rpartition("fill-opacity: ")[2],
        )
        for text, cell in with_titles(svg).items()
    }
    assert found["a x x: +1 bits"][0] == "--c0" and "fill-opacity" not in found["a x x: +1 bits"][1]
    assert found[f"{HOSTILE} x x: -0.5 bits"] == ("--c1", "0.5")
    assert found[f"{HOSTILE} x y: +0 bits"] == ("--c0", "0.01")
    assert len(found) == 3 and "<script" not in svg


def test_a_histogram_is_as_high_as_its_densities():
    svg = chart_svg(Histogram("t", [Line("a", [0.0, 0.5, 1.0], [2.0, 1.0])], ("x", "y")))
    [area] = [
        path
        for path in elements(svg, "path")
        if "opacity: 0.35" in path.get("style", "") and "clip-path" in path.attrib
    ]
    heights = numbers(area.get("d"))[:, 1]
    bottom = heights.max()
    assert sorted({round((bottom - y) / (bottom - heights.min()), 2) for y in heights}) == [0, 0.5, 1]


def test_colors_are_variables_of_the_page_and_text_has_its_font():
    chart = Chart(
        "Some title", [Line("a", [0, 1], [0, 1], dots=True)], ("x", "y"), mark=0.5, reference=((0, 0), (1, 1))
    )
    svg = chart_svg(chart)
    for name, (light, dark) in COLORS.items():
        assert dark not in svg and svg.count(light) == svg.count(f"var({name}, {light})")
    assert set(re.findall(r"#[0-9a-f]{6}", svg)) <= {light for light, _ in COLORS.values()}
    assert parsed(svg).get("aria-label") == "Some title" and "DejaVu" not in svg
    assert chart_svg(chart) == svg  # the same bytes each time


def test_a_notebook_gets_all_charts_in_one_figure():
    charts = [Chart(f"chart {number}", [Line("a", [0, 1], [0, 1])], ("x", "y")) for number in range(4)]
    figure = chart_figure(charts)
    assert [axis.get_title() for axis in figure.axes] == [chart.title for chart in charts]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_names_of_any_characters_are_drawn_without_a_warning(recwarn):
    names = ["a$b$", "价格", "\x01\x1b[31m", "_hidden", "x" * 50]
    svg = chart_svg(BarChart("t", [Bar(name, 1.0) for name in names], "unit"))
    texts = [element.text for element in elements(svg, "text")]
    assert ["a$b$", "价格", r"\x01\x1b[31m", "_hidden", "x" * 23 + "…"] == [
        text for text in texts if text[0] in "a价\\_x"
    ]
    assert not recwarn.list
