"""Shows a comparison of logs: as tables in the terminal, as a page and as JSON."""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import rich.console
import rich.markup
import rich.table

from ctrpipe.common.charts import Bar, BarChart, chart_svg
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.pages import template
from ctrpipe.common.terminal import print_table

SHOWN_COLUMNS = 20
SHOWN_BARS = 60  # columns of the chart, the furthest first
NAMED = 8  # columns in the sentence at the head of the page
TITLE = "Distance between the logs"


def print_comparison(comparison: dict[str, Any]) -> None:
    """Prints all columns with a breach, and those closest to one."""
    log, other = comparison["log"], comparison["other"]
    for side in (log, other):
        sample = f" (statistics: of a sample of {side['rate']:.2%})" if side["rate"] < 1 else ""
        print(f"The {side['name']} log: {side['rows']:,} rows{sample}, {side['rejected']:,} malformed")
    columns = comparison["columns"]
    breaches = sum(column["breached"] for column in columns)
    shown = columns[: max(breaches, SHOWN_COLUMNS)]
    moved = f"what moved most ({log['name']}, {other['name']})"
    table = rich.table.Table("column", "distance", "limit", "missing", "verdict", moved)
    for column in shown:
        distance = "-" if column["distance"] is None else f"{column['distance']:.4f}"
        moves = (f"{move['value']} ({_share(move, 'share')}, {_share(move, 'other')})" for move in column["moved"])
        chance = f"ok: by chance {column['chance']}" if column["chance"] else "ok"
        verdict = f"BREACH: {column['text']}" if column["breached"] else chance
        missing = f"{column['missing']:.1%}, {column['other_missing']:.1%}"
        cells = (column["column"], distance, f"{column['threshold']:g}", missing, verdict, "; ".join(moves))
        table.add_row(*(rich.markup.escape(cell) for cell in cells))
    print_table(rich.console.Console(), table)
    if len(shown) < len(columns):
        print(f"and {len(columns) - len(shown)} more columns, all closer")
    print(f"{breaches} of {len(columns)} columns exceed their limit, beyond chance")
    print(f"(at {comparison['level']:.0%}, corrected for {len(columns)} columns by Holm's method)")


def print_attributions(compared: dict[str, Any]) -> None:
    """Prints the columns whose share of the attributions moved beyond its limit, and those closest to it."""
    log, other, columns = compared["log"], compared["other"], compared["columns"]
    breaches = sum(column["breached"] for column in columns)
    print(f"Shares of the explanations of {compared['model']}:")
    table = rich.table.Table("column", f"{log['name']} log", f"{other['name']} log", "limit", "verdict")
    for column in columns[: max(breaches, SHOWN_COLUMNS)]:
        numbers = (f"{column[key]:.2%}" for key in ("share", "other", "threshold"))
        table.add_row(rich.markup.escape(column["column"]), *numbers, "BREACH" if column["breached"] else "ok")
    print_table(rich.console.Console(), table)
    rows = f"By {log['rows']:,} and {other['rows']:,} rows"
    print(
        f"{rows}, {breaches} of {len(columns)} shares of the explanations changed by more than their limit, "
        "beyond chance"
    )


def write_drift(drift: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes drift.json and the page drift.html with the same contents, and returns their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    data, page = folder / "drift.json", folder / "drift.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(data, drift)
        write_text(page, _page(drift))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another --output") from error
    return [data, page]


def _page(drift: dict[str, Any]) -> str:
    plots = {f"{part['kind'].capitalize()}: {TITLE}": chart_svg(drift_chart(part)) for part in drift["comparisons"]}
    page = template("drift_page.html.jinja", pathlib.Path(__file__).parent)
    return page.render(drift=drift, verdict=drift_verdict(drift), plots=plots)


def drift_chart(comparison: dict[str, Any]) -> BarChart:
    """Returns a bar chart of each column's distance divided by its limit. A bar above 1 exceeds the limit."""
    columns = comparison["columns"][:SHOWN_BARS]
    bars = [Bar(one["column"], (one["distance"] or 0.0) / max(one["threshold"], 1e-9)) for one in columns]
    return BarChart(TITLE, bars, "distance / limit", mark=1.0, signed=False)


def drift_verdict(drift: dict[str, Any]) -> str:
    """Returns one sentence on the columns, and the columns' shares of the explanations, that exceed their limits."""
    named = dict.fromkeys(one["column"] for part in drift["comparisons"] for one in part["columns"] if one["breached"])
    count = max(len(part["columns"]) for part in drift["comparisons"])
    text = f"{len(named)} of {count} columns exceed their limit, beyond chance" + _list(named)
    if "attributions" in drift:
        shares = [one["column"] for one in drift["attributions"]["columns"] if one["breached"]]
        text += f"; so does the share of {len(shares)} columns in the explanations" + _list(shares)
    return f"{text}."


def _share(move: Mapping[str, object], side: str) -> str:
    """Returns a value's share in one of the logs as text, with "at most" if only an upper bound is known."""
    return f"{'at most ' if move.get('most') == side else ''}{move[side]:.1%}"


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    more = [f"{len(shown) - NAMED} more"] if len(shown) > NAMED else []
    return f": {', '.join([*shown[:NAMED], *more])}" if shown else ""
