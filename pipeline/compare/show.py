"""Prints a comparison as a table, and writes it as JSON, as a plot and as a page."""

import pathlib
from collections.abc import Mapping
from typing import Any

import rich.table

from ctrpipe.common.charts import chart_svg
from ctrpipe.common.errors import InputError
from ctrpipe.common.figures import write_svg
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.lines import say
from ctrpipe.common.pages import template
from ctrpipe.common.significance import p_text
from ctrpipe.common.terminal import console, print_table
from ctrpipe.pipeline.compare.plots import comparison_charts, comparison_figure
from ctrpipe.pipeline.compare.sides import BETTER, UNDECIDED, WORSE

FIGURES, NUMBER_FIGURES = ".4f", ".5g"  # how metrics of clicks are written, and those in the unit of a number
TONES = {BETTER: "good", WORSE: "bad"}  # of a verdict on the page; any other is open
NUMBER_TITLES = {"rmse": "RMSE", "mae": "MAE"}


def print_comparison(comparison: dict[str, Any]) -> None:
    """Prints the models' metrics on every slice, their differences from the first model, and the verdicts."""
    first = comparison["models"][0]
    table = rich.table.Table(title=f"{comparison['task']}: {comparison['rows']:,} test rows; differences to {first}")
    table.add_column("slice", overflow="fold")
    table.add_column("model", overflow="fold")
    shown, measured = _titles(comparison)
    figures = _figures(comparison)
    differences = [title for name in shown.values() for title in (f"{name} difference", "95%", "p")]
    for title in ("rows", *measured.values(), *differences):
        table.add_column(title, justify="right")
    for part in comparison["slices"]:
        for name, metrics in part["metrics"].items():
            cells = [part["slice"] if name == first else "", name, f"{part['rows']:,}" if name == first else ""]
            deviations = part["deviations"][name]
            cells += [_spread(metrics[key], deviations[key], figures) for key in measured]
            for compared in part["differences"].get(name, {}).values():
                cells += [_show(compared["difference"], f"+{figures}"), interval_text(compared["interval"], figures)]
                cells.append(p_text(compared["p"]))
            table.add_row(*cells, end_section=name == comparison["models"][-1])
    terminal = console()
    print_table(terminal, table, keys=2)
    for line in _corrections(comparison):
        say(line)
    for name, by_metric in comparison["slices"][0]["differences"].items():
        for metric in judged(by_metric):
            say(verdict(f"{name}: {shown[metric]}", by_metric[metric], first))
    if comparison["further_tasks"]:
        print_table(terminal, _table_of_tasks(comparison), keys=2)
        for line in _of_further_tasks(comparison):
            say(line)


def _table_of_tasks(comparison: dict[str, Any]) -> rich.table.Table:
    """Returns the table of the further tasks: a row for each of their metrics and each model."""
    table = rich.table.Table(title=f"Further tasks; differences to {comparison['models'][0]}")
    for title in ("task", "model"):
        table.add_column(title, overflow="fold")
    for title in ("rows", "metric", "value", "difference", "95%", "p"):
        table.add_column(title, justify="left" if title == "metric" else "right")
    for row in rows_of_tasks(comparison):
        table.add_row(*row)
    return table


def rows_of_tasks(comparison: dict[str, Any]) -> list[list[str]]:
    """Returns the cells of the further tasks: task, model, rows, metric, its value, difference, interval and p."""
    rows = []
    for one in comparison["further_tasks"]:
        [whole], figures = one["slices"], _figures(one)
        for name, measured in whole["metrics"].items():
            differences = whole["differences"].get(name, {})
            for key, title in _titles(one)[0].items():
                compared = differences.get(key, {})
                cells = [one["task"], name, f"{whole['rows']:,}", title]
                cells.append(_spread(measured[key], whole["deviations"][name][key], figures))
                cells.append(_show(compared.get("difference"), f"+{figures}"))
                rows.append([*cells, interval_text(compared.get("interval"), figures), p_text(compared.get("p"))])
    return rows


def _of_further_tasks(comparison: dict[str, Any]) -> list[str]:
    """Returns the verdicts for the further tasks, after the note on their correction."""
    lines, first, count = [], comparison["models"][0], 1
    for one in comparison["further_tasks"]:
        titles = _titles(one)[0]
        for name, by_metric in one["slices"][0]["differences"].items():
            for metric in judged(by_metric):
                lines.append(verdict(f"{name}: {titles[metric]} of {one['task']}", by_metric[metric], first))
                count = max(count, by_metric[metric]["corrected_for"])
    return [*([correction(count, "further tasks")] if count > 1 else []), *lines]


def judged(by_metric: Mapping[str, dict[str, Any]]) -> list[str]:
    """Returns the metrics of a model's differences that have a verdict. RIG is included only if it is significant."""
    return [name for name, one in by_metric.items() if name != "rig" or one["verdict"] in (BETTER, WORSE)]


