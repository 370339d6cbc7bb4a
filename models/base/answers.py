"""Converts a model's outputs to predictions: probabilities, and numbers for regression tasks."""

from keras import ops

from ctrpipe.models.base.feature_map import FeatureMap, NumberTask
from ctrpipe.models.base.tensors import Tensor

MOST = 20.0  # largest exponent: e^20 times the mean is beyond any number of a log, and its square is finite


def answers(outputs: Tensor, feature_map: FeatureMap) -> Tensor:
    """Returns the predictions of all tasks, float32 (batch_size, tasks).

    Args:
        outputs: A model's outputs: logits, or the raw outputs of regression tasks, float32 (batch_size, tasks).
        feature_map: The description of the tasks.
    """
    if not feature_map.number_tasks:
        return ops.sigmoid(outputs)
    columns = [
        ops.sigmoid(outputs[:, index]) if number is None else answer(outputs[:, index], number)
        for index, number in enumerate(feature_map.numbers_by_task.values())
    ]
    return ops.stack(columns, axis=1)


def answer(outputs: Tensor, number: NumberTask) -> Tensor:
    """Converts a regression task's outputs to numbers, in the shape of the outputs."""
    if number.predicts == "count":
        return number.scale * ops.exp(ops.minimum(outputs, MOST))
    return number.center + number.scale * outputs


def number_losses(labels: Tensor, outputs: Tensor, number: NumberTask) -> Tensor:
    """Returns the loss of each row, in the shape of the labels, for labels y and outputs z.

    With `t = (y - center) / scale`: `(z - t)^2 / 2` for a mean, `|z - t|` for a median, and `e^z - t z`, Poisson's
    negative log-likelihood without its constant, for a count. Beyond MOST, e^z continues as its tangent, which keeps
    the gradient from vanishing.
    """
    target = (labels - number.center) / number.scale
    if number.predicts == "median":
        return ops.absolute(outputs - target)
    if number.predicts == "count":
        beyond = ops.maximum(outputs - MOST, 0.0)
        return ops.exp(ops.minimum(outputs, MOST)) * (1.0 + beyond) - target * outputs
    return 0.5 * ops.square(outputs - target)
