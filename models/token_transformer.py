"""What the Transformer, Transformer+PE, HeteroAtt and Hiformer share: tokens in, task tokens out."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.ctr_model import CTRModel, attention_of, batch_size, require_layers
from models.feature_map import FeatureMap
from models.layers.encoder_layer import EncoderLayer
from models.layers.tower import Tower
from models.tensors import Inputs, Shape, Tensor


class TokenTransformer(CTRModel):
    """Tokens of the fields, of the dense features and of the tasks -> encoder layers -> a tower per task token.

    Args:
        feature_map: The description of the packed tensors.
        embedding_dim: d, of every token (paper: 128).
        layers: Number of encoder layers.
        heads: H (paper: 4).
        key_dim, value_dim: d_k and d_v of one head (paper: 16 and 64).
        ffn_dim: d_f (paper: 512).
        dense_tokens: n_D, how many tokens an MLP makes of all dense features.
        dense_units: Widths of that MLP's hidden layers.
        hidden_units: Widths of the towers' hidden layers.
        prune: In the last layer only the task tokens are queries, which changes no output.
        dropout: Rate in the encoder layers and the towers.
        l2: λ of λ/2·‖W‖² on the kernels of the MLPs.
        **options: See CTRModel.

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
        require_layers(layers)
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.dim = embedding_dim
        self.dense_tokens = dense_tokens if feature_map.dense else 0
        self.dense_mlp = None
        if self.dense_tokens:
            self.dense_mlp = Tower(dense_units, dense_tokens * embedding_dim, "relu", 0.0, l2, name="dense_mlp")
        sizes = {"heads": heads, "key_dim": key_dim, "value_dim": value_dim, "ffn_dim": ffn_dim, "dropout": dropout}
        self.encoder = [
            EncoderLayer(
                self.projection,
                queries=self.tasks if prune and index == layers - 1 else None,
                name=f"encoder_{index}",
                **sizes,
                **self.ranks(),
            )
            for index in range(layers)
        ]
        self.towers = [Tower(hidden_units, 1, "relu", dropout, l2, name=f"tower_{task}") for task in feature_map.tasks]

    def ranks(self) -> dict[str, int | None]:
        """The encoder layers' ranks, where they have any."""
        return {}

    def build(self, input_shape: Shape | None = None) -> None:
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        self.task_tokens = self.add_weight(name="task_tokens", shape=(self.tasks, self.dim), initializer=initializer)

    def tokens(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        """Fields, dense tokens, task tokens: (batch_size, L, embedding_dim)."""
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
        """Each layer's attention, (batch_size, heads, queries, L); task tokens are the last."""
        return attention_of(self.encoder, self.tokens(self.rows(inputs), inputs))
