"""Multi-gate mixture of experts."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.multi_task.multi_task_model import MultiTaskModel, mixed

EXPERT: Mapping[str, Any] = {"name": "mlp", "hidden_units": [256]}


@keras.saving.register_keras_serializable(package="ctrpipe")
class MMoE(MultiTaskModel):
    """Multi-gate mixture of experts: tasks share experts and weight them with their own gates.

    `logit_k = MLP_k(Σ_i g_k(x)_i f_i(x))` with `g_k(x) = softmax(W_k x)` for each task k. x is the concatenated
    embeddings, plus the dense features if the interaction does not embed them. An expert f_i is an interaction model
    that returns `expert_units` numbers instead of logits, followed by the activation.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with several tasks.
        experts: int. Number of experts. Defaults to 8, as in the paper.
        expert_units: int. Width of an expert's output. Defaults to 128.
        interaction: mapping. The model used as an expert: its name and hyperparameters, except those of the embeddings
            and the linear part. It must support several tasks. Defaults to an MLP with a hidden layer of 256.
        hidden_units: sequence of int. Widths of the hidden layers of each task's MLP. Defaults to (64,).
        activation: str. Activation of the experts' outputs and of the tasks' MLPs. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer of the tasks' MLPs. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of the tasks' MLPs. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> fields = [("site", "categorical", 100), ("ad", "categorical", 50)]
        >>> feature_map = FeatureMap.from_sizes(fields, tasks=("click", "conversion"))
        >>> model = MMoE(feature_map, experts=3, expert_units=4, interaction={"name": "dcn_v2", "hidden_units": [8]})
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 2)

    Raises:
        ValueError: the data has one task, `experts` or `expert_units` is not positive, or the interaction cannot be an
            expert.

    References:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts", 2018,
        equations 5 to 7.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        experts: int = 8,
        expert_units: int = 128,
        interaction: Mapping[str, Any] = EXPERT,
        hidden_units: Sequence[int] = (64,),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(experts=experts, expert_units=expert_units)
        super().__init__(feature_map, interaction=interaction, count=experts, outputs=expert_units, **options)
        self.activation = keras.activations.get(activation)
        tasks = feature_map.tasks
        self.gates = [keras.layers.Dense(experts, use_bias=False, name=f"gate_{task}") for task in tasks]
        self.towers = [self.mlp(hidden_units, 1, activation, dropout, l2, name=f"tower_{task}") for task in tasks]

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x = self.flatten(rows, inputs)
        experts = self.activation(ops.stack(self.outputs(rows, inputs, training), axis=1))
        logits = [
            tower(mixed(gate(x), experts), training=training)
            for gate, tower in zip(self.gates, self.towers, strict=True)
        ]
        return ops.concatenate(logits, axis=1)

    def output_biases(self) -> list[keras.Variable]:
        if self.linear_dense is not None:
            return super().output_biases()
        return [tower.logits.bias for tower in self.towers if tower.logits is not None]
