"""AutoInt and AutoInt+."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import attention_of, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.base.token_model import TokenModel
from ctrpipe.models.layers.interacting_layer import InteractingLayer


@keras.saving.register_keras_serializable(package="ctrpipe")
class AutoInt(TokenModel):
    """AutoInt: interacting layers of self-attention over the fields; with `deep_units`, AutoInt+.

    `logit = wᵀ concat(InteractingLayer(... InteractingLayer(E))) + b`, plus an MLP on the embeddings.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        layers: int. Number of interacting layers. Defaults to 3.
        attention_dim: int. Width of all heads together. Defaults to 64.
        heads: int. Number of heads. Defaults to 2.
        use_residual: bool. Whether an interacting layer adds W_res e_i to its output. Defaults to True.
        scaled: bool. Whether attention scores are divided by the square root of a head's width; the paper does not
            scale. Defaults to False.
        hidden_units: sequence of int. Widths of an MLP on the attended fields, as in Hiformer's comparison; () for a
            linear layer, as in the paper. Defaults to ().
        embedding_dim: int. Width of an embedding. Defaults to 16.
        dense_tokens: int. Number of tokens that an MLP computes from all dense features, as in Hiformer's comparison; 0
            for one embedding x_d v_d per dense feature, as in the paper. Defaults to 0.
        dense_units: sequence of int. Widths of that MLP's hidden layers. Defaults to (128,).
        task_tokens: bool. Whether to add a learned token per task to the attended rows, as in Hiformer's comparison.
            Defaults to False.
        deep_units: sequence of int. Widths of an MLP on the embeddings (AutoInt+); () for none. Defaults to ().
        activation: str. Activation of both MLPs. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer of both MLPs. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of both MLPs. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = AutoInt(feature_map, embedding_dim=4, layers=2, attention_dim=6, deep_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, or `layers` is not positive.

    References:
        Song et al., "AutoInt: Automatic Feature Interaction Learning via Self-Attentive Neural Networks", 2019.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        attention_dim: int = 64,
        heads: int = 2,
        use_residual: bool = True,
        scaled: bool = False,
        hidden_units: Sequence[int] = (),
        embedding_dim: int = 16,
        dense_tokens: int = 0,
        dense_units: Sequence[int] = (128,),
        task_tokens: bool = False,
        deep_units: Sequence[int] = (),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("autoint", feature_map)
        require_positive(layers=layers)
        self.embeds_dense = not dense_tokens
        tokens: dict[str, Any] = {"dense_tokens": dense_tokens, "dense_units": dense_units, "task_tokens": task_tokens}
        super().__init__(feature_map, embedding_dim=embedding_dim, l2=l2, **tokens, **options)
        self.attention = [
            InteractingLayer(attention_dim, heads, use_residual, scaled, name=f"attention_{index}")
            for index in range(layers)
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")
        self.deep = self.mlp(deep_units, self.tasks, activation, dropout, l2, name="deep") if deep_units else None

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        encoded = self.tokens(rows, inputs, training)
        for layer in self.attention:
            encoded = layer(encoded)
        encoded = ops.reshape(encoded, (-1, encoded.shape[1] * encoded.shape[2]))
        logits = self.tower(encoded, training=training)
        if self.deep is None:
            return logits
        return logits + self.deep(self.flatten(rows, inputs), training=training)

    def attention_maps(self, inputs: Inputs) -> list[Tensor]:
        """Returns each layer's attention weights, (batch_size, heads, rows, rows)."""
        return attention_of(self.attention, self.tokens(self.rows(inputs), inputs))
