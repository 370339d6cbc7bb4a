"""What the loss is multiplied by in float16, whose smallest number is 6e-8: most gradients are smaller.

The gradients are divided by it again. Where one of them has become infinite the step is left out and the scale halved;
after GROWTH_STEPS finite steps it is doubled (Micikevicius et al. 2018, section 3.2).
"""

from typing import Any

from keras import ops

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


def next_scale(scale: Any, steps: Any, finite: Any) -> tuple[Any, Any]:
    """Returns the scale, float32, and the number of finite steps at it, int32, after one more step; scalars.

    Args:
        scale, steps: Before it.
        finite: Whether all its gradients were finite.
    """
    grows = steps + 1 >= GROWTH_STEPS
    grown = ops.where(grows, scale * 2.0, scale)
    after = ops.where(finite, grown, ops.maximum(scale / 2.0, 1.0))
    return after, ops.where(ops.logical_and(finite, ops.logical_not(grows)), steps + 1, 0)
