"""Factorisation-machine supported neural network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.dense_embedding import DenseEmbedding


@keras.saving.register_keras_serializable(package="ctrpipe")
class FNN(CTRModel):
    """Factorisation-machine supported neural network: an MLP that starts from the weights of a trained FM.

    `logit = MLP(concat of (w_i, v_i) of all features)`. Training has two stages: first an FM with the same
    width and optimizer, then this model, starting from the FM's vectors v and weights w.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with one task.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (400, 400).
        activation: str. Activation of the hidden layers. Defaults to "tanh".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        use_linear: bool. Whether the weights w are inputs of the MLP. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FNN(feature_map, embedding_dim=4, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has several tasks.

    References:
        Zhang et al., "Deep Learning over Multi-field Categorical Data", 2016, section 3.1.
    """

    embeds_dense = True
    pretraining = ("fm",)

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (400, 400),
        activation: str = "tanh",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        require_one_task("fnn", feature_map)
        super().__init__(feature_map, use_linear=use_linear, **options)
        has_weights, widths = use_linear and feature_map.dense, feature_map.dense_widths
        self.dense_weights = DenseEmbedding(1, 0.0, widths, name="dense_weights") if has_weights else None
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def make_linear(self, l2: float) -> None:
        self.linear = self.weight_per_id(l2)  # `call` passes the weights to the MLP; nothing adds them to the logits

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        parts = [self.flatten(self.rows(inputs, training, gathered), inputs)]
        if self.linear is not None:
            weights = self.linear_weights(inputs, gathered)
            parts.append(ops.cast(self.linear_rate * weights[:, :, 0], parts[0].dtype))
        if self.dense_weights is not None:
            weighted = self.dense_weights(inputs["dense"])[:, :, 0]
            parts.append(ops.cast(self.linear_rate * weighted, parts[0].dtype))
        logits = ops.cast(self.tower(ops.concatenate(parts, axis=1), training=training), "float32")
        return self.answered(logits, training)

    def taken_weights(self, pretrained: CTRModel) -> dict[str, tuple[list[keras.Variable], list[keras.Variable]]]:
        taken = super().taken_weights(pretrained)
        if self.dense_weights is not None and pretrained.linear_dense is not None:
            taken["dense_weights"] = [self.dense_weights.vectors], [pretrained.linear_dense.kernel]
        return taken
