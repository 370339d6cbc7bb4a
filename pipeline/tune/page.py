"""Renders the HTML page of a study: one file that works offline."""

import pathlib
from typing import Any

from ctrpipe.common.charts import chart_svg
from ctrpipe.common.figures import inline_svg
from ctrpipe.common.pages import template
from ctrpipe.pipeline.compare.plots import comparison_charts
from ctrpipe.pipeline.tune.plots import study_figures
from ctrpipe.pipeline.tune.summary import Summary, best_first, setting_text

SHOWN = 20


def page(summary: Summary) -> str:
    """Returns the page as HTML: the best trials, the budget curve, importance and parallel coordinates."""
    report = summary.report
    plots = {title: inline_svg(figure, title) for title, figure in study_figures(report).items()}
    confirmation = report["confirmation"]
    compared = comparison_charts(confirmation["comparison"]) if confirmation and confirmation["comparison"] else []
    states = [trial["state"] for trial in report["trials"]]
    return template("tune.html.jinja", pathlib.Path(__file__).parent).render(
        report=report,
        best=summary.best,
        plots=plots,
        keys=list(report["space"]),
        trials=[{**trial, "texts": _texts(trial)} for trial in best_first(report)[:SHOWN]],
        refused=[{**trial, "texts": _texts(trial)} for trial in report["trials"] if trial["state"] == "refused"],
        counts={state: states.count(state) for state in ("complete", "stopped", "refused")},
        importance=report["importance"],
        confirmation=confirmation,
        differences={chart.title: chart_svg(chart) for chart in compared},
    )


def _texts(trial: dict[str, Any]) -> dict[str, str]:
    return {key: setting_text(value) for key, value in trial["settings"].items()}
