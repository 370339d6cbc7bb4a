"""Fusing cross network (FCN, DCNv3)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import LABEL, WEIGHT, FeatureMap
from ctrpipe.models.base.losses import mean_cross_entropy
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.masked_cross import MaskedCross


@keras.saving.register_keras_serializable(package="ctrpipe")
class FCN(CTRModel):
    """Fusing cross network: an exponential and a linear cross network, without an MLP.

    `logit = (z_E + z_L) / 2` with `x_{l+1} = x_l ∘ ([c_l, c_l ∘ mask_l] + b_l) + x_l` in the exponential network (ECN)
    and `x_0` as the first factor in the linear one (LCN). Each z is the mean over heads of a linear layer. The training
    adds the Tri-BCE loss `max(0, L_E - L) L_E + max(0, L_L - L) L_L` of the two networks' own logits.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        exponential_layers: int. Number of layers of the exponential network. Defaults to 4.
        linear_layers: int. Number of layers of the linear network. Defaults to 4.
        heads: int. Number of heads that the embeddings are cut into. Defaults to 1.
        normalises: bool. Whether the masks have layer normalisation. Defaults to True.
        exponential_dropout: float. Dropout rate after each layer of the exponential network. Defaults to 0.1.
        linear_dropout: float. Dropout rate after each layer of the linear network. Defaults to 0.3.
        tri_bce: bool. Whether each network has a loss of its own. Defaults to True.
        embedding_dim: int. Width of an embedding over all heads; must be divisible by 2 `heads`. Defaults to 16.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FCN(feature_map, embedding_dim=8, heads=2, exponential_layers=2)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, a number of layers is not positive, or `embedding_dim` does not fit `heads`.

    References:
        Li et al., "FCN: Fusing Exponential and Linear Cross Network for Click-Through Rate Prediction", 2024 (at first
        "DCNv3").
    """

    embeds_dense = True
    reads_labels = True
    own_loss = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        exponential_layers: int = 4,
        linear_layers: int = 4,
        heads: int = 1,
        normalises: bool = True,
        exponential_dropout: float = 0.1,
        linear_dropout: float = 0.3,
        tri_bce: bool = True,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        require_fields("fcn", feature_map)
        require_positive(exponential_layers=exponential_layers, linear_layers=linear_layers, heads=heads)
        if embedding_dim % (2 * heads):
            raise ValueError(f"`embedding_dim` should be divisible by 2 heads = {2 * heads}. Received: {embedding_dim}")
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.heads = heads
        self.tri_bce = tri_bce
        self.exponential = [
            MaskedCross(normalises, exponential_dropout, name=f"exponential_{index}")
            for index in range(exponential_layers)
        ]
        self.linear_crosses = [
            MaskedCross(normalises, linear_dropout, name=f"linear_{index}") for index in range(linear_layers)
        ]
        self.exponential_logit = keras.layers.Dense(self.tasks, name="exponential_logit")
        self.linear_logit = keras.layers.Dense(self.tasks, name="linear_logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        fields, width = rows.shape[1], rows.shape[2] // self.heads
        split = ops.reshape(rows, (-1, fields, self.heads, 2, width // 2))
        # In each head, the first halves of all embeddings, then the second halves.
        x0 = ops.reshape(ops.transpose(split, (0, 2, 3, 1, 4)), (-1, self.heads, fields * width))
        x = x0
        for layer in self.exponential:
            x = layer(x, x, training=training)
        of_exponential = ops.mean(self.exponential_logit(x), axis=1)
        x = x0
        for layer in self.linear_crosses:
            x = layer(x0, x, training=training)
        of_linear = ops.mean(self.linear_logit(x), axis=1)
        logits = 0.5 * (of_exponential + of_linear)
        if training and self.tri_bce and LABEL in inputs:
            self.add_loss(self._of_networks(logits, of_exponential, of_linear, inputs))
        return logits

    def _of_networks(self, logits: Tensor, of_exponential: Tensor, of_linear: Tensor, inputs: Inputs) -> Tensor:
        """Returns the part of the Tri-BCE loss that the two networks add to the model's own loss."""
        whole, *own = (
            mean_cross_entropy(inputs[LABEL], each, inputs.get(WEIGHT)) for each in (logits, of_exponential, of_linear)
        )
        return sum(ops.relu(loss - whole) * loss for loss in own)

    def output_biases(self) -> list[keras.Variable]:
        if self.linear_dense is not None:
            return super().output_biases()
        return [self.exponential_logit.bias, self.linear_logit.bias]
