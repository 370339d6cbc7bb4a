"""A sweep's results: means and standard deviations over seeds, as a table, JSON and CSV."""

import csv
import dataclasses
import json
import pathlib
import statistics
from typing import Any

import rich.console
import rich.table

from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.lines import say
from ctrpipe.common.terminal import console, print_table
from ctrpipe.pipeline.compare.corrected import correct
from ctrpipe.pipeline.compare.shards import shards
from ctrpipe.pipeline.compare.show import correction, verdict
from ctrpipe.pipeline.compare.sides import TESTED, Compared, Side, compare_sides, groups_of_rows, side
from ctrpipe.pipeline.evaluation.further import further_metrics
from ctrpipe.pipeline.evaluation.scored_rows import read_scored
from ctrpipe.pipeline.sweep.page import page
from ctrpipe.pipeline.sweep.plan import SweepPlan
from ctrpipe.pipeline.sweep.plots import plot_loss, plot_sweep

COSTS = ("average", "median", "p90", "p95")  # statistics of the milliseconds per row
# Columns of the summary, with their paths in a run's result.
METRICS = {
    "validation_auc": ("validation", "auc"),
    "validation_log_loss": ("validation", "log_loss"),
    "validation_gauc": ("validation", "gauc"),
    "validation_auc_minus_log_loss": ("validation", "auc_minus_log_loss"),
    "validation_auc_plus_gauc": ("validation", "auc_plus_gauc"),
    "auc": ("test", "auc"),
    "log_loss": ("test", "log_loss"),
    "rig": ("test", "rig"),
    "gauc": ("test", "gauc"),
    "normalised_log_loss": ("test", "normalised_log_loss"),
    "calibration": ("test", "calibration"),
    "tail_auc": ("tail", "auc"),
    "tail_rig": ("tail", "rig"),
    "train_samples_per_second": ("train_samples_per_second",),
    "latency_ms": ("latency_ms",),
    "examples_trained": ("examples_trained",),
    **{f"{kind}_ms_{name}": ("costs", kind, name) for kind in ("training", "inference") for name in COSTS},
}
SWEEP_WIDTH = 240  # used if the output is not a terminal


