"""Product-based neural network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.ctr_model import CTRModel, require_fields
from models.feature_map import FeatureMap
from models.layers.inner_product import InnerProduct
from models.layers.kernel_product import KernelProduct
from models.layers.outer_product import OuterProduct
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor

_PRODUCTS = {"inner": InnerProduct, "outer": OuterProduct, "kernel": KernelProduct}


@keras.saving.register_keras_serializable(package="ctrpipe")
class PNN(CTRModel):
    """logit = MLP(concat(embeddings, products of pairs)).

    Args:
        feature_map: The description of the packed tensors.
        products: Any of `inner` (IPNN), `outer` (OPNN, superposed as in the paper) and `kernel` (DeepCTR's outer).
        hidden_units: Widths of the hidden layers.
        activation: Activation of the hidden layers.
        dropout: Rate after each hidden layer (0.5 in xDeepFM's comparison).
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        **options: See CTRModel.

    References:
        Qu et al., "Product-based Neural Networks for User Response Prediction", 2016.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        products: Sequence[str] = ("inner",),
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("pnn", feature_map)
        if not products or set(products) - set(_PRODUCTS):
            raise ValueError(f"`products` should be some of {sorted(_PRODUCTS)}. Received: products={products}")
        super().__init__(feature_map, **options)
        self.products = [_PRODUCTS[product](name=product) for product in products]
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        parts = [self.flatten(rows, inputs), *[product(rows) for product in self.products]]
        return self.tower(ops.concatenate(parts, axis=1), training=training)
