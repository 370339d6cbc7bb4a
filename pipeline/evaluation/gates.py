"""Which gates a model passed, read from TFMA's validation result."""

import pathlib
from typing import Any

import tensorflow_model_analysis as tfma

from pipeline.config import Gates

_METRICS = ("auc", "log_loss", "calibration")


def read_gates(evaluation: pathlib.Path, gates: Gates) -> list[dict[str, Any]]:
    """One row per gate: metric, kind (absolute or change), bound, value, passed, reason."""
    result = tfma.load_eval_result(str(evaluation))
    values = _overall(result)
    changes = _overall(result, "_diff")
    rows: list[dict[str, Any]] = []
    for metric, bounds in (("auc", gates.auc), ("log_loss", gates.log_loss), ("calibration", gates.calibration)):
        value = values[metric]
        if bounds and bounds.min is not None:
            rows.append(_row(metric, "absolute", f"at least {bounds.min:g}", value, value >= bounds.min))
        if bounds and bounds.max is not None:
            rows.append(_row(metric, "absolute", f"at most {bounds.max:g}", value, value <= bounds.max))
    for metric, drop in gates.max_drop.items():
        bound = f"at most {drop:g} worse than the last blessed model"
        if metric not in changes:
            rows.append(_row(metric, "change", bound, None, True, "no model has been blessed before"))
            continue
        worse = 0.0 - changes[metric] if metric == "auc" else changes[metric]
        rows.append(_row(metric, "change", bound, worse, worse <= drop))
    return rows


def _row(metric: str, kind: str, bound: str, value: float | None, passed: bool, reason: str = "") -> dict[str, Any]:
    if not reason:
        reason = f"{value:.4f} is {bound}" if passed else f"{value:.4f} is not {bound}"
    return {"metric": metric, "kind": kind, "bound": bound, "value": value, "passed": bool(passed), "reason": reason}


def _overall(result: tfma.EvalResult, suffix: str = "") -> dict[str, float]:
    """TFMA's metrics over all rows; with the suffix `_diff`, how they differ from the model to beat."""
    found: dict[str, float] = {}
    for slice_key, by_output in result.slicing_metrics:
        if slice_key:
            continue
        for by_class in by_output.values():
            for metrics in by_class.values():
                for name in _METRICS:
                    value = metrics.get(name + suffix, {})
                    if "doubleValue" in value:
                        found[name] = value["doubleValue"]
    return found
