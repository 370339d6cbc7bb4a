"""The report in a real browser: tabs, sorting, an empty console, no request that leaves the file."""

import json
import time

import pytest

from ctrpipe.pipeline.report.report import write_report
from tests.pipeline.browser import absent, running_browser
from tests.pipeline.test_report import HOSTILE, SUMMARY, explained, run_left

REASON = absent()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
NAME = HOSTILE[0]
SLICES = {"b": 0.5, "a": 0.75, "none": None, "é": 0.125, NAME: 0.625}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = run_left(tmp_path_factory.mktemp("run") / "run", NAME)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["slices"] = {NAME: {value: {**SUMMARY, "auc": auc} for value, auc in SLICES.items()}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "report_data" / "explanation.json").write_text(json.dumps(explained(NAME)))
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def browser(run, tmp_path_factory):
    """One browser for the whole file, with the report open."""
    with running_browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open("about:blank")  # a new browser shows a page of its own
        browser.requests(), browser.log("browser")
        browser.open((run / "report.html").as_uri())
        yield browser


def visible(browser) -> list[str]:
    return browser.run("return [...document.querySelectorAll('section')].filter(s => s.offsetHeight).map(s => s.id)")


def click(browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


def show(browser, tab: str) -> None:
    """Clicks on a tab, and returns when its page is shown."""
    click(browser, f"nav a[href='#{tab}']")
    deadline = time.monotonic() + 5
    while visible(browser) != [tab] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert visible(browser) == [tab]


def test_a_tab_shows_its_page_alone(browser):
    tabs = browser.run("return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))")
    assert tabs == ["overview", "curves", "training", "slices", "importance", "pairs", "attention", "rows"] + [
        "data",
        "drift",
        "lineage",
    ]
    assert visible(browser) == ["overview"]
    for tab in tabs:
        show(browser, tab)
        current = "return document.querySelector('nav a[aria-current=\"true\"]').hash"
        assert browser.run(current) == f"#{tab}"
        drawn = "return [...document.querySelectorAll('section:not([hidden]) svg')].every(svg => svg.clientHeight > 60)"
        assert browser.run(drawn)
        assert browser.run(FITS), tab


FITS = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [390, 1400])
def test_no_page_is_wider_than_a_phone_or_a_screen_and_text_is_no_smaller_than_can_be_read(browser, width):
    browser.develop(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
    )
    try:
        for tab in browser.run("return [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))"):
            show(browser, tab)
            assert browser.run(FITS), tab
            assert browser.run(SMALLEST) >= 7, tab  # heat maps of many columns; a page's own text is larger
    finally:
        browser.develop("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("width", [390, 1400])
def test_a_long_name_of_a_column_leaves_room_for_its_values(browser, width):
    browser.develop(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
    )
    try:
        show(browser, "data")
        named = "const cell = document.querySelector('#data .sortable tbody th'), before = cell.innerHTML;"
        named += "cell.textContent = 'a_long_'.repeat(30); const wide = cell.offsetWidth; cell.innerHTML = before;"
        assert browser.run(named + "return wide") <= min(0.46 * width, 330)
    finally:
        browser.develop("Emulation.clearDeviceMetricsOverride")
        show(browser, "overview")


# The smallest letters of the page in pixels: of plots as they are drawn.
SMALLEST = """
const texts = [...document.querySelectorAll("section:not([hidden]) svg text")];
const shown = texts.filter((text) => text.textContent.trim());
const scale = (text) => Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b);  // also of text that is turned
return Math.min(99, ...shown.map((text) => parseFloat(getComputedStyle(text).fontSize) * scale(text)));
"""


def test_what_scrolls_can_be_scrolled_by_keys_and_tables_are_named(browser):
    regions = "return [...document.querySelectorAll('.wide:has(table)')].map(r => [r.tabIndex, r.ariaLabel])"
    found = browser.run(regions)
    assert len(found) > 8 and all(index == 0 and label for index, label in found)


def test_paper_has_every_section_in_light_colours_and_no_tabs(browser):
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.develop("Emulation.setEmulatedMedia", media="print", features=dark)
    try:
        assert len(visible(browser)) == 11
        assert browser.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
        assert browser.run(CONTRASTS)["page"] == [255, 255, 255]
    finally:
        browser.develop("Emulation.setEmulatedMedia", media="")


def values(browser) -> list[str]:
    rows = "#slices .sortable tbody tr"
    return browser.run("return [...document.querySelectorAll(arguments[0])].map(r => r.cells[1].innerText)", rows)


def test_the_slices_are_sorted_by_a_click_on_a_column(browser):
    click(browser, "nav a[href='#slices']")
    time.sleep(0.1)
    auc = "#slices .sortable th:nth-child(5) button"
    click(browser, auc)
    assert values(browser) == ["é", "b", NAME, "a", "none"]  # "-" comes last
    click(browser, auc)
    assert values(browser) == ["a", NAME, "b", "é", "none"]
    assert browser.run(f"return document.querySelector('{auc}').parentNode.ariaSort") == "descending"
    click(browser, "#slices .sortable th:nth-child(2) button")
    assert [value for value in values(browser) if value.isalpha()] == ["a", "b", "é", "none"]


def test_the_pages_text_has_the_numbers_of_the_metrics(browser, run):
    metrics = json.loads((run / "metrics.json").read_text())
    text = browser.run("return document.body.textContent")
    for part in (metrics, metrics["baseline"], *metrics["slices"][NAME].values()):
        for name in SUMMARY:
            value = part[name]
            if value is not None and value == value:
                shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
                assert shown in text, name
    assert metrics["model_version"] in text and "54,321" in text and text.count(NAME) > 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_in_light_and_dark(browser, scheme):
    browser.develop("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    colours = browser.run(CONTRASTS)
    assert (sum(colours["page"]) > 600) == (scheme == "light")
    for name, colour in colours.items():
        if name != "page":
            # WCAG 2.2: 4.5 for text, 3 for what is drawn.
            wanted = 4.5 if name in ("text", "tick", "muted", "yes", "no") else 3
            assert contrast(colour, colours["page"]) >= wanted, (name, colour)


CONTRASTS = """
const rgb = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
const of = (selector, property) => rgb(getComputedStyle(document.querySelector(selector))[property]);
return {
  page: of("body", "backgroundColor"), text: of("body", "color"),
  tick: of("svg text", "fill"), muted: of(".muted", "color"),
  yes: of(".yes", "color"), no: of(".no", "color"),
  first: of("svg path[style*='stroke: var(--c0']", "stroke"),
  second: of("svg path[style*='stroke: var(--c1']", "stroke"),
  filled: of("svg [style*='fill: var(--c0']", "fill"),
};
"""


def contrast(first: list[float], second: list[float]) -> float:
    """WCAG's ratio of two colours' luminances."""
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: list[float]) -> float:
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_nothing_runs_but_the_pages_script_and_nothing_is_asked_for(browser, run):
    """Comes last: the logs are of everything that was done with the page."""
    assert browser.log("browser") == []
    assert {address.partition("#")[0] for address in browser.requests()} == {(run / "report.html").as_uri()}
    assert browser.run("return document.scripts.length") == 1
    refused = "return fetch('http://127.0.0.1:9/').then(() => 'asked', (error) => error.name)"
    assert browser.run(refused) == "TypeError"
    assert any("Content Security Policy" in entry["message"] for entry in browser.log("browser"))
