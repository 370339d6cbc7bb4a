"""The table and the plot of a replay."""

import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ctrpipe.common.figures import style, write_svg
from ctrpipe.common.files import write_json
from ctrpipe.common.significance import quantile
from ctrpipe.common.terminal import add_row, console, print_table, titled
from ctrpipe.pipeline.evaluation.further import further_titles

Results = Sequence[dict[str, Any]]
LEVEL = 0.95
_OF_FIRST = {"auc": "AUC", "log_loss": "log loss", "calibration": "calibration"}
_COST = {"cpu_seconds": "CPU s"}


def write_replay(results: Results, output: pathlib.Path) -> dict[str, Any]:
    """Writes replay.json and replay.svg to a folder, and returns the contents of replay.json."""
    summary = {"results": list(results), "policies": summaries(results), "differences": differences(results)}
    write_json(output / "replay.json", summary)
    write_svg(replay_figure(results), output / "replay.svg")
    return summary


@style()
def replay_figure(results: Results) -> Figure:
    """Plots each day's metrics and CPU seconds, one line per policy."""
    titles, days = _titles(results), _days(results)
    rows = -(-len(titles) // 2)
    figure = Figure(figsize=(11, 3.5 * rows))
    axes = list(figure.subplots(rows, 2).flat)
    for axis in axes[len(titles) :]:
        axis.set_axis_off()
    for axis, (key, title) in zip(axes, titles.items(), strict=False):
        for policy in _policies(results):
            means = [_mean(_values(results, policy, day, key)) for day in days]
            axis.plot(days, [math.nan if mean is None else mean for mean in means], marker="o", label=policy)
        axis.set_title(title)
        axis.tick_params(axis="x", labelrotation=60, labelsize="small")
    figure.axes[0].legend()
    return figure


def summaries(results: Results) -> dict[str, dict[str, float | None]]:
    """Returns the mean metrics over days and seeds (None if undefined) and the total CPU seconds of each policy."""
    by_policy: dict[str, dict[str, float | None]] = {}
    for policy in _policies(results):
        own = [result for result in results if result["policy"] == policy]
        means = {key: _mean([result.get(key) for result in own]) for key in _titles(results) if key not in _COST}
        by_policy[policy] = {**means, "cpu_seconds": sum(result["cpu_seconds"] for result in own)}
    return by_policy


def differences(results: Results) -> list[dict[str, Any]]:
    """Compares the AUC and the cost of each further policy with the first policy on the same days.

    The first scored day is left out, because one training run scores it for all policies. Days without an AUC are left
    out too. `low` and `high` are the ends of the 95% confidence interval of the mean difference over other days and
    seeds (see `mean_interval`). They are None for a single day and seed. `cpu_share` is the policy's CPU seconds
    divided by the first policy's, or None if the first policy has none.
    """
    first, *others = _policies(results)
    rows = []
    for policy in others:
        days, by_day = [], []
        for day in _days(results)[1:]:
            pairs = zip(_values(results, policy, day, "auc"), _values(results, first, day, "auc"), strict=True)
            each = [one - other for one, other in pairs if one is not None and other is not None]
            if each:
                days.append(day)
                by_day.append(each)
        if not days:
            continue
        interval = mean_interval(np.array(by_day)) or (None, None)
        cost, cost_of_first = (
            sum(sum(_values(results, name, day, "cpu_seconds")) for day in days) for name in (policy, first)
        )
        compared = {"policy": policy, "than": first, "days": len(days), "seeds": len(by_day[0])}
        compared |= {"auc": float(np.mean(by_day)), "low": interval[0], "high": interval[1]}
        rows.append({**compared, "cpu_share": cost / cost_of_first if cost_of_first else None})
    return rows


def mean_interval(values: np.ndarray) -> tuple[float, float] | None:
    """Returns the 95% interval of the mean over other days and other seeds, or None for a single value.

    Days and seeds are crossed random effects. The variance of the mean is `(MS_days + MS_seeds - MS_rest) / (days
    seeds)`, and at least `MS_rest / (days seeds)`, with Satterthwaite's degrees of freedom. With one day or one seed,
    this is Student's interval over the other factor. It then says nothing about the factor with one value.

    Args:
        values: (days, seeds).

    References:
        Searle, Casella and McCulloch, "Variance Components", 1992, section 4.3.
    """
    days, seeds = values.shape
    if values.size == 1:
        return None
    effects = values - values.mean()
    of_days, of_seeds = effects.mean(axis=1, keepdims=True), effects.mean(axis=0, keepdims=True)
    if 1 in values.shape:
        parts = [(1, float(np.square(effects).sum()) / (values.size - 1), values.size - 1)]
    else:
        rest = (days - 1) * (seeds - 1)
        parts = [
            (1, seeds * float(np.square(of_days).sum()) / (days - 1), days - 1),
            (1, days * float(np.square(of_seeds).sum()) / (seeds - 1), seeds - 1),
            (-1, float(np.square(effects - of_days - of_seeds).sum()) / rest, rest),
        ]
        if sum(sign * square for sign, square, _ in parts) < parts[2][1]:
            parts = [(1, parts[2][1], rest)]
    variance = sum(sign * square for sign, square, _ in parts)
    spread = sum(square**2 / freedom for _, square, freedom in parts)
    half = quantile((1 + LEVEL) / 2, variance**2 / spread) * (variance / values.size) ** 0.5 if spread else 0.0
    mean = float(values.mean())
    return mean - half, mean + half


def print_replay(results: Results) -> None:
    """Prints a table of the days and policies, their means, and the comparison with the first policy."""
    policies, titles = _policies(results), _titles(results)
    seeds = len({result["seed"] for result in results})
    over = f"; means over {seeds} seeds" if seeds > 1 else ""
    table = titled(f"Each day is scored by models that were trained on the days before it{over}")
    for name in ("day", *(f"{policy}\n{title}" for policy in policies for title in titles.values())):
        table.add_column(name, justify="left" if name == "day" else "right")
    for day in _days(results):
        means = [{key: _mean(_values(results, policy, day, key)) for key in titles} for policy in policies]
        add_row(table, day, *(cell for one in means for cell in _cells(one)))
    every = summaries(results)
    table.add_section()
    add_row(table, "mean; total CPU", *(cell for policy in policies for cell in _cells(every[policy])))
    shown = console()
    print_table(shown, table)
    for row in differences(results):
        interval = "" if row["low"] is None else f" ({row['low']:+.4f} .. {row['high']:+.4f}, 95%)"
        cost = "" if row["cpu_share"] is None else f", for {row['cpu_share']:.0%} of its CPU seconds"
        shown.print(
            f"{row['policy']}: AUC {row['auc']:+.4f} against {row['than']}{interval}{cost}; days after the first: "
            f"{row['days']}, seeds: {row['seeds']}"
        )


def _titles(results: Results) -> dict[str, str]:
    """Returns the titles of the shown values by key: the metrics of the first task and of the others, and the cost."""
    return {**_OF_FIRST, **further_titles(results), **_COST}


def _cells(values: dict[str, Any]) -> list[str]:
    numbers = ["-" if value is None else f"{value:.4f}" for key, value in values.items() if key not in _COST]
    return [*numbers, f"{values['cpu_seconds']:,.0f}"]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _policies(results: Results) -> list[str]:
    return list(dict.fromkeys(result["policy"] for result in results))


def _days(results: Results) -> list[str]:
    return list(dict.fromkeys(result["day"] for result in results))


def _values(results: Results, policy: str, day: str, key: str) -> list[Any]:
    """Returns a measure of a policy on a day, by seed."""
    return [result.get(key) for result in results if (result["policy"], result["day"]) == (policy, day)]
