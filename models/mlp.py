"""Multilayer perceptron."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class MLP(CTRModel):
    """Multilayer perceptron on the concatenated embeddings: Attention-Net's baseline without attention.

    `logit = MLP(concat(E, dense))`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (600, 400), the paper's widths for
            Criteo; for Avazu the paper uses (400, 200).
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> fields = [("site", "categorical", 100), ("ad", "categorical", 50)]
        >>> feature_map = FeatureMap.from_sizes(fields, dense=("price",))
        >>> model = MLP(feature_map, embedding_dim=4, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]]), "dense": keras.ops.array([[0.5], [1.5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    References:
        "Learning Representations of Categorical Feature Combinations via Self-Attention", section 4.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.tower(self.flatten(rows, inputs), training=training)
