"""The charts of a comparison: each model's differences from the first, by slice."""

from typing import TYPE_CHECKING, Any

from ctrpipe.common.charts import Estimated, Forest, chart_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"auc": "AUC", "rig": "RIG", "gauc": "gAUC", "rmse": "RMSE", "mae": "MAE"}


def comparison_figure(comparison: dict[str, Any]) -> "Figure":
    """Plots each model's differences in each metric on each slice, as dots with 95% intervals."""
    return chart_figure(comparison_charts(comparison))


def comparison_charts(comparison: dict[str, Any]) -> list[Forest]:
    """Returns a chart of each compared metric: the differences of each model from the first, by slice.

    Args:
        comparison: A comparison, as `compare_folders` returns it.
    """
    slices, (first, *others) = comparison["slices"], comparison["models"]
    rows = [part["slice"] for part in slices]
    charts = []
    for metric in slices[0]["differences"][others[0]]:
        name = TITLES[metric]
        by_model = [[part["differences"][other][metric] for part in slices] for other in others]
        estimates = [
            Estimated(
                other,
                [one["difference"] for one in differences],
                [one["interval"] and (one["interval"][0], one["interval"][1]) for one in differences],
            )
            for other, differences in zip(others, by_model, strict=True)
        ]
        charts.append(Forest(f"Difference in {name}", rows, estimates, f"{name} minus the {name} of {first}"))
    return charts
