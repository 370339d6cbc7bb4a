"""QNN-alpha: quadratic neural network."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_one_rate, require_positive
from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import WEIGHT, FeatureMap
from ctrpipe.models.base.losses import logit_of, mean_cross_entropy
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.quadratic_layer import QuadraticLayer


@keras.saving.register_keras_serializable(package="ctrpipe")
class QNN(CTRModel):
    """QNN-α: quadratic layers, which learn from the mean prediction of two passes with different dropout.

    `x_{l+1} = dropout(x̃_l ∘ Σ_r h_r(x_l) + x_l)`, `logit = wᵀ x_L + b`. In training, the model is computed twice; the
    prediction is the mean p of both probabilities, and the loss includes the cross-entropies of both against p as a
    constant (self-ensemble).

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        layers: int. Number of quadratic layers. Defaults to 3.
        heads: int. Number of heads; must divide `embedding_dim`. Defaults to 1.
        products: int. Number of products per layer. Defaults to 2.
        dropout: float. Dropout rate of the products and after each layer. Defaults to 0.1.
        self_ensemble: bool. Whether the training has two passes. Without dropout they would be equal. Defaults to True.
        normalization: str. "batch", "layer" or "none": normalisation of the products. Defaults to "none".
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = QNN(feature_map, embedding_dim=4, layers=2, heads=2)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, a size is not positive, or `heads` does not divide `embedding_dim`.

    References:
        Li et al., "Revisiting Feature Interactions from the Perspective of Quadratic Neural Networks for Click-through
        Rate Prediction", 2025.
    """

    embeds_dense = True
    reads_labels = True  # for the weights
    own_loss = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        heads: int = 1,
        products: int = 2,
        dropout: float = 0.1,
        self_ensemble: bool = True,
        normalization: str = "none",
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        require_fields("qnn", feature_map)
        require_positive(layers=layers, heads=heads)
        require_one_rate(dropout)
        if embedding_dim % heads:
            raise ValueError(f"`heads` should divide `embedding_dim`. Received: {heads} and {embedding_dim}")
        if options.get("normalization_place", "before") != "before":
            raise ValueError("qnn normalises before the activation; remove `normalization_place`")
        super().__init__(feature_map, embedding_dim=embedding_dim, normalization=normalization, **options)
        fields = len(feature_map.fields) + len(feature_map.dense)
        self.self_ensemble = bool(self_ensemble and dropout)
        self.quadratic = [
            QuadraticLayer(fields, heads, products, normalization, dropout, name=f"quadratic_{index}")
            for index in range(layers)
        ]
        self.drop = keras.layers.Dropout(dropout) if dropout else None
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x = self.flatten(rows, inputs)
        if not (training and self.self_ensemble):
            return self._logits(x, training)
        each = [self._logits(x, training) for _ in range(2)]
        probability = 0.5 * (ops.sigmoid(each[0]) + ops.sigmoid(each[1]))
        target = ops.stop_gradient(probability)
        self.add_loss(sum(mean_cross_entropy(target, one, inputs.get(WEIGHT)) for one in each))
        return logit_of(probability)

    def _logits(self, x: Tensor, training: bool | None) -> Tensor:
        for layer in self.quadratic:
            x = layer(x, training=training)
            if self.drop is not None:
                x = self.drop(x, training=training)
        return ops.cast(self.logit(x), "float32")
