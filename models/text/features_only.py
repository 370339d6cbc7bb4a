"""The features of BERT4CTR, without the text."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.text.text_model import feature_rows, position_rows, position_term


@keras.saving.register_keras_serializable(package="ctrpipe")
class FeaturesOnly(CTRModel):
    """BERT4CTR without its text, to pretrain the layers on the features.

    `logit = MLP(relu(W concat(features) + b)) + position term`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors; a text is not used.
        embedding_dim: int. Width N of a feature's embedding. Defaults to 32.
        token_dim: int. Width K of a feature token. Defaults to 512, as in the paper.
        feature_tokens: int. Number of tokens, each of width K, that all features are reduced to. Defaults to 1, as in
            the paper.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (256,).
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FeaturesOnly(feature_map, embedding_dim=4, token_dim=6, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `feature_tokens` is not positive.

    References:
        Wang et al., "BERT4CTR", 2023, sections 3.2.3 and 3.2.4.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int = 32,
        token_dim: int = 512,
        feature_tokens: int = 1,
        hidden_units: Sequence[int] = (256,),
        dropout: float | Sequence[float] = 0.0,
        **options: Any,
    ) -> None:
        require_positive(feature_tokens=feature_tokens)
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.reduce = keras.layers.Dense(feature_tokens * token_dim, activation="relu", name="reduce")
        self.tower = self.mlp(hidden_units, self.tasks, "relu", dropout, name="tower")
        self.position = position_term(feature_map, self.tasks)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        logits = self.tower(self.reduce(feature_rows(rows, inputs, self.feature_map)), training=training)
        return logits if self.position is None else logits + self.position(position_rows(rows, self.feature_map))

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        return {"embedding": self.table, "reduce": self.reduce}
