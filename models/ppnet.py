"""PPNet: an MLP whose hidden layers are gated by priors."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel, fields_named
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.gate_network import GateNetwork
from ctrpipe.models.layers.tower import rates_of_layers


@keras.saving.register_keras_serializable(package="ctrpipe")
class PPNet(CTRModel):
    """Parameter personalised network: the hidden layers of each task's MLP are multiplied by gates of priors.

    `h_l = dropout(act(norm(W_l h_{l-1} + b_l))) ∘ Gate_l([stop_gradient(x), e_priors])`, `logit = wᵀ h_L + b`. x is the
    concatenated embeddings and dense features; the priors are fields such as the user, the item and its author.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        priors: sequence of str. Names of the fields whose embeddings determine the gates. Required.
        gate_units: int. Width of the gates' hidden layers. Defaults to 64.
        hidden_units: sequence of int. Widths of each task's MLP. Defaults to (64, 64, 64).
        activation: str. Activation of the MLPs. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLPs' kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("user", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = PPNet(feature_map, priors=["user"], embedding_dim=4, hidden_units=(8,))
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `priors` is missing or names no field, there is no hidden layer, or `gate_units` is not positive.

    References:
        Chang et al., "PEPNet: Parameter and Embedding Personalized Network for Infusing with Personalized Prior
        Information", 2023, section 2.4.
    """

    registered = "ppnet"
    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        priors: Sequence[str] | None = None,
        gate_units: int = 64,
        hidden_units: Sequence[int] = (64, 64, 64),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(gate_units=gate_units)
        if not hidden_units:
            raise ValueError("`hidden_units` should have at least one width to gate. Received: hidden_units=()")
        if not priors:
            raise ValueError(f"{self.registered} needs `priors`, the fields that its gates read, such as [user, item]")
        super().__init__(feature_map, **options)
        self.priors = fields_named(self.registered, feature_map, priors)
        rates, tasks = rates_of_layers(dropout, hidden_units), feature_map.tasks
        # By task, the layers and the gates one by one.
        self.layers_of = [
            [
                self.mlp((units,), None, activation, rates[index], l2, name=f"hidden_{task}_{index}")
                for index, units in enumerate(hidden_units)
            ]
            for task in tasks
        ]
        self.gates_of = [
            [GateNetwork(units, gate_units, name=f"gate_{task}_{index}") for index, units in enumerate(hidden_units)]
            for task in tasks
        ]
        self.logits = [keras.layers.Dense(1, name=f"logit_{task}") for task in tasks]

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x = self.features(rows, inputs)
        prior = ops.concatenate([ops.stop_gradient(x), self.embeddings_of(rows, self.priors)], axis=1)
        logits = []
        for layers, gates, logit in zip(self.layers_of, self.gates_of, self.logits, strict=True):
            states = x
            for layer, gate in zip(layers, gates, strict=True):
                states = layer(states, training=training) * gate(prior)
            logits.append(logit(states))
        return ops.concatenate(logits, axis=1)

    def features(self, rows: Tensor, inputs: Inputs) -> Tensor:
        """Returns the input of the MLPs, (batch_size, width)."""
        return self.flatten(rows, inputs)

    def embeddings_of(self, rows: Tensor, places: list[int]) -> Tensor:
        """Returns the concatenated embeddings of some fields, (batch_size, len(places) * embedding_dim)."""
        return ops.reshape(ops.take(rows, places, axis=1), (-1, len(places) * rows.shape[2]))

    def output_biases(self) -> list[keras.Variable]:
        return super().output_biases() if self.linear_dense is not None else [logit.bias for logit in self.logits]
