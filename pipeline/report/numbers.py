"""The metrics of the tasks that predict numbers, for the terminal and the report."""

from collections.abc import Mapping
from typing import Any

NUMBER_METRICS = {"rmse": "RMSE", "mae": "MAE", "r2": "R\u00b2", "calibration": "calibration", "mean": "mean label"}


def number_rows(model: str, metrics: Mapping[str, Any]) -> list[list[str]]:
    """Returns the table rows of each task that predicts a number: one of the model, and one of the baseline.

    Args:
        model: The name of the model.
        metrics: The contents of metrics.json.
    """
    baseline = metrics.get("baseline") or {"name": ""}
    sides = {model: metrics.get("tasks", {}), f"{baseline['name']} (baseline)": baseline.get("tasks", {})}
    return [
        [f"{task}, {name}", *(_cell(of.get(metric)) for metric in NUMBER_METRICS), f"{of['examples']:,}"]
        for task in sides[model]
        for name, tasks in sides.items()
        if "rmse" in (of := tasks.get(task, {}))
    ]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
