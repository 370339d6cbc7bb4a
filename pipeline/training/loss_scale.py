"""Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2).

float16's smallest number is 6e-8, and most gradients are smaller. So the loss is multiplied by a scale, and the
gradients are divided by it. A step with an infinite gradient is skipped and halves the scale; GROWTH_STEPS finite steps
double it.
"""

from typing import Any

from keras import ops

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


def next_scale(scale: Any, steps: Any, finite: Any) -> tuple[Any, Any]:
    """Returns the scale (float32 scalar) and the number of finite steps at it (int32 scalar) after a step.

    Args:
        scale, steps: The same before the step.
        finite: Whether all gradients of the step were finite.
    """
    grows = steps + 1 >= GROWTH_STEPS
    grown = ops.where(grows, scale * 2.0, scale)
    after = ops.where(finite, grown, ops.maximum(scale / 2.0, 1.0))
    return after, ops.where(ops.logical_and(finite, ops.logical_not(grows)), steps + 1, 0)
