"""MaskNet."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.field_normalization import FieldNormalization
from ctrpipe.models.layers.mask_block import MaskBlock
from ctrpipe.models.layers.tower import rates_of_layers


@keras.saving.register_keras_serializable(package="ctrpipe")
class MaskNet(CTRModel):
    """MaskNet: layers whose inputs are multiplied by masks computed from all features.

    "serial": `h_l = MaskBlock_l(x, h_{l-1})`, `logit = wᵀ h_L + b`. "parallel": `logit = MLP([MaskBlock_1(x, h_0), ...,
    MaskBlock_n(x, h_0)])`. x is the concatenated embeddings, and h_0 the embeddings after their layer normalisation.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        structure: str. "serial" or "parallel". Defaults to "serial".
        hidden_units: sequence of int. Widths of the serial blocks, or of the MLP of the parallel ones. Defaults to (64,
            64, 64).
        blocks: int. Number of parallel blocks. Defaults to 3.
        block_units: int. Width of each parallel block. Defaults to 64.
        reduction: float. Width of a mask's hidden layer, divided by the width of the mask. Defaults to 1.
        normalises: bool. Whether embeddings and blocks have layer normalisation. Defaults to True.
        activation: str. Activation of the blocks and of the MLP. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each serial block, or of the MLP and, if it is one rate,
            of the parallel blocks. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = MaskNet(feature_map, embedding_dim=4, structure="parallel", blocks=2, block_units=6)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, `structure` is unknown, a size is not positive, or a serial network has no
            block.

    References:
        Wang et al., "MaskNet: Introducing Feature-Wise Multiplication to CTR Ranking Models by Instance-Guided Mask",
        2021.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        structure: str = "serial",
        hidden_units: Sequence[int] = (64, 64, 64),
        blocks: int = 3,
        block_units: int = 64,
        reduction: float = 1.0,
        normalises: bool = True,
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("mask_net", feature_map)
        require_positive(blocks=blocks, block_units=block_units)
        if structure not in ("serial", "parallel"):
            raise ValueError(f"`structure` should be 'serial' or 'parallel'. Received: structure={structure!r}")
        if structure == "serial" and not hidden_units:
            raise ValueError("`hidden_units` should have a width for each serial block. Received: hidden_units=()")
        super().__init__(feature_map, **options)
        self.structure = structure
        self.norm = FieldNormalization(name="norm") if normalises else None
        of_blocks = (reduction, activation, normalises)
        if structure == "serial":
            rates = rates_of_layers(dropout, hidden_units)
            each = zip(hidden_units, rates, strict=True)
            self.blocks = [
                MaskBlock(units, *of_blocks, rate, name=f"block_{index}") for index, (units, rate) in enumerate(each)
            ]
            self.logit = keras.layers.Dense(self.tasks, name="logit")
        else:
            rate = dropout if isinstance(dropout, int | float) else 0.0
            self.blocks = [MaskBlock(block_units, *of_blocks, rate, name=f"block_{index}") for index in range(blocks)]
            self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x = self.flatten(rows, inputs)
        states = x if self.norm is None else self.flatten(self.norm(rows), inputs)
        if self.structure == "parallel":
            outputs = [block(x, states, training=training) for block in self.blocks]
            return self.tower(ops.concatenate(outputs, axis=1), training=training)
        for block in self.blocks:
            states = block(x, states, training=training)
        return self.logit(states)
