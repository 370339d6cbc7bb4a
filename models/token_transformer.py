"""The base class of the Transformer, Transformer+PE, HeteroAtt and Hiformer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.checks import require_positive
from models.ctr_model import CTRModel, attention_of, batch_size
from models.feature_map import FeatureMap
from models.layers.encoder_layer import EncoderLayer
from models.layers.tower import Tower
from models.tensors import Inputs, Shape, Tensor


class TokenTransformer(CTRModel):
    """Base class of the Transformers over features, which return a logit for every task token.

    `tokens = [fields; dense tokens; task tokens]`, then EncoderLayers, then `logit_t = Tower_t(token of task t)`. A
    subclass sets `projection` (see EncoderLayer); the docstring of Transformer has an example.

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
        prune: bool. Whether the last layer computes only the task tokens, which does not change the logits. Defaults to
            True.
        dropout: float. Rate in the encoder layers and the towers. Defaults to 0.
        l2: float. λ of the penalty λ/2·‖W‖² on the kernels of the MLPs. Defaults to 0.
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
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.dim = embedding_dim
        self.dense_tokens = dense_tokens if feature_map.dense else 0
        self.dense_mlp = None
        if self.dense_tokens:
            self.dense_mlp = Tower(dense_units, dense_tokens * embedding_dim, "relu", 0.0, l2, name="dense_mlp")
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
        self.towers = [Tower(hidden_units, 1, "relu", dropout, l2, name=f"tower_{task}") for task in feature_map.tasks]

    def ranks(self) -> dict[str, int | None]:
        """Returns the ranks of the encoder layers' projections, as arguments of EncoderLayer."""
        return {}

    def build(self, input_shape: Shape | None = None) -> None:
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        self.task_tokens = self.add_weight(name="task_tokens", shape=(self.tasks, self.dim), initializer=initializer)

    def tokens(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        """Returns the tokens of fields, dense features and tasks, (batch_size, L, embedding_dim)."""
        parts = [] if rows is None else [rows]
        if self.dense_mlp is not None:
            dense = self.dense_mlp(inputs["dense"], training=training)
            parts.append(ops.reshape(dense, (-1, self.dense_tokens, self.dim)))
        shape = (batch_size(inputs), self.tasks, self.dim)
        tasks = ops.broadcast_to(ops.cast(self.task_tokens, parts[0].dtype), shape)
        return ops.concatenate([*parts, tasks], axis=1)

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
        """Returns each layer's attention, (batch_size, heads, queries, L); task tokens are the last."""
        return attention_of(self.encoder, self.tokens(self.rows(inputs), inputs))
