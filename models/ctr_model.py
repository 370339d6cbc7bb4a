"""What all models share: packed tensors in, logits out, and an embedding that a trainer can take over."""

import keras
from keras import ops

from models.feature_map import FeatureMap
from models.field_embedding import FieldEmbedding


class CTRModel(keras.Model):
    """table -> rows [N, F, d] -> interaction -> logits [N, tasks].

    `call` joins `rows` and `interact`; a trainer may call them apart, to gather and update the rows itself.

    Args:
        feature_map: The description of the packed tensors.
        embedding_dim: d, or 0 for a model without embeddings.
        embedding_stddev, embedding_l2: See FieldEmbedding.
        use_linear: Adds a weight per id and per dense feature (a logistic regression) to the logits.
        linear_l2: L2 of the linear part's rows.
        linear_rate: Factor on the linear part. Its weights start from zero, so that with Adam it multiplies their
            learning rate: a wide part wants larger steps than a deep one, which is why Wide&Deep trains it with an
            optimizer of its own.
        embedding_dropout: Rate of dropout on the embeddings, before the interaction.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        embedding_dim: int = 0,
        embedding_stddev: float = 0.001,
        embedding_l2: float = 0.0,
        use_linear: bool = False,
        linear_l2: float = 0.0,
        embedding_dropout: float = 0.0,
        linear_rate: float = 1.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.feature_map = feature_map
        self.tasks = len(feature_map.tasks)
        self.linear_rate = linear_rate
        self.table = self.linear = self.linear_dense = None
        if embedding_dim and feature_map.fields:
            self.table = FieldEmbedding(feature_map, embedding_dim, embedding_stddev, embedding_l2, name="embedding")
        self.embedding_drop = keras.layers.Dropout(embedding_dropout) if embedding_dropout else None
        if use_linear:
            if feature_map.fields:
                self.linear = FieldEmbedding(feature_map, self.tasks, stddev=0.0, l2=linear_l2, name="linear")
            self.linear_dense = keras.layers.Dense(self.tasks, kernel_initializer="zeros", name="linear_dense")

    def rows(self, inputs):
        """ids (batch_size, slots) -> (batch_size, fields, embedding_dim)."""
        return self.table(inputs["ids"])

    def interact(self, rows, inputs, training=None):
        """The interaction of the rows: logits (batch_size, tasks). A subclass's own part."""
        raise NotImplementedError

    def call(self, inputs, training=None):
        """Packed tensors -> logits float32 (batch_size, tasks)."""
        rows = self.rows(inputs) if self.table else None
        if self.embedding_drop:
            rows = self.embedding_drop(rows, training=training)
        logits = ops.cast(self.interact(rows, inputs, training=training), "float32")
        return logits + self.linear_logits(inputs) if self._has_linear else logits

    @property
    def _has_linear(self) -> bool:
        return self.linear is not None or self.linear_dense is not None

    def linear_logits(self, inputs):
        """The linear part's logits, float32 (batch_size, tasks)."""
        batch = ops.shape(inputs["ids" if "ids" in inputs else "dense"])[0]
        dense = inputs["dense"] if "dense" in inputs else ops.zeros((batch, 1))
        logits = ops.cast(self.linear_dense(dense), "float32")
        if self.linear:
            logits = logits + ops.sum(ops.cast(self.linear(inputs["ids"]), "float32"), axis=1)
        return self.linear_rate * logits

    def predict_probabilities(self, inputs):
        """Packed tensors -> probabilities float32 (batch_size, tasks)."""
        return ops.sigmoid(self(inputs, training=False))

    @staticmethod
    def flatten(rows, inputs):
        """Embeddings and dense features side by side, (batch_size, width)."""
        parts = [] if rows is None else [ops.reshape(rows, (-1, rows.shape[1] * rows.shape[2]))]
        if "dense" in inputs:
            parts.append(ops.cast(inputs["dense"], parts[0].dtype if parts else "float32"))
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
