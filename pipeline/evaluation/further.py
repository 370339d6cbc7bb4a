"""The metrics of further tasks, after the first, in tables of several training runs."""

from collections.abc import Iterable, Mapping
from typing import Any

# Of clicks, and of numbers, in their order, with their titles.
TITLES = {"auc": "AUC", "log_loss": "log loss", "rmse": "RMSE", "mae": "MAE"}


def further_metrics(tasks: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    """Returns the task, the metric and the title of each further metric, by its name, such as `watch_time_rmse`.

    Args:
        tasks: The tasks of a configuration, in their order.
    """
    return {
        f"{task}_{metric}": (task, metric, f"{task} {title}")
        for task in list(tasks)[1:]
        for metric, title in TITLES.items()
    }


def further_titles(measured: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the titles of the further metrics that any training has, by name and in order.

    Args:
        measured: For each training run, its further metrics by name, perhaps among others.
    """
    names = dict.fromkeys(name for each in measured for name in each)
    ends = {name: metric for name in names for metric in TITLES if name.endswith(f"_{metric}")}
    return {name: f"{name.removesuffix(f'_{metric}')} {TITLES[metric]}" for name, metric in ends.items()}
