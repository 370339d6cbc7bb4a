"""What all models share: packed tensors in, logits out, and an embedding that a trainer can take over."""

import inspect
from typing import Any

import keras
import numpy as np
from keras import ops

from models.feature_map import FeatureMap
from models.layers.dense_embedding import DenseEmbedding
from models.layers.field_embedding import FieldEmbedding


class CTRModel(keras.Model):
    """table -> rows [N, F, d] -> interaction -> logits [N, tasks].

    `call` joins `rows` and `interact`. A subclass defines `interact`; its constructor names its own hyperparameters,
    and those of these whose default it changes, and passes the others on.

    Args:
        feature_map: The description of the packed tensors.
        embedding_dim: d, or 0 for a model without embeddings.
        embedding_stddev: Standard deviation of the initial embeddings.
        embedding_l2: λ on the embeddings that a row touches (see FieldEmbedding).
        embedding_dropout: Rate of dropout on the embeddings, before the interaction.
        use_linear: Adds a weight per id and per dense feature (a logistic regression) to the logits.
        linear_l2: λ on the linear part's weights that a row touches.
        linear_rate: Factor on the linear part. Its weights start from zero, so that with Adam it multiplies their
            learning rate: a wide part wants larger steps than a deep one, which is why Wide&Deep trains it with an
            optimizer of its own.
    """

    # Whether dense features become rows x_d v_d beside the fields, as in a factorisation machine. Otherwise they join
    # the flattened rows as they are.
    embeds_dense = False
    # Whether the data must have a text.
    needs_text = False
    # Whether the text is read apart from the features, so that rows may share it: tokens of one row beside many.
    shares_text = False
    # Whether padding behind a text changes the result.
    counts_padding = False
    # Whether the linear part is a part of the logit, as in all models but one.
    adds_linear = True
    # The models whose trained weights this one starts from (see `take_weights`), by their registry names.
    pretraining: tuple[str, ...] = ()

    def __new__(cls, *args, **hyperparameters):
        model = super().__new__(cls, *args, **hyperparameters)
        named = {key: value for key, value in hyperparameters.items() if key != "feature_map"}
        object.__setattr__(model, "_hyperparameters", named)
        return model

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int = 16,
        embedding_stddev: float = 0.001,
        embedding_l2: float = 0.0,
        embedding_dropout: float = 0.0,
        use_linear: bool = False,
        linear_l2: float = 0.0,
        linear_rate: float = 1.0,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.feature_map = feature_map
        self.tasks = len(feature_map.tasks)
        self.linear_rate = linear_rate
        self.table = self.dense_table = self.linear = self.linear_dense = None
        if embedding_dim and feature_map.fields:
            self.table = FieldEmbedding(feature_map, embedding_dim, embedding_stddev, embedding_l2, name="embedding")
        if embedding_dim and feature_map.dense and self.embeds_dense:
            self.dense_table = DenseEmbedding(embedding_dim, embedding_stddev, name="dense_embedding")
        self.embedding_drop = keras.layers.Dropout(embedding_dropout) if embedding_dropout else None
        if use_linear:
            if feature_map.fields:
                self.linear = FieldEmbedding(feature_map, self.tasks, stddev=0.0, l2=linear_l2, name="linear")
            if self.adds_linear:
                self.linear_dense = keras.layers.Dense(self.tasks, kernel_initializer="zeros", name="linear_dense")

    def rows(self, inputs, training=None, gathered=None):
        """ids (batch_size, slots) -> (batch_size, fields, embedding_dim); None for a model without embeddings.

        Where the model embeds dense features, their rows follow the fields'.
        """
        parts = [] if self.table is None else [self.table(inputs["ids"], gathered=(gathered or {}).get("embedding"))]
        if self.dense_table is not None:
            parts.append(self.dense_table(inputs["dense"]))
        if not parts:
            return None
        rows = ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
        return self.embedding_drop(rows, training=training) if self.embedding_drop else rows

    def interact(self, rows, inputs, training=None):
        """The interaction of the rows: logits (batch_size, tasks). A subclass's own part."""
        raise NotImplementedError

    def call(self, inputs, training=None, gathered=None):
        """Packed tensors -> logits float32 (batch_size, tasks).

        Args:
            inputs: `ids` int32 (batch_size, slots) and `dense` float32 (batch_size, features), where there are any;
                `tokens` and `segments` int32 (batch_size, T), or (1, T) where `shares_text`: the text of all rows.
            training: Whether dropout is on.
            gathered: Rows of the tables that the caller has gathered itself, (batch_size, slots, width) by the name of
                the layer: see FieldEmbedding.
        """
        rows = self.rows(inputs, training, gathered)
        logits = ops.cast(self.interact(rows, inputs, training=training), "float32")
        return logits + self.linear_logits(inputs, gathered) if self.linear_dense is not None else logits

    def linear_logits(self, inputs, gathered=None):
        """The linear part's logits, float32 (batch_size, tasks)."""
        batch = batch_size(inputs)
        dense = inputs["dense"] if "dense" in inputs else ops.zeros((batch, 1))
        logits = ops.cast(self.linear_dense(dense), "float32")
        if self.linear is not None:
            weights = self.linear(inputs["ids"], gathered=(gathered or {}).get("linear"))
            logits = logits + ops.sum(ops.cast(weights, "float32"), axis=1)
        return self.linear_rate * logits

    def tables(self) -> list[FieldEmbedding]:
        """The layers whose weights grow with the vocabulary."""
        return [table for table in (self.table, self.linear) if table is not None]

    def encoder_weights(self) -> list[keras.Variable]:
        """The trainable weights that a text's checkpoint gives."""
        return []

    def flatten(self, rows, inputs):
        """Embeddings and dense features side by side, (batch_size, width)."""
        parts = [] if rows is None else [ops.reshape(rows, (-1, rows.shape[1] * rows.shape[2]))]
        if "dense" in inputs and not self.embeds_dense:
            parts.append(ops.cast(inputs["dense"], parts[0].dtype if parts else "float32"))
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def output_biases(self) -> list[keras.Variable]:
        """Weights that are added to the logits of every row, side by side (tasks,); of a model that is built.

        Raises:
            ValueError: the model has none.
        """
        if self.linear_dense is not None:
            return [self.linear_dense.bias]
        for name in ("logit", "tower", "head"):
            layer = getattr(self, name, None)
            if layer is not None:
                return [getattr(layer, "logits", layer).bias]
        raise ValueError(f"{type(self).__name__} has no bias of its own without `use_linear=True`")

    def start_at(self, rates: np.ndarray) -> None:
        """Makes the output's bias the log-odds of `rates`, (tasks,): what is learned is then learned from there.

        Raises:
            ValueError: the model has no such bias.
        """
        rates = np.clip(rates, 1e-6, 1 - 1e-6)
        log_odds = np.log(rates / (1 - rates))
        if self.linear_dense is not None:
            log_odds = log_odds / self.linear_rate
        biases = self.output_biases()
        for bias, values in zip(biases, np.split(log_odds, len(biases)), strict=True):
            bias.assign(values)

    def take_weights(self, pretrained: "CTRModel") -> None:
        """Starts from a trained model that `pretraining` names: the weights that both have."""
        for mine, theirs in ((self.table, pretrained.table), (self.linear, pretrained.linear)):
            if mine is not None and theirs is not None:
                mine.table.assign(theirs.table)
        if self.dense_table is not None:
            self.dense_table.vectors.assign(pretrained.dense_table.vectors)

    def fold(self) -> None:
        """Computes in advance what depends on weights alone: for a model that is trained no further."""

    def get_config(self) -> dict[str, Any]:
        return {"feature_map": self.feature_map.to_json(), **self._hyperparameters}

    def build_from_config(self, config):
        # From shapes alone Keras would try ids of type float, fail, and load a .keras file without its weights.
        self(empty_row(self.feature_map))

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The hyperparameters and their defaults."""
        found: dict[str, Any] = {}
        for owner in cls.__mro__:
            parameters = inspect.signature(owner.__init__).parameters.values()
            for parameter in parameters:
                if parameter.default is not parameter.empty and parameter.name != "name":
                    found.setdefault(parameter.name, parameter.default)
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                break
        return found


def batch_size(inputs):
    """The number of rows of packed tensors, whichever of them there are."""
    return ops.shape(next(inputs[name] for name in ("ids", "dense", "tokens") if name in inputs))[0]


def empty_row(feature_map: FeatureMap) -> dict[str, np.ndarray]:
    """One row of packed tensors, all zero: it builds a model."""
    inputs: dict[str, np.ndarray] = {}
    if feature_map.fields:
        inputs["ids"] = np.zeros((1, feature_map.total_slots), np.int32)
    if feature_map.dense:
        inputs["dense"] = np.zeros((1, len(feature_map.dense)), np.float32)
    if feature_map.text:
        inputs |= {name: np.zeros((1, feature_map.text.length), np.int32) for name in ("tokens", "segments")}
    return inputs


def attention_of(layers, rows) -> list:
    """The attention of layers that follow each other, (batch_size, heads, queries, tokens) each."""
    maps = []
    for layer in layers:
        rows, attention = layer(rows, return_attention=True)
        maps.append(attention)
    return maps


def require_layers(layers: int) -> None:
    """Raises ValueError for a depth below one."""
    if layers < 1:
        raise ValueError(f"`layers` should be positive. Received: layers={layers}")


def require_fields(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError where the data has no field, only dense features."""
    if not feature_map.fields:
        raise ValueError(f"{model} needs at least one field; all features are dense")


def require_one_task(model: str, feature_map: FeatureMap) -> None:
    """Raises ValueError for a model whose interaction is one number, where the data has several labels."""
    if len(feature_map.tasks) > 1:
        tasks = ", ".join(feature_map.tasks)
        raise ValueError(f"{model} predicts one task; give one label or another model. Received: {tasks}")
