"""Progressive layered extraction."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.multi_task.mmoe import EXPERT
from ctrpipe.models.multi_task.multi_task_model import MultiTaskModel, mixed


@keras.saving.register_keras_serializable(package="ctrpipe")
class PLE(MultiTaskModel):
    """Progressive layered extraction: levels of task-specific and shared experts with gates.

    `logit_k = MLP_k(g_k)`. On every level, `g_k = Σ_i softmax(W_k s_k)_i f_i` over the experts of task k and the shared
    experts. The input of the next level's shared experts is `g_0`, over all experts. s_k is the level's input: x on the
    first level (see MMoE), then g_k of the level below. An expert of the first level is an interaction model that
    returns `expert_units` numbers instead of logits, followed by the activation. On the other levels, an expert is one
    dense layer on s_k. With one level, the model is the paper's CGC.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with several tasks.
        levels: int. Number of levels. Defaults to 2.
        task_experts: int. Number of experts of each task, on every level. Defaults to 2.
        shared_experts: int. Number of shared experts, on every level. Defaults to 2.
        expert_units: int. Width of an expert's output. Defaults to 128.
        interaction: mapping. The model used as an expert of the first level: its name and hyperparameters, except those
            of the embeddings and the linear part. It must support several tasks. Defaults to an MLP with a hidden layer
            of 256.
        hidden_units: sequence of int. Widths of the hidden layers of each task's MLP. Defaults to (64,).
        activation: str. Activation of the experts' outputs and of the tasks' MLPs. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer of the tasks' MLPs. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of the tasks' MLPs. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> fields = [("site", "categorical", 100), ("ad", "categorical", 50)]
        >>> feature_map = FeatureMap.from_sizes(fields, tasks=("click", "conversion"))
        >>> model = PLE(feature_map, expert_units=4, interaction={"name": "mlp", "hidden_units": [8]})
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 2)

    Raises:
        ValueError: the data has one task, a size is not positive, or the interaction cannot be an expert.

    References:
        Tang et al., "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning (MTL) Model for Personalized
        Recommendations", 2020, equations 1 to 7.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        levels: int = 2,
        task_experts: int = 2,
        shared_experts: int = 2,
        expert_units: int = 128,
        interaction: Mapping[str, Any] = EXPERT,
        hidden_units: Sequence[int] = (64,),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        numbers = {"levels": levels, "task_experts": task_experts, "shared_experts": shared_experts}
        require_positive(**numbers, expert_units=expert_units)
        tasks = feature_map.tasks
        sizes = [task_experts] * len(tasks) + [shared_experts]  # of each task in turn, then the shared ones
        options |= {"interaction": interaction, "count": sum(sizes), "outputs": expert_units}
        super().__init__(feature_map, **options)
        self.sizes = sizes
        self.activation = keras.activations.get(activation)
        self.levels = levels
        # Level by level: the gates of each task and, except on the last level, of the shared experts; the experts of
        # the levels above the first, in the order of `sizes`.
        self.gates: list[keras.layers.Dense] = []
        self.experts: list[keras.layers.Dense] = []
        for level in range(levels):
            seen = dict.fromkeys(tasks, task_experts + shared_experts)
            if level < levels - 1:
                seen["shared"] = sum(sizes)
            for owner, width in seen.items():
                self.gates.append(keras.layers.Dense(width, use_bias=False, name=f"gate_{level}_{owner}"))
            for number in range(sum(sizes) if level else 0):
                self.experts.append(keras.layers.Dense(expert_units, activation, name=f"expert_{level}_{number}"))
        self.towers = [self.mlp(hidden_units, 1, activation, dropout, l2, name=f"tower_{task}") for task in tasks]

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        states = [self.flatten(rows, inputs)] * len(self.sizes)
        stacked = self.activation(ops.stack(self.outputs(rows, inputs, training), axis=1))
        gates, experts = iter(self.gates), iter(self.experts)
        for level in range(self.levels):
            if level:
                owners = [state for state, size in zip(states, self.sizes, strict=True) for _ in range(size)]
                stacked = ops.stack([next(experts)(state) for state in owners], axis=1)
            *own, shared = ops.split(stacked, np.cumsum(self.sizes)[:-1].tolist(), axis=1)
            seen = [ops.concatenate([experts_of_task, shared], axis=1) for experts_of_task in own]
            if level < self.levels - 1:
                seen.append(stacked)
            states = [mixed(next(gates)(state), those) for state, those in zip(states, seen, strict=False)]
        logits = [tower(state, training=training) for tower, state in zip(self.towers, states, strict=True)]
        return ops.concatenate(logits, axis=1)

    def output_biases(self) -> list[keras.Variable]:
        if self.linear_dense is not None:
            return super().output_biases()
        return [tower.logits.bias for tower in self.towers if tower.logits is not None]
