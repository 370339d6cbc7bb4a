"""Prints the summary at the end of a run."""

import dataclasses
import json
import pathlib
from typing import Any

import rich.console
import rich.table

from ctrpipe.common.lines import say
from ctrpipe.pipeline.compare.show import interval_text, verdict
from ctrpipe.pipeline.compare.sides import compare_trainings
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.drift_gate import far_columns
from ctrpipe.pipeline.evaluation.scored_rows import as_numpy, read_scored, read_table
from ctrpipe.pipeline.evaluation.seeds import SeedSide, read_seeds
from ctrpipe.pipeline.report.advice import advice
from ctrpipe.pipeline.report.notes import notes
from ctrpipe.pipeline.report.numbers import NUMBER_METRICS, number_rows
from ctrpipe.pipeline.report.seeds import seeds_verdict, spread


def print_summary(output: pathlib.Path, config: RunConfig, best: dict[str, float] | None = None) -> None:
    """Prints the gate table, the metrics and the output paths.

    The metrics table also shows the baseline's metrics, the difference from the baseline, and the best possible
    metrics.
    """
    console = rich.console.Console()
    gates = rich.table.Table("gate", "value", "passed", "reason", title="Gates")
    rows_of_gates = json.loads((output / "report_data" / "gates.json").read_text())
    for gate in rows_of_gates:
        value = "-" if gate["value"] is None else f"{gate['value']:.4f}"
        gates.add_row(f"{gate['metric']} {gate['bound']}", value, "yes" if gate["passed"] else "NO", gate["reason"])
    console.print(gates)
    metrics = json.loads((output / "metrics.json").read_text())
    table = rich.table.Table("", "AUC", "log loss", "RIG", "calibration", title=f"{metrics['examples']:,} test rows")
    table.add_row(config.model.name, *_cells(metrics))
    if metrics["uncalibrated"]:
        table.add_row("uncalibrated", *_cells(metrics["uncalibrated"]))
    if metrics["tail"]:
        table.add_row(f"tail, {metrics['tail']['examples']:,} rows", *_cells(metrics["tail"]))
    seeds = read_seeds(output)
    for row in _spread_rows(seeds.model) if seeds else []:
        table.add_row(*row)
    if metrics["baseline"]:
        baseline = metrics["baseline"]["name"]
        table.add_row(f"{baseline} (baseline)", *_cells(metrics["baseline"]))
        if seeds and seeds.baseline and seeds.difference:
            for row in _spread_rows(seeds.baseline):
                table.add_row(*row)
            ahead, table.caption = seeds.difference["auc"], seeds_verdict(seeds)
        else:
            ahead = _ahead_of_baseline(output / "report_data" / "predictions.parquet")
            table.caption = verdict(f"{config.model.name}: AUC", ahead, baseline)
            sides = {config.model.name: metrics, f"the baseline {baseline}": metrics["baseline"]}
            if unconverged := [name for name, side in sides.items() if side.get("converged") is False]:
                table.caption += f". Not converged when the epochs ended: {' and '.join(unconverged)}"
        table.add_row(f"ahead of {baseline}, 95%", interval_text(ahead["interval"]))
        table.caption_justify = "left"
    if best:
        table.add_row("best possible", *_cells(best))
    console.print(table)
    if rows_of_numbers := number_rows(config.model.name, metrics):
        table = rich.table.Table("number", *NUMBER_METRICS.values(), "rows")
        for row in rows_of_numbers:
            table.add_row(*row)
        console.print(table)
    if metrics.get("gauc_groups"):
        say(f"gAUC:   {_gauc_text(metrics)}")
    for name, value in metrics.get("hooks", {}).items():
        of_baseline = (metrics["baseline"] or {}).get("hooks", {}).get(name)
        beside = f", {metrics['baseline']['name']} {_shown(of_baseline)}" if metrics["baseline"] else ""
        say(f"Metric: {name} {_shown(value)}{beside}")
    for task, choice in (metrics.get("calibration_choice") or {}).items():
        say(f"Calibration of {task}: {choice['text']}")
    model = output / "models" / config.serving.model_name
    history = json.loads((output / "report_data" / "history.json").read_text())
    if metrics["blessed"]:
        say(f"Model:  {model}/{metrics['model_version']}")
    else:
        say("Model:  blocked by a gate, not pushed")
        for sentence in advice(rows_of_gates, metrics, history, config):
            say(f"Try:    {sentence}.")
    if metrics["drift_breached"]:
        drift = json.loads((output / "report_data" / "drift.json").read_text())
        say(f"Drift:  columns further from another log than their limit: {', '.join(far_columns(drift))}")
    for note in notes(metrics, history):
        say(f"Note:   {note}.")
    statistics = json.loads((output / "report_data" / "statistics.json").read_text())
    for name, split in statistics["splits"].items():
        if ends := list(dict.fromkeys(split.get("span", []))):
            say(f"Split:  {name} {split['rows']:,} rows, {' to '.join(ends)}")
    for anomaly in statistics["anomalies"]:
        say(f"Column: {anomaly['column']}, {anomaly['split']} rows: {anomaly['text']}")
    say(f"Report: {output}/report.html")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _gauc_text(metrics: dict[str, Any]) -> str:
    """Returns the gAUC of metrics.json as text, with its interval, its groups, and the groups left out."""
    of = metrics["gauc_groups"]
    interval = f", 95% {of['low']:.4f} .. {of['high']:.4f}" if "low" in of else ""
    value = "-" if metrics["gauc"] is None else f"{metrics['gauc']:.4f}"
    rows = f", {of['rows_without_group']:,} rows without a value" if of["rows_without_group"] else ""
    left_out = f"{of['left_out']:,} of one class left out{rows}"
    return f"{value}{interval}, over {of['groups']:,} values of {of['column']} by {of['weighted_by']}; {left_out}"


def _ahead_of_baseline(predictions: pathlib.Path) -> dict[str, Any]:
    """Returns the difference in AUC from the baseline on the test rows, tested as in `ctrpipe compare`."""
    scored = read_scored(predictions)
    task = next(iter(scored.labels))
    values = as_numpy(read_table(predictions, ["baseline_probability"])[0])
    baseline = dataclasses.replace(scored, probabilities={task: values})
    return compare_trainings([baseline], [scored], task)["auc"].to_json()


def _spread_rows(side: SeedSide) -> list[list[str]]:
    """Returns the table's rows with the means and deviations over a side's training runs; none for a single run."""
    if len(side.trainings) == 1:
        return []
    means, deviations = zip(*spread(side).values(), strict=True)
    names = (f"{side.name}, mean of {len(side.trainings)}", f"{side.name}, deviation")
    return [
        [name, *("-" if value is None else f"{value:.4f}" for value in values)]
        for name, values in zip(names, (means, deviations), strict=True)
    ]


def _cells(metrics: dict[str, Any]) -> list[str]:
    names = ("auc", "log_loss", "rig", "calibration")
    return ["-" if metrics.get(name) is None else f"{metrics[name]:.4f}" for name in names]
