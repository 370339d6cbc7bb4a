"""Which gates a model passed, read from TFMA's validation result."""

import pathlib
from typing import Any

import tensorflow_model_analysis as tfma

from pipeline.config import Gates

_NAMES = {"auc": "auc", "binary_crossentropy": "log_loss", "calibration": "calibration"}


def read_gates(evaluation: pathlib.Path, gates: Gates) -> list[dict[str, Any]]:
    """One row per gate: metric, kind (absolute or change), bound, value, passed, reason."""
    result = tfma.load_eval_result(str(evaluation))
    values = _overall(result)
    baseline = _overall(result, baseline=True)
    rows: list[dict[str, Any]] = []
    for metric, bounds in (("auc", gates.auc), ("log_loss", gates.log_loss), ("calibration", gates.calibration)):
        value = values[metric]
        if bounds and bounds.min is not None:
            rows.append(_row(metric, "absolute", f"at least {bounds.min:g}", value, value >= bounds.min))
        if bounds and bounds.max is not None:
            rows.append(_row(metric, "absolute", f"at most {bounds.max:g}", value, value <= bounds.max))
    for metric, drop in gates.max_drop.items():
        bound = f"at most {drop:g} worse than the last blessed model"
        if metric not in baseline:
            rows.append(_row(metric, "change", bound, None, True, "no model has been blessed before"))
            continue
        worse = baseline[metric] - values[metric] if metric == "auc" else values[metric] - baseline[metric]
        rows.append(_row(metric, "change", bound, worse, worse <= drop))
    return rows


def _row(metric: str, kind: str, bound: str, value: float | None, passed: bool, reason: str = "") -> dict[str, Any]:
    if not reason:
        reason = f"{value:.4f} is {bound}" if passed else f"{value:.4f} is not {bound}"
    return {"metric": metric, "kind": kind, "bound": bound, "value": value, "passed": bool(passed), "reason": reason}


def _overall(result: tfma.EvalResult, baseline: bool = False) -> dict[str, float]:
    """TFMA's metrics over all rows; with `baseline`, those of the model to beat (which it gives as differences)."""
    found: dict[str, float] = {}
    for slice_key, by_output in result.slicing_metrics:
        if slice_key:
            continue
        for by_class in by_output.values():
            for metrics in by_class.values():
                for name, value in metrics.items():
                    known = _NAMES.get(name)
                    if known and not baseline and "doubleValue" in value:
                        found[known] = value["doubleValue"]
                    changed = _NAMES.get(name.removesuffix("_diff")) if name.endswith("_diff") else None
                    if changed and baseline and "doubleValue" in value:
                        found[changed] = value["doubleValue"]
    if baseline:
        current = _overall(result)
        return {name: current[name] - difference for name, difference in found.items()}
    return found
