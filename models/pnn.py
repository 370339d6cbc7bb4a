"""Product-based neural network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.inner_product import InnerProduct
from ctrpipe.models.layers.kernel_product import KernelProduct
from ctrpipe.models.layers.outer_product import OuterProduct

_PRODUCTS: dict[str, type[keras.layers.Layer]] = {"inner": InnerProduct, "outer": OuterProduct, "kernel": KernelProduct}


@keras.saving.register_keras_serializable(package="ctrpipe")
class PNN(CTRModel):
    """Product-based neural network: an MLP on the embeddings and the products of their pairs.

    `logit = MLP(concat(E, products(E)))`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        products: sequence of str. Any of "inner" (IPNN), "outer" (OPNN, superposed as in the paper) and "kernel"
            (DeepCTR's outer product). Defaults to ("inner",).
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (600, 400).
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = PNN(feature_map, embedding_dim=4, products=("inner", "outer"), hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, or a product is unknown.

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
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("pnn", feature_map)
        if not products or set(products) - set(_PRODUCTS):
            raise ValueError(f"`products` should be some of {sorted(_PRODUCTS)}. Received: products={products}")
        super().__init__(feature_map, **options)
        self.products = [_PRODUCTS[product](name=product) for product in products]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        parts = [self.flatten(rows, inputs), *[product(rows) for product in self.products]]
        return self.tower(ops.concatenate(parts, axis=1), training=training)
