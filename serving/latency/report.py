"""Writes the report of a latency benchmark: JSON, terminal tables, and a self-contained HTML page."""

import json
import pathlib
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.lines import say
from ctrpipe.common.pages import template
from ctrpipe.common.terminal import console, print_table
from ctrpipe.serving.latency.machine import busy_caption
from ctrpipe.serving.latency.sample import PERCENTILES, name_of

JSON, PAGE = "latency.json", "latency.html"
TABLE_WIDTH = 130
NARROW_PERCENTILES = (50, 95, 99)
Cells = list[dict[str, Any]]


def last_line(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the summary that the command prints last: the ratios of each model, and the bars if any."""
    return {
        "benchmark": "latency",
        "interrupted": report["interrupted"],
        "busy": max(report["busy"].values()),
        "ratios": {model["name"]: model["ratios"] for model in report["models"]},
        "targets": report["targets"],
        "papers": report["papers"],
    }


def write(report: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes latency.json and latency.html, each by an atomic rename, and returns their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    files = {folder / JSON: json.dumps(report, indent=1) + "\n", folder / PAGE: page(report)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            write_text(path, text)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot write: {error.strerror}") from error
    return list(files)


def show(report: dict[str, Any]) -> None:
    """Prints all tables. On a narrow terminal, the tables of cells have fewer columns than the page."""
    terminal = console(TABLE_WIDTH)
    for table in tables(report, is_narrow=terminal.width < TABLE_WIDTH):
        print_table(terminal, table)
    for name, text in about(report):
        say(f"{name}: {text}")
    for text in warnings(report):
        say(text)


def tables(report: dict[str, Any], is_narrow: bool = False) -> Iterable[Table]:
    """Yields tables of the models' cells, the generators' limit, the papers' methods and targets.

    Args:
        report: The report.
        is_narrow: Whether tables of cells are reduced to columns that fit 80 characters.
    """
    caption = busy_caption(max(report["busy"].values()))
    for model in report["models"]:
        title = f"{model['name']} version {model['version']} at {report['target'].get('url')}, ms"
        yield _cell_table(model["cells"], title, caption, is_narrow)
    if report["ceiling"]:
        title = "The generators' own ceiling: a server that does nothing, ms"
        yield _cell_table(report["ceiling"], title, None, is_narrow)
    if report["papers"]:
        yield _papers_table(report["papers"])
    if report["targets"]:
        yield _ratio_table(report["targets"], caption)


def _ratio_table(ratios: list[dict[str, Any]], caption: str | None) -> Table:
    """Returns the server's ratios to the model alone, with their bars if any."""
    has_bars = "target" in ratios[0]
    table = Table(title="The server over the model alone", caption=caption)
    for name in ("ratio", "measured", *(("bar", "") if has_bars else ())):
        table.add_column(name, justify="left" if name in ("ratio", "") else "right")
    for one in ratios:
        row = [one["name"], f"{one['value']:.2f}"]
        if has_bars:
            limit = f"{'<=' if one['at_most'] else '>='} {one['target']:.2f}"
            row += [limit, "met" if one["met"] else "missed"]
        table.add_row(*row)
    return table


def _cell_table(cells: Cells, title: str, caption: str | None, is_narrow: bool) -> Table:
    if is_narrow:
        return _narrow_cell_table(cells, title, caption)
    table = Table(title=title, caption=caption)
    for name in ("kind", "loop"):
        table.add_column(name)
    for name in ("rows", "clients", *(f"p{p:g}" for p in PERCENTILES), "rows/s", "requests", "errors"):
        table.add_column(name, justify="right")
    for cell in cells:
        loop = "closed" if cell["loop"] == "closed" else f"open, {cell['rate_per_s']:,.0f}/s"
        row = [cell["kind"], loop, f"{cell['rows']:,}", str(cell["concurrency"])]
        row += [_number(cell[name_of(percentile)]) for percentile in PERCENTILES]
        row += [f"{cell['rows_per_s']:,.0f}", f"{cell['requests']:,}", f"{sum(cell['errors'].values()):,}"]
        table.add_row(*row)
    return table


def _narrow_cell_table(cells: Cells, title: str, caption: str | None) -> Table:
    table = Table(title=title, caption=caption)
    table.add_column("kind")
    for name in ("rows", "clients", *(f"p{p:g}" for p in NARROW_PERCENTILES), "rows/s"):
        table.add_column(name, justify="right")
    for cell in cells:
        kind = cell["kind"] if cell["loop"] == "closed" else f"{cell['kind']}, {cell['rate_per_s']:,.0f}/s"
        latencies = (_number(cell[name_of(percentile)]) for percentile in NARROW_PERCENTILES)
        table.add_row(kind, f"{cell['rows']:,}", str(cell["concurrency"]), *latencies, f"{cell['rows_per_s']:,.0f}")
    return table


def _papers_table(papers: dict[str, Any]) -> Table:
    hiformer, bert4ctr = papers["hiformer"], papers["bert4ctr"]
    table = Table(
        title="The papers' methods, in this process",
        caption=f"Hiformer: {hiformer['batches']} batches of {hiformer['rows']}, relative to {hiformer['baseline']}. "
        f"BERT4CTR: ms/sample, batches of {bert4ctr['rows']}, {bert4ctr['repeats']} repeats.",
    )
    table.add_column("model")
    for name in ("batch ms", "relative", "ms/sample: average", "median", "p90", "p95"):
        table.add_column(name, justify="right")
    for name, one in hiformer["models"].items():
        samples = bert4ctr["ms_per_sample"][name]
        numbers = [_number(one["batch_ms"]), _number(one["relative"])]
        table.add_row(name, *numbers, *(f"{samples[key]:.4f}" for key in ("average", "median", "p90", "p95")))
    return table


def about(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the subject of the measurement as names and texts: server, session, machine, versions."""
    target, flags = report["target"], report["target"].get("flags")
    facts = []
    if target:
        facts += [
            ("Server", f"{target['server'] or 'says no name'} at {target['url']}, gRPC {target['grpc'] or 'none'}"),
            ("Its flags", "unknown" if flags is None else " ".join(flags) or "none but model and ports"),
        ]
    return [
        *facts,
        ("Session of the calls in this process", str(report["session"] or "the default")),
        ("Machine", f"{report['machine']['cpu']}, {report['machine']['cores']} cores"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in report["versions"].items())),
    ]


def warnings(report: dict[str, Any]) -> Iterable[str]:
    """Yields the reasons to distrust the numbers: a busy machine, and cells that were not measured."""
    if caption := busy_caption(max(report["busy"].values())):
        yield caption
    for model in report["models"]:
        for kind, reason in model["skipped"].items():
            yield f"{kind} of {model['name']} was not measured: {reason}"
        if model["near_ceiling"]:
            yield f"The generators may be the limit of {model['name']}'s {'; '.join(model['near_ceiling'])}"
    if report["interrupted"]:
        yield "Interrupted: these are the cells that were done."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


# The page -------------------------------------------------------------------------------------------------------------


def page(report: dict[str, Any]) -> str:
    """Returns the report as one HTML file with embedded plots."""
    from ctrpipe.serving.latency.plots import draw_plots  # lazy: matplotlib takes 0.3 s to import

    return template("page.html.jinja", pathlib.Path(__file__).parent, number=_number).render(
        report=report,
        plots=draw_plots(report),
        about=about(report),
        warnings=[text.rstrip(".") for text in warnings(report)],
        percentiles=[(f"p{percentile:g}", name_of(percentile)) for percentile in PERCENTILES],
        settings=json.dumps(report["settings"], indent=1),
    )
