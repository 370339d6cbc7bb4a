"""Attention-Net."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel, attention_of, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.top_k_self_attention import TopKSelfAttention


@keras.saving.register_keras_serializable(package="ctrpipe")
class AttentionNet(CTRModel):
    """Attention-Net: layers of top-k self-attention over the fields, then an MLP.

    `logit = MLP(concat(TopKSelfAttention(... TopKSelfAttention(E))))`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        embedding_dim: int. Width d of a field's embedding. Defaults to 32, as in the paper.
        layers: int. Number l of attention layers. Defaults to 3, as in the paper.
        heads: int. Number h of heads; must divide d. Defaults to 4, as in the paper.
        top_k: int. Number k of fields that a field attends to; None for plain attention. Defaults to 5, as in the
            paper.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (600, 400), the paper's widths for
            Criteo; for Avazu the paper uses (400, 200).
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = AttentionNet(feature_map, embedding_dim=8, layers=2, heads=2, top_k=1, hidden_units=(4,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, `layers` is not positive, or `heads` does not divide d.

    References:
        "Learning Representations of Categorical Feature Combinations via Self-Attention", section 3.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int = 32,
        layers: int = 3,
        heads: int = 4,
        top_k: int | None = 5,
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("attention_net", feature_map)
        require_positive(layers=layers)
        if embedding_dim % heads:
            raise ValueError(f"`heads` should divide embedding_dim {embedding_dim}. Received: heads={heads}")
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.attention = [TopKSelfAttention(heads, top_k, name=f"attention_{index}") for index in range(layers)]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        for layer in self.attention:
            rows = layer(rows)
        return self.tower(self.flatten(rows, inputs), training=training)

    def attention_maps(self, inputs: Inputs) -> list[Tensor]:
        """Returns each layer's attention weights, (batch_size, heads, fields, fields)."""
        return attention_of(self.attention, self.rows(inputs))
