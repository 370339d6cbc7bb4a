"""One sentence on a run for the head of its report: whether the model was pushed, and how good it is."""

from collections.abc import Mapping, Sequence
from typing import Any


def verdict(
    model: str, metrics: Mapping[str, Any], gates: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]
) -> str:
    """Returns the sentence, with a final period.

    Args:
        model: The model's name.
        metrics: The contents of metrics.json.
        gates: The rows of gates.json.
        measured: See `ctrpipe.pipeline.report.measured.measure`.
    """
    parts = [f"{model} {fate(metrics, gates)}: {_ranking(metrics, measured)}"]
    if metrics["calibration"] is not None:
        parts.append(_expectation(metrics["calibration"], measured["model"]["calibration"]))
    return ", and ".join(parts) + "."


def fate(metrics: Mapping[str, object], gates: Sequence[Mapping[str, Any]]) -> str:
    """Returns whether a model was pushed, and which gate blocked it, as the predicate of a sentence."""
    failed = [gate for gate in gates if not gate["passed"]]
    if metrics["blessed"]:
        version = f" and is pushed as version {metrics['model_version']}" if metrics["model_version"] else ""
        return f"passed {_counted(len(gates), 'gate')}{version}" if gates else f"had no gate to pass{version}"
    if not failed:
        return "is blocked and not pushed"
    first = f"{failed[0]['metric']}: {failed[0]['reason']}"
    rest = f"; and {_counted(len(failed) - 1, 'other')}" if len(failed) > 1 else ""
    return f"is blocked by {_counted(len(failed), 'gate')} of {len(gates)} and not pushed ({first}{rest})"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _ranking(metrics: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    if metrics["auc"] is None:
        return "its AUC is not defined on these test rows"
    interval = measured["model"]["auc"]
    text = f"its AUC is {metrics['auc']:.4f}" + (f" (95% {interval[0]:.4f} to {interval[1]:.4f})" if interval else "")
    ahead = measured["ahead"]
    if not ahead or ahead["difference"] is None:
        return text
    low, high = ahead["interval"]
    name = metrics["baseline"]["name"]
    if low > 0:
        return f"{text}, {low:.4f} to {high:.4f} above that of the baseline {name}"
    if high < 0:
        return f"{text}, {-high:.4f} to {-low:.4f} below that of the baseline {name}"
    return f"{text}, not shown to differ from that of the baseline {name}"


def _expectation(calibration: float, interval: Sequence[float] | None) -> str:
    if interval and interval[0] <= 1 <= interval[1]:
        return f"it predicts {calibration:.3f} times the observed clicks, a difference within chance"
    apart = abs(calibration - 1)
    return f"it predicts {apart:.1%} {'more' if calibration > 1 else 'fewer'} clicks than were observed"
