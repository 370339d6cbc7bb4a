"""The table and the picture of a replay."""

import math
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import scipy.stats
from matplotlib.figure import Figure

from common.files import atomic_path, write_json
from pipeline.replay.run import MEASURED
from pipeline.terminal import add_row, console, titled

Results = Sequence[dict[str, Any]]
LEVEL = 0.95
_TITLES = {"auc": "AUC", "log_loss": "log loss", "calibration": "calibration", "cpu_seconds": "CPU s"}


def write_replay(results: Results, output: pathlib.Path) -> None:
    """Writes replay.json and replay.png to a folder."""
    summary = {"results": list(results), "policies": summaries(results), "differences": differences(results)}
    write_json(output / "replay.json", summary)
    figure = Figure(figsize=(11, 7), layout="constrained")
    for axis, (key, title) in zip(figure.subplots(2, 2).flat, _TITLES.items(), strict=True):
        for policy in _policies(results):
            own = [result for result in results if result["policy"] == policy]
            shown = [math.nan if result[key] is None else result[key] for result in own]
            axis.plot([result["day"] for result in own], shown, marker="o", label=policy)
        axis.set_title(title)
        axis.tick_params(axis="x", labelrotation=60, labelsize="small")
    figure.axes[0].legend(fontsize="small")
    with atomic_path(output / "replay.png") as unfinished:
        figure.savefig(unfinished, dpi=110, format="png")


def summaries(results: Results) -> dict[str, dict[str, float | None]]:
    """Returns by policy the means of the metrics over the days, None where none is defined, and all CPU seconds."""
    found: dict[str, dict[str, float | None]] = {}
    for policy in _policies(results):
        own = [result for result in results if result["policy"] == policy]
        means = {key: _mean([result[key] for result in own]) for key in MEASURED}
        found[policy] = {**means, "cpu_seconds": sum(result["cpu_seconds"] for result in own)}
    return found


def differences(results: Results) -> list[dict[str, Any]]:
    """Returns for each further policy how its AUC differs from the first one's on the same days, and what it costs.

    The first scored day is left out: one training scores it for all policies. `low` and `high` are the ends of
    Student's 95% interval of the mean of the days' differences; None for one day. `cpu_share` is the policy's part of
    the first one's CPU seconds on these days; None where that has none.
    """
    first, *others = _policies(results)
    by_key = {(result["policy"], result["day"]): result for result in results}
    days = list(dict.fromkeys(result["day"] for result in results))[1:]
    found = []
    for policy in others:
        pairs = [(by_key[policy, day]["auc"], by_key[first, day]["auc"]) for day in days]
        each = [one - other for one, other in pairs if one is not None and other is not None]
        if not each:
            continue
        cost, cost_of_first = (sum(by_key[name, day]["cpu_seconds"] for day in days) for name in (policy, first))
        low = high = None
        if len(each) > 1:
            quantile = float(scipy.stats.t.ppf((1 + LEVEL) / 2, len(each) - 1))
            half = quantile * statistics.stdev(each) / len(each) ** 0.5
            low, high = statistics.fmean(each) - half, statistics.fmean(each) + half
        compared = {"policy": policy, "than": first, "days": len(each), "auc": _mean(each), "low": low, "high": high}
        found.append({**compared, "cpu_share": cost / cost_of_first if cost_of_first else None})
    return found


def print_replay(results: Results) -> None:
    """Prints a table of the days and policies, and what they come to."""
    policies = _policies(results)
    table = titled("Each day is scored by models that were trained on the days before it")
    for name in ("day", *(f"{policy}\n{title}" for policy in policies for title in _TITLES.values())):
        table.add_column(name, justify="left" if name == "day" else "right")
    by_key = {(result["policy"], result["day"]): result for result in results}
    for day in dict.fromkeys(result["day"] for result in results):
        add_row(table, day, *(cell for policy in policies for cell in _cells(by_key[policy, day])))
    every = summaries(results)
    table.add_section()
    add_row(table, "mean; CPU in all", *(cell for policy in policies for cell in _cells(every[policy])))
    shown = console()
    shown.print(table)
    for found in differences(results):
        interval = "" if found["low"] is None else f" ({found['low']:+.4f} .. {found['high']:+.4f}, 95%)"
        cost = "" if found["cpu_share"] is None else f", for {found['cpu_share']:.0%} of its CPU seconds"
        shown.print(
            f"{found['policy']}: AUC {found['auc']:+.4f} beside {found['than']}{interval}{cost}; "
            f"days that tell: {found['days']}, after the first"
        )


def _cells(values: dict[str, Any]) -> list[str]:
    numbers = ["-" if values[key] is None else f"{values[key]:.4f}" for key in MEASURED]
    return [*numbers, f"{values['cpu_seconds']:,.0f}"]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _policies(results: Results) -> list[str]:
    return list(dict.fromkeys(result["policy"] for result in results))
