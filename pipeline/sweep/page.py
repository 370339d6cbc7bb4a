"""Renders the HTML page of a sweep: one file that works offline."""

import pathlib
from typing import Any

from ctrpipe.common.charts import Estimated, Forest, chart_svg
from ctrpipe.common.figures import inline_svg
from ctrpipe.common.pages import template
from ctrpipe.common.significance import p_text
from ctrpipe.pipeline.compare.show import correction, verdict
from ctrpipe.pipeline.sweep.plots import sweep_figure

# Columns of the table, with the metrics of sweep.json. Those without a value in any point are left out.
TITLES = {
    "validation_auc": "validation AUC",
    "validation_log_loss": "validation log loss",
    "auc": "test AUC",
    "log_loss": "test log loss",
    "rig": "test RIG",
    "calibration": "test calibration",
    "gauc": "test gAUC",
    "tail_auc": "tail AUC",
    "tail_rig": "tail RIG",
    "latency_ms": "latency, ms",
}
DIFFERENCES = "Differences in AUC"


def page(summary: dict[str, Any]) -> str:
    """Returns the page as HTML: the best point, a table of all points, and their differences.

    Args:
        summary: The contents of sweep.json.
    """
    points = summary["points"]
    titles = {
        name: title
        for name, title in (TITLES | summary["further"]).items()
        if any(point["metrics"][name]["mean"] is not None for point in points)
    }
    tested = {point["name"]: point["tested"]["auc"] for point in points if "auc" in point["tested"]}
    counts = [one["corrected_for"] for one in tested.values()]
    plots = {"Metrics": inline_svg(sweep_figure(summary), "Metrics")}
    if tested:
        plots[DIFFERENCES] = chart_svg(_forest(tested, summary["reference"]))
    return template("sweep.html.jinja", pathlib.Path(__file__).parent, p=p_text).render(
        summary=summary,
        titles=titles,
        plots=plots,
        lines={name: verdict(f"{name}: AUC", one, summary["reference"]) for name, one in tested.items()},
        correction=correction(max(counts), "points") if max(counts, default=0) > 1 else "",
    )


def _forest(tested: dict[str, dict[str, Any]], reference: str) -> Forest:
    intervals = [one["interval"] and (one["interval"][0], one["interval"][1]) for one in tested.values()]
    estimated = Estimated("difference", [one["difference"] for one in tested.values()], intervals)
    return Forest(DIFFERENCES, list(tested), [estimated], f"AUC minus the AUC of {reference}")
