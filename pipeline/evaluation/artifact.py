"""Reads and writes the evaluation files that the report is made from, stored next to TFMA's files."""

import json
import pathlib
from typing import Any

import numpy as np

from ctrpipe.common.files import write_json
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored

METRICS = "metrics.json"  # the metrics of the run, without the verdict of the gates
GATES = "gates.json"
SCORED = "scored.parquet"  # see write_scored


def write_evaluation(
    folder: pathlib.Path,
    metrics: dict[str, Any],
    scored: ScoredRows,
    others: dict[str, np.ndarray],
    gates: list[dict[str, Any]],
) -> None:
    """Writes the results of `evaluate` (metrics, scored, others) and of `read_gates` (gates)."""
    write_json(folder / METRICS, metrics)
    write_json(folder / GATES, gates)
    write_scored(folder / SCORED, scored, others)


def read_metrics(folder: pathlib.Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    return metrics


def read_gate_table(folder: pathlib.Path) -> list[dict[str, Any]]:
    gates: list[dict[str, Any]] = json.loads((folder / GATES).read_text(encoding="utf-8"))
    return gates
