"""Metrics and gates of installed packages: their inputs from a model's test rows, and the results they may return."""

import dataclasses
import math
import numbers
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError
from ctrpipe.common.hooks import GATE
from ctrpipe.pipeline.evaluation.gates import gate_row
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows


@dataclasses.dataclass(frozen=True)
class JudgedRows:
    """A model's predictions of the test rows with a label of the first task. All arrays are read-only.

    Attributes:
        labels: 1 for a click and 0 otherwise, or a rate, float64 [N].
        probabilities: Predictions, float64 [N].
        weights: Row weights, float64 [N]; 1 without weights.
        slices: The value of each row as text, [N], by column of `evaluation.slices`.
        last: The last blessed model's predictions, float64 [N]; None for a first model.
        metrics: The contents of metrics.json, for a gate; empty for a metric.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    slices: Mapping[str, np.ndarray]
    last: np.ndarray | None = None
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def judged_rows(
    scored: ScoredRows, probabilities: np.ndarray, last: np.ndarray | None, metrics: dict[str, Any]
) -> JudgedRows:
    """Returns the argument of a hook.

    Args:
        scored: The test rows.
        probabilities: Predictions of the first task, [N]: the model's, or its baseline's.
        last: The last blessed model's predictions of that task, [N]; None for a first model.
        metrics: The contents of metrics.json, so far.
    """
    task = next(iter(scored.labels))
    known = scored.known(task)
    own = scored.labelled(task)
    return JudgedRows(
        labels=_constant(own.labels[task]),
        probabilities=_constant(probabilities[known]),
        weights=_constant(np.ones(int(known.sum())) if own.weights is None else own.weights),
        slices={name: _constant(np.array(values.to_pylist(), object)) for name, values in own.slices.items()},
        last=None if last is None else _constant(last[known]),
        metrics=types.MappingProxyType(metrics),
    )


def _constant(values: np.ndarray) -> np.ndarray:
    copy = values.astype(np.float64 if values.dtype != object else object)
    copy.setflags(write=False)
    return copy


def hook_metrics(names: Iterable[str], rows: JudgedRows) -> dict[str, float | None]:
    """Returns the value of each hook metric; None if it is undefined on these rows.

    Raises:
        InputError: a metric fails, or does not return a finite number.
    """
    values: dict[str, float | None] = {}
    for name in names:
        metric = hooks.load("metrics", name)
        with hooks.failures("metrics", name):
            value = metric(rows)
        if value is not None and not (isinstance(value, numbers.Real) and math.isfinite(value)):
            shown = type(value).__name__ if not isinstance(value, numbers.Real) else f"{value}"
            raise InputError(
                f"the metric {name} returned {shown}, not a finite number; return a float, or None where it is not "
                "defined"
            )
        values[name] = None if value is None else float(value)
    return values


def hook_gates(names: Iterable[str], rows: JudgedRows) -> list[dict[str, Any]]:
    """Returns a row of the gate table for each hook gate.

    Raises:
        InputError: a gate fails, or returns neither None nor a reason.
    """
    table = []
    for name in names:
        gate = hooks.load("gates", name)
        with hooks.failures("gates", name):
            reason = gate(rows)
        if reason is not None and not (isinstance(reason, str) and reason.strip()):
            shown = f"{reason!r:.50}"
            raise InputError(f"the gate {name} returned {shown}; return None, or a text that says why it objects")
        said = "it has no objection" if reason is None else " ".join(reason.split())
        table.append(gate_row(name, GATE, "of a package", None, reason is None, said))
    return table
