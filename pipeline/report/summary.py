"""What a run prints at its end."""

import json
import pathlib
from typing import Any

import rich.console
import rich.table

from pipeline.config import RunConfig
from pipeline.monitoring.breach import far_columns


def print_summary(output: pathlib.Path, config: RunConfig, best: dict[str, float] | None = None) -> None:
    """Prints the gate table, the metrics (beside the baseline's and the best possible ones), and where things lie."""
    console = rich.console.Console()
    gates = rich.table.Table("gate", "value", "passed", "reason", title="Gates")
    for gate in json.loads((output / "report_data" / "gates.json").read_text()):
        value = "-" if gate["value"] is None else f"{gate['value']:.4f}"
        gates.add_row(f"{gate['metric']} {gate['bound']}", value, "yes" if gate["passed"] else "NO", gate["reason"])
    console.print(gates)
    metrics = json.loads((output / "metrics.json").read_text())
    table = rich.table.Table("", "AUC", "log loss", "RIG", "calibration", title=f"{metrics['examples']:,} test rows")
    table.add_row(config.model.name, *_cells(metrics))
    if metrics["tail"]:
        table.add_row(f"tail, {metrics['tail']['examples']:,} rows", *_cells(metrics["tail"]))
    if metrics["baseline"]:
        table.add_row(metrics["baseline"]["name"] + " (baseline)", *_cells(metrics["baseline"]))
    if best:
        table.add_row("best possible", *_cells(best))
    console.print(table)
    model = output / "models" / config.serving.model_name
    if metrics["blessed"]:
        print(f"Model:  {model}/{metrics['model_version']}")
    else:
        print("Model:  blocked by a gate, not pushed")
    if metrics["drift_breached"]:
        drift = json.loads((output / "report_data" / "drift.json").read_text())
        print(f"Drift:  further from another log than they may be: {', '.join(far_columns(drift))}")
    print(f"Report: {output}/report.html")


def _cells(metrics: dict[str, Any]) -> list[str]:
    names = ("auc", "log_loss", "rig", "calibration")
    return ["-" if metrics.get(name) is None else f"{metrics[name]:.4f}" for name in names]
