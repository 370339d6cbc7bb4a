"""Deep learning recommendation model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops
from keras_rs.layers import DotInteraction

from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.tower import Tower


@keras.saving.register_keras_serializable(package="ctrpipe")
class DLRM(CTRModel):
    """Deep learning recommendation model: inner products of all embeddings, then an MLP.

    `logit = MLP(concat(bottom, <e_i, e_j> for i < j))`. A bottom MLP computes the embedding `bottom` from the dense
    features. The products are the DotInteraction of keras-rs.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        bottom_units: sequence of int. Widths of the bottom MLP's hidden layers; its output has the width of an
            embedding. Defaults to (512, 256).
        hidden_units: sequence of int. Widths of the hidden layers of the top MLP. Defaults to (512, 256).
        activation: str. Activation of both MLPs. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer of the top MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of both MLPs. Defaults to 0.
        embedding_dim: int. Width of an embedding. Defaults to 16.
        **options: Options of CTRModel.

    Example:
        >>> fields = [("site", "categorical", 100), ("ad", "categorical", 50)]
        >>> feature_map = FeatureMap.from_sizes(fields, dense=("price",))
        >>> model = DLRM(feature_map, embedding_dim=4, bottom_units=(6,), hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]]), "dense": keras.ops.array([[0.5], [1.5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field.

    References:
        Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        bottom_units: Sequence[int] = (512, 256),
        hidden_units: Sequence[int] = (512, 256),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        require_fields("dlrm", feature_map)
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.bottom = None
        if feature_map.dense:
            self.bottom = Tower((*bottom_units, embedding_dim), None, activation, 0.0, l2, name="bottom")
        self.dot = DotInteraction(name="dot")
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        vectors = [rows[:, field] for field in range(rows.shape[1])]
        bottom = [self.bottom(inputs["dense"], training=training)] if self.bottom is not None else []
        return self.tower(ops.concatenate([*bottom, self.dot([*bottom, *vectors])], axis=1), training=training)
