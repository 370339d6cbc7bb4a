"""Base class of the models in Hiformer's comparison, which attend over tokens of features and tasks."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, batch_size
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.layers.tower import Tower


class TokenModel(CTRModel):
    """Base class that creates tokens: one per field, some for all dense features together, one per task.

    `tokens = [fields; dense tokens; task tokens]`. The docstring of AutoInt has an example of a subclass.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        embedding_dim: int. Width d of every token.
        dense_tokens: int. Number n_D of tokens that an MLP computes from all dense features.
        dense_units: sequence of int. Widths of that MLP's hidden layers.
        task_tokens: bool. Whether each task has a learned token.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of that MLP.
        **options: Options of CTRModel.

    References:
        Gui et al., "Hiformer", 2023, sections 3.1.1 and 3.1.2.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int,
        dense_tokens: int,
        dense_units: Sequence[int],
        task_tokens: bool,
        l2: float,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.dim = embedding_dim
        self.dense_tokens = dense_tokens if feature_map.dense else 0
        self.dense_mlp = None
        if self.dense_tokens:
            self.dense_mlp = Tower(dense_units, dense_tokens * embedding_dim, "relu", 0.0, l2, name="dense_mlp")
        self.has_task_tokens = task_tokens

    def build(self, input_shape: Shape | None = None) -> None:
        if self.has_task_tokens:
            initializer = keras.initializers.RandomNormal(stddev=0.02)
            shape = (self.tasks, self.dim)
            self.task_tokens = self.add_weight(name="task_tokens", shape=shape, initializer=initializer)

    def tokens(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        """Returns the tokens of fields, dense features and tasks, (batch_size, L, embedding_dim)."""
        parts = [] if rows is None else [rows]
        if self.dense_mlp is not None:
            dense = self.dense_mlp(inputs["dense"], training=training)
            parts.append(ops.reshape(dense, (-1, self.dense_tokens, self.dim)))
        if self.has_task_tokens:
            shape = (batch_size(inputs), self.tasks, self.dim)
            parts.append(ops.broadcast_to(ops.cast(self.task_tokens, parts[0].dtype), shape))
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
