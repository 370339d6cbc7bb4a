"""FinalNet: factorized interaction layers in one or two blocks."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import WEIGHT, FeatureMap
from ctrpipe.models.base.losses import mean_cross_entropy
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.factorized_block import FactorizedBlock
from ctrpipe.models.layers.feature_gating import FeatureGating


@keras.saving.register_keras_serializable(package="ctrpipe")
class FinalNet(CTRModel):
    """FinalNet: blocks of factorized interaction layers that learn from their common prediction.

    `logit = (z_1 + z_2) / 2` with `z_b = w_bᵀ Block_b(E) + c_b`; with one block, `z_1`. With two, the training adds the
    cross-entropies of sigmoid(z_1) and sigmoid(z_2) against the prediction of both as a constant (two-block loss).

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        blocks: int. Number of blocks, 1 or 2. Defaults to 2.
        gating: bool. Whether the first block also reads the embeddings' products with a gate. Defaults to False.
        residual: str. "concat" or "sum": how a layer joins its linear half with the products. Defaults to "concat".
        hidden_units: sequence of int. Widths of the first block. Defaults to (64, 64, 64).
        second_units: sequence of int. Widths of the second block. Defaults to (64, 64, 64).
        activation: str. Activation of both blocks. Defaults to "linear".
        dropout: float or sequence of float. Dropout rate after each layer of the first block. Defaults to 0.
        second_dropout: float. Dropout rate of the second block. Defaults to 0.
        normalization: str. "batch", "layer" or "none". Defaults to "batch", as in the paper.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FinalNet(feature_map, embedding_dim=4, hidden_units=(8, 8), second_units=(6,))
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, `blocks` is neither 1 nor 2, a block has no layer, or an option is invalid.

    References:
        Zhu et al., "FINAL: Factorized Interaction Layer for CTR Prediction", 2023.
    """

    embeds_dense = True
    reads_labels = True  # for the weights
    own_loss = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        blocks: int = 2,
        gating: bool = False,
        residual: str = "concat",
        hidden_units: Sequence[int] = (64, 64, 64),
        second_units: Sequence[int] = (64, 64, 64),
        activation: str = "linear",
        dropout: float | Sequence[float] = 0.0,
        second_dropout: float = 0.0,
        normalization: str = "batch",
        **options: Any,
    ) -> None:
        require_fields("final_net", feature_map)
        if blocks not in (1, 2):
            raise ValueError(f"`blocks` should be 1 or 2. Received: blocks={blocks}")
        if options.get("normalization_place", "before") != "before":
            raise ValueError("final_net normalises before the activation; remove `normalization_place`")
        super().__init__(feature_map, normalization=normalization, **options)
        self.gating = FeatureGating(name="gating") if gating else None
        settings = ((hidden_units, dropout), (second_units, second_dropout))[:blocks]
        self.blocks = [
            FactorizedBlock(units, activation, rates, normalization, residual, name=f"block_{number}")
            for number, (units, rates) in enumerate(settings)
        ]
        self.logits = [keras.layers.Dense(self.tasks, name=f"logit_{number}") for number in range(blocks)]

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        flat = self.flatten(rows, inputs)
        read = [flat if self.gating is None else self.flatten(self.gating(rows), inputs), flat]
        each = [
            ops.cast(logit(block(x, training=training)), "float32")
            for logit, block, x in zip(self.logits, self.blocks, read, strict=False)
        ]
        if len(each) == 1:
            return each[0]
        logits = 0.5 * (each[0] + each[1])
        if training:
            target = ops.stop_gradient(ops.sigmoid(logits))
            self.add_loss(sum(mean_cross_entropy(target, one, inputs.get(WEIGHT)) for one in each))
        return logits

    def output_biases(self) -> list[keras.Variable]:
        return super().output_biases() if self.linear_dense is not None else [logit.bias for logit in self.logits]