def summarise_sweep(plan: SweepPlan, results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Returns the contents of sweep.json.

    `best` is the point with the best mean of the monitored metric on the validation rows. Each point is compared with
    the plan's reference, or with the first point if there is none. `auc_difference`, `rig_difference`,
    `log_loss_ratio` and `latency_ratio` compare the means on the test rows. `tested` has the differences in AUC and
    RIG over rows and seeds. Their p-values and intervals are corrected for the number of points (see
    `compare.corrected`).

    Args:
        plan: The points and seeds.
        results: For each point, the results of its training runs in the order of the seeds, as returned by run_sweep.
    """
    points = []
    first = results[plan.points[0].name][0]
    paths = METRICS | {name: path for name, (path, _) in _further(first).items()}
    for point in plan.points:
        runs = results[point.name]
        points.append(
            {
                "name": point.name,
                "group": point.group,
                "grid": point.grid,
                "model": point.config.model.model_dump(mode="json"),
                "training": point.config.training.model_dump(mode="json"),
                "parameters": runs[0]["parameters"],
                "parameters_without_embeddings": runs[0]["parameters_without_embeddings"],
                "metrics": {name: _spread([_value(run, path) for run in runs]) for name, path in paths.items()},
                "runs": runs,
            }
        )
    monitor = plan.base.training.monitor
    reference = plan.reference or points[0]["name"]
    _compare(points, reference)
    best = _best(points, monitor)
    summary = {"name": plan.name, "seeds": plan.seeds, "monitor": f"validation_{monitor}", "best": best}
    titles = {name: title for name, (_, title) in _further(first).items()}
    return {**summary, "further": titles, "reference": reference, "tail": _tail_of(plan, points), "points": points}


def _further(run: dict[str, Any]) -> dict[str, tuple[tuple[str, ...], str]]:
    """Returns the path in a run's result, and the title, of each metric of the tasks after the first."""
    tasks = run["tasks"]
    return {
        name: (("tasks", task, metric), f"test {title}")
        for name, (task, metric, title) in further_metrics(tasks).items()
        if metric in tasks[task]
    }


def _tail_of(plan: SweepPlan, points: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the definition of the Tail slice and its number of test rows."""
    rare, of_tail = plan.base.evaluation.tail, points[0]["runs"][0]["tail"]
    return {**rare.model_dump(), "examples": of_tail["examples"]} if rare and of_tail else None


def _value(run: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = run
    for key in path:
        if value is None:  # not measured
            return None
        value = value.get(key)
    return None if value is None else float(value)


def _spread(values: list[float | None]) -> dict[str, float | None]:
    """Returns mean and sample standard deviation. Both are None if a value is missing; one value has no deviation."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return {"mean": None, "std": None}
    return {"mean": statistics.fmean(known), "std": statistics.stdev(known) if len(known) > 1 else None}


def _best(points: list[dict[str, Any]], monitor: str) -> str | None:
    metric = f"validation_{monitor}"
    means: dict[str, float | None] = {point["name"]: point["metrics"][metric]["mean"] for point in points}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if not known:
        return None
    return (min if monitor == "log_loss" else max)(known, key=known.__getitem__)


def _compare(points: list[dict[str, Any]], reference: str) -> None:
    base = next(point for point in points if point["name"] == reference)
    to, sides_of_base = base["metrics"], sides(base["runs"])
    for point in points:
        names = ("auc", "rig", "log_loss", "latency_ms")
        mean = {name: (point["metrics"][name]["mean"], to[name]["mean"]) for name in names}
        known = {name: pair for name, pair in mean.items() if None not in pair}
        point["auc_difference"] = known["auc"][0] - known["auc"][1] if "auc" in known else None
        point["rig_difference"] = known["rig"][0] - known["rig"][1] if "rig" in known else None
        compared = _compared(sides_of_base, sides(point["runs"]))
        point["tested"] = {name: result.to_json() for name, result in compared.items() if point is not base}
        point["log_loss_ratio"] = known["log_loss"][0] / known["log_loss"][1] if "log_loss" in known else None
        point["latency_ratio"] = known["latency_ms"][0] / known["latency_ms"][1] if "latency_ms" in known else None
    for name in {name for point in points for name in point["tested"]}:
        correct([point["tested"][name] for point in points if name in point["tested"]])


def _compared(first: dict[str, Side], second: dict[str, Side]) -> dict[str, Compared]:
    """Returns the differences by metric. The metrics of the Tail slice are named `tail_<metric>`."""
    return {
        prefix + metric: compare_sides(first[prefix], second[prefix], metric)
        for prefix in first
        if prefix in second
        for metric in (*TESTED, *(["gauc"] if "gauc" in first[prefix].estimates else []))
    }


def sides(runs: list[dict[str, Any]]) -> dict[str, Side]:
    """Returns a point's side of comparisons on all rows, under "", and on the Tail slice, under "tail_".

    Returns {} if the predictions of a training run were not kept.

    Args:
        runs: The results of a point's training runs.
    """
    if any(run["predictions"] is None for run in runs):
        return {}
    trainings = [read_scored(pathlib.Path(run["predictions"])) for run in runs]
    labels = next(iter(trainings[0].labels.values()))
    probabilities = [next(iter(each.probabilities.values())) for each in trainings]
    shard = shards(len(labels))
    weights, groups = trainings[0].weights, groups_of_rows(trainings[0])
    rows_of = {"": slice(None), "tail_": trainings[0].tail}
    return {
        prefix: side(
            labels[rows],
            [values[rows] for values in probabilities],
            shard[rows],
            weights=None if weights is None else weights[rows],
            groups=None if groups is None else dataclasses.replace(groups, numbers=groups.numbers[rows]),
        )
        for prefix, rows in rows_of.items()
        if rows is not None
    }


def write_sweep(summary: dict[str, Any], output: pathlib.Path) -> None:
    """Writes sweep.json (everything), sweep.csv (one line per training run), sweep.html, sweep.svg and loss.svg.

    loss.svg shows the training loss of the first epoch. It is left out if the loss was measured only once.
    """
    write_json(output / "sweep.json", summary)
    _write_csv(summary, output / "sweep.csv")
    plot_sweep(summary, output / "sweep.svg")
    write_text(output / "sweep.html", page(summary))
    plot_loss(summary, output / "loss.svg")


def training_rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each training run, by the columns of sweep.csv. A grid key that a point does not have is None.

    Args:
        summary: The contents of sweep.json.
    """
    keys = list(dict.fromkeys(key for point in summary["points"] for key in point["grid"]))
    sizes = ("parameters", "parameters_without_embeddings", "seconds")
    return [
        {
            "point": point["name"],
            "group": point["group"],
            **{key: point["grid"].get(key) for key in keys},
            "seed": run["seed"],
            **{name: _value(run, metric) for name, metric in METRICS.items()},
            **{name: _value(run, metric) for name, (metric, _) in _further(run).items()},
            **{name: run[name] for name in sizes},
        }
        for point in summary["points"]
        for run in point["runs"]
    ]


def _write_csv(summary: dict[str, Any], path: pathlib.Path) -> None:
    grids = [point["grid"] for point in summary["points"] for _ in point["runs"]]
    rows = training_rows(summary)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        for row, grid in zip(rows, grids, strict=True):
            writer.writerow([json.dumps(value) if key in grid else value for key, value in row.items()])


def print_sweep(summary: dict[str, Any]) -> None:
    """Prints the table of means ± standard deviations, with the best point on the validation rows marked."""
    terminal = console(SWEEP_WIDTH)
    seeds = f"{summary['seeds']} seeds, mean ± standard deviation" if summary["seeds"] > 1 else "one seed"
    table = rich.table.Table(title=f"{summary['name']}: {seeds}")
    columns: list[tuple[str, str, int]] = [
        ("validation AUC", "validation_auc", 4),
        ("validation log loss", "validation_log_loss", 4),
        ("test AUC", "auc", 4),
        ("test log loss", "log_loss", 4),
        ("test RIG", "rig", 4),
        ("normalised log loss", "normalised_log_loss", 4),
        ("samples/s", "train_samples_per_second", 0),
    ]
    if any(point["metrics"]["gauc"]["mean"] is not None for point in summary["points"]):
        columns += [("validation gAUC", "validation_gauc", 4), ("test gAUC", "gauc", 4)]
    columns += [(title, name, 4) for name, title in summary["further"].items()]
    if summary["tail"]:
        columns += [("tail AUC", "tail_auc", 4), ("tail RIG", "tail_rig", 4)]
    measured = any(point["metrics"]["latency_ms"]["mean"] is not None for point in summary["points"])
    columns += [("latency ms", "latency_ms", 1)] if measured else []
    compared = [("AUC difference", "auc_difference"), ("RIG difference", "rig_difference")]
    compared += [("log loss ratio", "log_loss_ratio")] + ([("latency ratio", "latency_ratio")] if measured else [])
    table.add_column("point", overflow="fold")
    titles = [*(column[0] for column in columns), *(column[0] for column in compared)]
    for title in ["parameters", "without embeddings", *titles]:
        table.add_column(title.replace(" ", "\n"), justify="right")
    for point in summary["points"]:
        best = point["name"] == summary["best"]
        cells = [f"{point['name']} (best)" if best else point["name"]]
        cells += [f"{point['parameters']:,}", f"{point['parameters_without_embeddings']:,}"]
        cells += [_cell(point["metrics"][name], digits) for _, name, digits in columns]
        cells += [show(point[name], 4, "+" if name.endswith("difference") else "") for _, name in compared]
        table.add_row(*cells, style="bold" if best else None)
    print_table(terminal, table)
    terminal.print(f"Differences and ratios: to {summary['reference']}")
    counts = [one["corrected_for"] for point in summary["points"] for one in point["tested"].values()]
    if max(counts, default=0) > 1:
        terminal.print(correction(max(counts), "points"))
    for point in summary["points"]:
        if auc_difference := point["tested"].get("auc"):
            line = verdict(f"{point['name']}: AUC", auc_difference, summary["reference"])
            say(line)
    if tail := summary["tail"]:
        rare = f"{' x '.join(tail['columns'])} at most {tail['max_count']} times in training"
        terminal.print(f"Tail: {tail['examples']:,} test rows, {rare}")
    _print_costs(terminal, summary)
    if summary["best"]:
        terminal.print(f"Best by {summary['monitor'].replace('_', ' ')}: {summary['best']}")


def _print_costs(terminal: rich.console.Console, summary: dict[str, Any]) -> None:
    """Prints the time per row of training, stage by stage, and of prediction, as in tables 4 and 7 of BERT4CTR."""
    names = [f"{kind}_ms_{name}" for kind in ("training", "inference") for name in COSTS]
    if all(point["metrics"][name]["mean"] is None for point in summary["points"] for name in names):
        return
    table = rich.table.Table(title="ms per row, of 20 repeats of every model in turn")
    table.add_column("point", overflow="fold")
    for name in names:
        table.add_column(name.replace("_ms_", "\n"), justify="right")
    for point in summary["points"]:
        table.add_row(point["name"], *(show(point["metrics"][name]["mean"], 3) for name in names))
        parts = (point["runs"][0]["costs"] or {}).get("training_parts") or {}
        for stage, ms in parts.items() if len(parts) > 1 else ():
            table.add_row(f"  {stage}", *(show(ms[name], 3) for name in COSTS), *("" for _ in COSTS))
    print_table(terminal, table)


def show(value: float | None, digits: int = 4, sign: str = "") -> str:
    """Formats a number with `digits` decimals, and with its sign if `sign` is "+". "-" for None."""
    return "-" if value is None else f"{value:{sign},.{digits}f}"


def _cell(spread: dict[str, float | None], digits: int) -> str:
    text = show(spread["mean"], digits)
    return text if spread["std"] is None else f"{text} ± {show(spread['std'], digits)}"
