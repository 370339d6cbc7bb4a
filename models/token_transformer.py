"""Base class of the Transformer, Transformer+PE, HeteroAtt and Hiformer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_one_rate, require_positive
from ctrpipe.models.base.ctr_model import attention_of
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.base.token_model import TokenModel
from ctrpipe.models.layers.encoder_layer import EncoderLayer


class TokenTransformer(TokenModel):
    """Base class of the Transformers over features, which return one logit per task token.

    TokenModel creates the tokens, EncoderLayers transform them, and `logit_t = Tower_t(token of task t)`. A subclass
    sets `projection` (see EncoderLayer); the docstring of Transformer has an example.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        embedding_dim: int. Width d of every token. Defaults to 128, as in the paper.
        layers: int. Number of encoder layers. Defaults to 1.
        heads: int. Number H of heads. Defaults to 4, as in the paper.
        key_dim: int. Width d_k of a head's queries and keys. Defaults to 16, as in the paper.
        value_dim: int. Width d_v of a head's values. Defaults to 64, as in the paper.
        ffn_dim: int. Width d_f of the feed-forward networks' hidden layer. Defaults to 512, as in the paper.
        dense_tokens: int. Number n_D of tokens that an MLP computes from all dense features. Defaults to 2.
        dense_units: sequence of int. Widths of that MLP's hidden layers. Defaults to (128,).
        hidden_units: sequence of int. Widths of the towers' hidden layers. Defaults to (128,).
        prune: bool. Whether the last layer computes only the task tokens. This does not change the logits. Defaults to
            True.
        dropout: float. Dropout rate in the encoder layers and the towers. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of the MLPs. Defaults to 0.
        **options: Options of CTRModel.

    Raises:
        ValueError: `layers` is not positive.

    References:
        Gui et al., "Hiformer", 2023, section 3.
    """

    projection = ""

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int = 128,
        layers: int = 1,
        heads: int = 4,
        key_dim: int = 16,
        value_dim: int = 64,
        ffn_dim: int = 512,
        dense_tokens: int = 2,
        dense_units: Sequence[int] = (128,),
        hidden_units: Sequence[int] = (128,),
        prune: bool = True,
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(layers=layers)
        require_one_rate(dropout)
        tokens: dict[str, Any] = {"dense_tokens": dense_tokens, "dense_units": dense_units, "task_tokens": True}
        super().__init__(feature_map, embedding_dim=embedding_dim, l2=l2, **tokens, **options)
        sizes: dict[str, Any] = {"heads": heads, "key_dim": key_dim, "value_dim": value_dim, "ffn_dim": ffn_dim}
        sizes |= {"dropout": dropout, **self.ranks()}
        self.encoder = [
            EncoderLayer(
                self.projection,
                queries=self.tasks if prune and index == layers - 1 else None,
                name=f"encoder_{index}",
                **sizes,
            )
            for index in range(layers)
        ]
        self.towers = [
            self.mlp(hidden_units, 1, "relu", dropout, l2, name=f"tower_{task}") for task in feature_map.tasks
        ]

    def ranks(self) -> dict[str, int | None]:
        """Returns the ranks of the encoder layers' projections, as arguments of EncoderLayer."""
        return {}

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        tokens = self.tokens(rows, inputs, training)
        for layer in self.encoder:
            tokens = layer(tokens, training=training)
        tasks = tokens[:, -self.tasks :]
        logits = [tower(tasks[:, index], training=training) for index, tower in enumerate(self.towers)]
        return ops.concatenate(logits, axis=1)

    def output_biases(self) -> list[keras.Variable]:
        if self.linear_dense is not None:
            return super().output_biases()
        return [tower.logits.bias for tower in self.towers if tower.logits is not None]

    def attention_maps(self, inputs: Inputs) -> list[Tensor]:
        """Returns each layer's attention weights, (batch_size, heads, queries, L); the task tokens are last."""
        return attention_of(self.encoder, self.tokens(self.rows(inputs), inputs))
