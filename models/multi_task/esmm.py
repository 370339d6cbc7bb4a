"""Entire space multi-task model."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.multi_task.multi_task_model import MultiTaskModel

TOWER: Mapping[str, Any] = {"name": "mlp", "hidden_units": [360, 200, 80]}


@keras.saving.register_keras_serializable(package="ctrpipe")
class ESMM(MultiTaskModel):
    """Entire space multi-task model: P(conversion) = P(click) · P(conversion | click).

    `p_1 = σ(f_1(x))` and `p_k = p_{k-1} σ(f_k(x))`, for tasks that follow one another, such as click and conversion:
    every row that is positive for a task must be positive for the previous task. f_k is the interaction model of task k
    on shared embeddings, plus the linear part of the task if there is one. All impressions train all tasks. The model's
    logits are the logits of p_k (pCTR and pCTCVR in the paper). The conversion rate after a click, pCVR, is p_2 / p_1.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with several tasks in funnel order.
        interaction: mapping. The model of each task: its name and hyperparameters, except those of the embeddings and
            the linear part. Defaults to the paper's MLP, with hidden layers of 360, 200 and 80.
        **options: Options of CTRModel.

    Example:
        >>> fields = [("site", "categorical", 100), ("ad", "categorical", 50)]
        >>> feature_map = FeatureMap.from_sizes(fields, tasks=("click", "conversion"))
        >>> model = ESMM(feature_map, interaction={"name": "deepfm", "hidden_units": [8]}, use_linear=True)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 2)

    Raises:
        ValueError: the data has one task or one that predicts a number, or the interaction cannot be a task's model.

    References:
        Ma et al., "Entire Space Multi-Task Model: An Effective Approach for Estimating Post-Click Conversion Rate",
        2018, equations 1 and 3.
    """

    def __init__(self, feature_map: FeatureMap, *, interaction: Mapping[str, Any] = TOWER, **options: Any) -> None:
        if feature_map.number_tasks:
            raise ValueError(f"esmm multiplies probabilities; {feature_map.number_tasks[0].task} is a number")
        super().__init__(feature_map, interaction=interaction, count=len(feature_map.tasks), outputs=1, **options)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return ops.concatenate(self.outputs(rows, inputs, training), axis=1)

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        return logits_of_products(super().call(inputs, training, gathered))

    def output_biases(self) -> list[keras.Variable]:
        if self.linear_dense is not None:
            return super().output_biases()
        return [bias for model in self.interactions for bias in model.output_biases()]

    def start_at(self, rates: np.ndarray) -> None:
        rates = np.clip(rates, 1e-6, 1 - 1e-6)
        super().start_at(rates / np.append(1.0, rates[:-1]))

    def shift_logits(self, shift: float) -> None:
        raise ValueError("ESMM: no bias moves the logits of products by a constant")


def logits_of_products(logits: Tensor) -> Tensor:
    """Returns the logits of `Π_{j≤k} σ(z_j)` for each task k, from logits z; both are (batch_size, tasks).

    The computation uses odds: `1 / (σ(a) σ(b)) - 1 = e^-a + e^-b + e^-(a+b)`. The logarithm of this sum neither
    overflows nor loses the precision of a probability near 0 or 1.
    """
    products = [logits[:, :1]]
    for task in range(1, logits.shape[1]):
        before, after = -products[-1], -logits[:, task : task + 1]
        odds = ops.concatenate([before, after, before + after], axis=1)
        products.append(-ops.logsumexp(odds, axis=1, keepdims=True))
    return ops.concatenate(products, axis=1)
