"""Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2).

The smallest float16 number is 6e-8, and most gradients are smaller. The loss is therefore multiplied by a scale, and
the gradients are divided by it. A step with a non-finite gradient is skipped and halves the scale. GROWTH_STEPS finite
steps in a row double the scale.
"""

from keras import ops

from ctrpipe.models.base.tensors import Tensor

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


def next_scale(scale: Tensor, steps: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the scale (float32 scalar) and the number of finite steps at it (int32 scalar) after a step.

    Args:
        scale, steps: The same values before the step.
        finite: Whether all gradients of the step were finite.
    """
    grows = steps + 1 >= GROWTH_STEPS
    grown = ops.where(grows, scale * 2.0, scale)
    after = ops.where(finite, grown, ops.maximum(scale / 2.0, 1.0))
    return after, ops.where(ops.logical_and(finite, ops.logical_not(grows)), steps + 1, 0)
