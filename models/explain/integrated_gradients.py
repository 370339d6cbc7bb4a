"""Integrated gradients: each part's contribution to a logit along the straight path from a baseline.

References:
    Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017, equations 1 and 3.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Maps points on the path, [n] from 0 (the baseline) to 1 (the row), to the logits there, [n], and to the rate of change
# of the logit by unit, <dF/dx_u, x_u - baseline_u>, [n, units].
Way = Callable[[Floats], tuple[Floats, Floats]]
FIRST_STEPS, MOST_STEPS = 32, 1024


@dataclasses.dataclass(frozen=True)
class PathIntegral:
    """The integral of the gradient along the path.

    Attributes:
        units: Contribution of each unit, float64 `[units]`; they sum to `end - start`.
        start, end: The logits of the baseline and of the row.
        jumps: The part of that sum that no gradient explains: the logit of a model that selects (top-k, maximum) jumps.
            The jump in a step is distributed over the units in proportion to the absolute contributions of their
            gradients in that step.
        steps: Number of steps of the trapezoidal rule.
    """

    units: Floats
    start: float
    end: float
    jumps: float
    steps: int


def integrate(way: Way, tolerance: float = 1e-4, most_steps: int = MOST_STEPS) -> PathIntegral:
    """Returns the integral by the trapezoidal rule.

    The steps are halved until the integral explains the change of the logit.

    Args:
        way: The path; called with new points only.
        tolerance: Maximum difference between the sum of the integrals and the change of the logit.
        most_steps: Number of steps at which the halving always stops.
    """
    places = np.linspace(0, 1, FIRST_STEPS + 1)
    logits, rates = (np.asarray(values, np.float64) for values in way(places))
    while True:
        widths = np.diff(places)[:, None]
        steps = (rates[1:] + rates[:-1]) / 2 * widths
        left = np.diff(logits) - steps.sum(axis=1)
        if abs(left.sum()) <= tolerance or len(steps) >= most_steps:
            break
        between = (places[1:] + places[:-1]) / 2
        new_logits, new_rates = way(between)
        order = np.argsort(np.concatenate([places, between]), kind="stable")
        places = np.concatenate([places, between])[order]
        logits = np.concatenate([logits, new_logits])[order]
        rates = np.concatenate([rates, new_rates])[order]
    size = np.abs(steps)
    whole = size.sum(axis=1, keepdims=True)
    shares = np.divide(size, whole, out=np.full_like(size, 1 / max(size.shape[1], 1)), where=whole > 0)
    units = (steps + shares * left[:, None]).sum(axis=0)
    return PathIntegral(units, float(logits[0]), float(logits[-1]), float(left.sum()), len(steps))
