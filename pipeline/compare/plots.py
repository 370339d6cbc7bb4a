"""The plot of a comparison: each model's differences from the first, by slice."""

from typing import Any

from matplotlib.figure import Figure

from ctrpipe.common.figures import shown_name, style
from ctrpipe.common.palette import MUTED


@style()
def comparison_figure(comparison: dict[str, Any]) -> Figure:
    """Plots each model's differences in AUC and RIG on each slice, as dots with 95% intervals."""
    slices, others = comparison["slices"], comparison["models"][1:]
    figure = Figure(figsize=(11, 1.5 + 0.22 * len(slices) * len(comparison["models"])))
    axes = figure.subplots(1, 2, sharey=True)
    for axis, metric in zip(axes, ("auc", "rig"), strict=True):
        axis.axvline(0, color=MUTED, linewidth=0.8)
        axis.grid(False, axis="y")
        axis.grid(True, axis="x")
        for index, name in enumerate(others):
            places, values, errors = [], [], []
            for row, part in enumerate(slices):
                difference = part["differences"][name][metric]
                if difference["difference"] is None:
                    continue
                low, high = difference["interval"]
                places.append(row + (index + 1) / (len(others) + 1) - 0.5)
                values.append(difference["difference"])
                errors.append((values[-1] - low, high - values[-1]))
            bars = [[low for low, _ in errors], [high for _, high in errors]]
            axis.errorbar(values, places, xerr=bars, fmt="o", capsize=3, label=shown_name(name))
        axis.locator_params(axis="x", nbins=5)  # labels have six characters
        axis.set_xlabel(f"{metric.upper()} minus the {metric.upper()} of {comparison['models'][0]}")
    axes[0].set_yticks(range(len(slices)), [shown_name(part["slice"]) for part in slices])
    axes[0].set_ylim(len(slices) - 0.5, -0.5)  # the first slice on top
    axes[0].legend()
    return figure
