"""Charts as SVG: where things lie, and that names are text."""

import re
import xml.etree.ElementTree

import pytest

from ctrpipe.pipeline.report.svg import (
    BAR_WIDTH,
    NAMES,
    Bar,
    Line,
    bar_chart,
    heat_map,
    histogram,
    line_chart,
    short,
    ticks,
)

HOSTILE = '<script>alert(1)</script>"&'


def parsed(svg: str) -> xml.etree.ElementTree.Element:
    return xml.etree.ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [element.text for element in parsed(svg).iter() if element.text]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((-0.3, 0.7), [-0.2, 0, 0.2, 0.4, 0.6]),
        ((1000, 26000), [5000, 10000, 15000, 20000, 25000]),
        ((2, 2), [2]),
    ],
)
def test_ticks_are_round_numbers_between_the_ends(ends, expected):
    assert ticks(*ends) == pytest.approx(expected)


def test_numbers_are_short():
    assert [short(value) for value in (0, 0.05, 25000, 2.5e6, -1200, 1.25e-5)] == [
        "0",
        "0.05",
        "25k",
        "2.5M",
        "-1.2k",
        "1.25e-05",
    ]


def test_lines_go_through_their_points():
    svg = line_chart("t", [Line("a", [0, 1], [0, 1]), Line("b", [0, 1, 1], [1, float("nan"), 0])], ("x", "y"))
    found = [points.split() for points in re.findall('points="(.*?)"', svg)]
    assert len(found[0]) == len(found[1]) == 2  # what is no number is left out
    (left, low), (right, high) = ([float(part) for part in point.split(",")] for point in found[0])
    assert left < right and low > high  # up is less
    assert [float(part) for part in found[1][0].split(",")] == [left, high]


def test_an_interval_stands_at_its_point():
    svg = line_chart("t", [Line("a", [0, 1], [0, 1], intervals=[(0, 0.5), (0.5, 9)])], ("x", "y"), (0, 1), (0, 1))
    [first, last] = [[float(part) for part in points.split(",")] for points in re.findall("[0-9.]+,[0-9.]+", svg)]
    spreads = [[float(part) for part in found] for found in re.findall(r'd="M([\d.]+) ([\d.]+)V([\d.]+)"', svg)]
    middle = (first[1] + last[1]) / 2
    assert spreads == [
        [*first, pytest.approx(middle)],
        [last[0], pytest.approx(middle), last[1]],
    ]


def test_a_bar_reaches_from_0_to_its_value_and_its_interval_beyond():
    bars = [Bar("a", 4.0, (3.0, 5.0)), Bar("b", -1.0), Bar(HOSTILE, 0.0, note=HOSTILE)]
    svg = bar_chart("t", bars, "unit")
    rects = [element.attrib for element in parsed(svg).iter() if element.tag.endswith("rect")]
    above, below, zero = ((float(one["x"]), float(one["width"])) for one in rects)
    whole = BAR_WIDTH - 64 - NAMES  # from -1 to 5
    assert above[1] == pytest.approx(whole * 4 / 6, abs=0.1) and below[1] == pytest.approx(whole / 6, abs=0.1)
    assert above[0] == pytest.approx(below[0] + below[1], abs=0.11) and zero[1] == 0
    assert [one["class"] for one in rects] == ["plus", "minus", "plus"]
    low, high = re.search(r'd="M([\d.]+) [\d.]+H([\d.]+)M', svg).groups()
    assert float(low) == pytest.approx(above[0] + whole * 3 / 6, abs=0.2)
    assert float(high) == pytest.approx(above[0] + whole * 5 / 6, abs=0.2)
    assert f"{HOSTILE} = {HOSTILE}: +0.00000" in texts(svg) and "<script" not in svg


def test_a_cell_of_a_heat_map_is_the_darker_the_further_from_0():
    svg = heat_map(HOSTILE, ["a", HOSTILE], ["x", "y"], [[1.0, None], [-0.5, 0.0]], "bits")
    cells = [element for element in parsed(svg).iter() if element.tag.endswith("rect") and len(element)]
    found = {cell[0].text: (cell.attrib["class"], float(cell.attrib["fill-opacity"])) for cell in cells}
    expected = {"a x x: +1 bits": ("plus", 1.0), f"{HOSTILE} x x: -0.5 bits": ("minus", 0.5)}
    assert found == {**expected, f"{HOSTILE} x y: +0 bits": ("plus", 0.0)}
    assert "<script" not in svg


def test_a_histogram_is_as_high_as_its_densities():
    svg = histogram("t", [Line("a", [0.0, 0.5, 1.0], [2.0, 1.0])], ("x", "y"))
    points = [[float(part) for part in point.split(",")] for point in re.search('points="(.*?)"', svg)[1].split()]
    bottom = points[0][1]
    assert [round((bottom - y) / (bottom - points[1][1]), 2) for _, y in points] == [0, 1, 1, 0.5, 0.5, 0]