def is_of_numbers(comparison: dict[str, Any]) -> bool:
    """Returns whether models are compared by a task that predicts a number."""
    return "rmse" in comparison["slices"][0]["metrics"][comparison["models"][0]]


def _figures(comparison: dict[str, Any]) -> str:
    return NUMBER_FIGURES if is_of_numbers(comparison) else FIGURES


def _titles(comparison: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the titles of the metrics whose differences are tested, and of all metrics that are shown."""
    if is_of_numbers(comparison):
        return NUMBER_TITLES, {**NUMBER_TITLES, "r2": "R²", "calibration": "calibration"}
    grouped = "gauc" in comparison["slices"][0]["metrics"][comparison["models"][0]]
    tested = {"auc": "AUC", "rig": "RIG", **({"gauc": "gAUC"} if grouped else {})}
    return tested, {**tested, "log_loss": "log loss", "calibration": "calibration"}


def _corrections(comparison: dict[str, Any]) -> list[str]:
    """Returns a line for the models and one for the slices, where there are several."""
    lines = []
    first, *slices = comparison["slices"]
    for of, part in (("models", first), *(("slices", last) for last in slices[-1:])):
        corrected_for = max(one["corrected_for"] for each in part["differences"].values() for one in each.values())
        if corrected_for > 1:
            lines.append(correction(corrected_for, of))
    return lines


def verdict(subject: str, compared: dict[str, Any], reference: str) -> str:
    """Returns the line with the verdict on a difference, and whether it covers rows only or also seeds.

    Args:
        subject: The model and the metric.
        compared: A difference, as returned by `Compared.to_json`.
        reference: The model that it is compared with.
    """
    if compared["difference"] is None:
        return f"{subject} is not defined on these rows"
    first, second = compared["seeds"]
    words = {
        BETTER: "better than that of",
        WORSE: "worse than that of",
        UNDECIDED: "does not differ significantly from that of",
    }
    over = f"over rows and seeds ({second} and {first})"
    if compared["seeds_error"] is None:
        over = f"over the rows of these training runs alone: one seed on {'each' if first == second else 'a'} side, and"
        over += " another seed may reverse it"
    figures = NUMBER_FIGURES if compared.get("lower_is_better") else FIGURES
    low_high = f"{compared['difference']:+{figures}}, 95% {interval_text(compared['interval'], figures)}"
    return f"{subject} {words[compared['verdict']]} {reference} ({low_high}) {over}"


def correction(count: int, of: str) -> str:
    """Returns the note on the correction for multiple comparisons of models, slices or points."""
    return f"p values and intervals of the {of} are corrected for {count} differences (Holm, Bonferroni)"


def _spread(value: float | None, deviation: float | None, figures: str) -> str:
    return _show(value, figures) if deviation is None else f"{_show(value, figures)} ± {_show(deviation, figures)}"


def _show(value: float | None, figures: str) -> str:
    return "-" if value is None else f"{value:{figures}}"


def interval_text(value: tuple[float, float] | None, figures: str = FIGURES) -> str:
    """Formats the two ends of an interval with their signs. "-" for None."""
    return "-" if value is None else f"{value[0]:+{figures}} .. {value[1]:+{figures}}"


def write_comparison(comparison: dict[str, Any], path: pathlib.Path) -> list[pathlib.Path]:
    """Writes a comparison as JSON, and next to it a plot of the differences (SVG) and a page with all of it (HTML).

    Returns:
        The paths of the written files.

    Raises:
        InputError: the files cannot be written.
    """
    picture, page = path.with_suffix(".svg"), path.with_suffix(".html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, comparison)
        write_svg(comparison_figure(comparison), picture)
        write_text(page, comparison_page(comparison))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --output") from error
    return [path, picture, page]


def comparison_page(comparison: dict[str, Any]) -> str:
    """Returns the page of a comparison: the verdicts, the differences as charts and in a table, and the metrics."""
    first = comparison["models"][0]
    names, measured = _titles(comparison)
    verdicts = [
        (verdict(f"{model}: {title}", by_metric[name], first), TONES.get(by_metric[name]["verdict"], "open"))
        for model, by_metric in comparison["slices"][0]["differences"].items()
        for name, title in names.items()
        if name in judged(by_metric)
    ]
    return template("compare.html.jinja", pathlib.Path(__file__).parent, p=p_text).render(
        comparison=comparison,
        names=names,
        measured=measured,
        verdicts=verdicts,
        corrections=_corrections(comparison),
        of_numbers=is_of_numbers(comparison),
        task_rows=rows_of_tasks(comparison),
        task_lines=_of_further_tasks(comparison),
        figures_of_difference=f"%+{_figures(comparison)}",
        plots={chart.title: chart_svg(chart) for chart in comparison_charts(comparison)},
    )
