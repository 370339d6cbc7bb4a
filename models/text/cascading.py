"""Models of features that take the score of a fine-tuned language model as an additional feature."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, empty_row, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap, Field
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.deepfm import DeepFM
from ctrpipe.models.layers.boosted import Boosted
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.tree_ensemble import TreeEnsemble
from ctrpipe.models.mlp import MLP
from ctrpipe.models.text.text_model import TextModel, position_term
from ctrpipe.models.text.text_only import TextOnly
from ctrpipe.models.wide_deep import WideDeep


class Cascading(CTRModel):
    """Base class of models that read the text score of a trained text_only as one more dense feature.

    `logit = downstream(features, score) + position term`. The weights of text_only are frozen. As in TextModel, the
    position is not a feature: its term has one weight per position. A subclass sets `downstream_class`, the model that
    reads the score; the docstring of CascadingWideDeep has an example.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        **options: `encoder_...` options as in TextModel; all others are options of the downstream model.

    Raises:
        ValueError: the data has no text.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    needs_text = True
    shares_text = True
    pretraining = ("text_only",)
    downstream_class: type[CTRModel]

    def __init__(self, feature_map: FeatureMap, *, name: str | None = None, **options: Any) -> None:
        super().__init__(feature_map, embedding_dim=0, name=name)
        encoder_options = {key: options.pop(key) for key in list(options) if key.startswith("encoder_")}
        self.text = TextOnly(feature_map, name="text", **encoder_options)
        scores = tuple(f"text_score_{task}" for task in feature_map.tasks)
        with_scores = feature_map.dense + scores
        widths = (*feature_map.widths.values(), *(1 for _ in scores))
        downstream_map = dataclasses.replace(
            feature_map, dense=with_scores, dense_widths=widths, text=None, fake_negatives=False
        )
        self.downstream = self.downstream_class(downstream_map, name="downstream", **options)
        self.position = position_term(feature_map, self.tasks)

    def build(self, input_shape: Shape | None = None) -> None:
        row = empty_row(self.feature_map)
        # Set after building: layers that building adds are trainable.
        self.text(row)
        self.text.trainable = False
        self.downstream(self.with_score(row))  # builds its embedding tables

    @classmethod
    def options(cls) -> dict[str, Any]:
        encoder_options = {key: value for key, value in TextOnly.options().items() if key.startswith("encoder_")}
        return {**super().options(), **encoder_options, **cls.downstream_class.options()}

    def with_score(self, inputs: Inputs, training: bool | None = None) -> Inputs:
        """Returns the packed tensors with the text's logits after the dense features.

        In training, no gradient flows through these logits: text_only is frozen.
        """
        scores = ops.cast(self.text.score(inputs, training=False), "float32")
        scores = ops.stop_gradient(scores) if training else scores
        dense = ops.concatenate([inputs["dense"], scores], axis=1) if "dense" in inputs else scores
        return {**inputs, "dense": dense}

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        return self.answered(self.network_logits(self.with_score(inputs, training), training, gathered), training)

    def network_logits(self, scored: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        """Returns the downstream model's logits plus the position term, (batch_size, tasks).

        Args:
            scored: The output of `with_score`.
            training, gathered: See CTRModel.call.
        """
        if self.position is None:
            return self.downstream(scored, training=training, gathered=gathered)
        ids = scored["ids"]
        rows = gathered or {table.name: ops.take(table.table, ids, axis=0) for table in self.tables()}
        without = {name: self._without_position(values) for name, values in rows.items()}
        slots = [(slot, field) for slot, field in enumerate(self._slots()) if field.role == "position"]
        positions = [ops.one_hot(ids[:, slot] - field.offset, field.size, dtype="float32") for slot, field in slots]
        logits = self.downstream(scored, training=training, gathered=without)
        return logits + ops.cast(self.position(ops.concatenate(positions, axis=1)), "float32")

    def _without_position(self, rows: Tensor | Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """Returns embeddings, by slot or by field, with those of position fields set to zero."""
        if not isinstance(rows, Mapping):
            return rows * ops.cast(~self._is_position()[:, None], rows.dtype)
        positions = {field.name for field in self.feature_map.fields if field.role == "position"}
        return {name: ops.zeros_like(each) if name in positions else each for name, each in rows.items()}

    def _slots(self) -> list[Field]:
        """Returns the field of each column of `ids`."""
        return [field for field in self.feature_map.fields for _ in range(field.slots)]

    def _is_position(self) -> np.ndarray:
        return np.array([field.role == "position" for field in self._slots()])

    def tables(self) -> list[FieldEmbedding]:
        return self.downstream.tables()

    def value_tables(self) -> list[FieldEmbedding]:
        return self.downstream.value_tables()

    def weights_by_row(self) -> list[tuple[keras.Variable, str]]:
        positions = [] if self.position is None else [(self.position.kernel, "positions")]
        return [*super().weights_by_row(), (self.text.encoder.token_table, "tokens"), *positions]

    def token_parts(self, inputs: Inputs) -> dict[str, Tensor]:
        return self.text.token_parts(inputs)

    def output_biases(self) -> list[keras.Variable]:
        return self.downstream.output_biases()

    def start_at(self, rates: np.ndarray) -> None:
        self.downstream.start_at(rates)

    def shift_logits(self, shift: float) -> None:
        self.downstream.shift_logits(shift)

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        return {"encoder": self.text.encoder, "pooler": self.text.pooler, "head": self.text.head}


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingWideDeep(Cascading):
    """Wide & Deep with the score of a language model as a feature.

    `logit = WideDeep(features, score) + position term` (see Cascading).

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        **options: Options of Cascading and WideDeep.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = CascadingWideDeep(feature_map, embedding_dim=4, hidden_units=(8,), **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    downstream_class = WideDeep


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingDeepFM(Cascading):
    """DeepFM with the score of a language model as a feature.

    `logit = DeepFM(features, score) + position term` (see Cascading).

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text and one task.
        **options: Options of Cascading and DeepFM.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = CascadingDeepFM(feature_map, embedding_dim=4, hidden_units=(8,), **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text, or several tasks.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    downstream_class = DeepFM


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingNNGBDT(Cascading, Boosted):
    """An MLP plus boosted trees, both with the score of a language model as a feature.

    `logit = MLP(features, score) + position term + trees(features, score)` (see Cascading). The trees are trained after
    the network and start from its logit. They split on the score, the dense features and the ordinals of the fields'
    ids.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text, one task and fields of one slot.
        trees: int. Maximum number of trees. Until they are trained, the MLP alone gives the logit. Defaults to 100.
        leaves: int. Maximum number of leaves of a tree. Defaults to 31.
        depth: int. Maximum depth of a tree. Defaults to 6.
        **options: Options of Cascading and MLP.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = CascadingNNGBDT(feature_map, hidden_units=(8,), trees=3, leaves=4, depth=2, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text, several tasks, or a field with several values.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3; Ling et al., "Model Ensemble for Click Prediction in Bing Search
        Ads", 2017, section 3.
    """

    downstream_class = MLP

    def __init__(
        self, feature_map: FeatureMap, *, trees: int = 100, leaves: int = 31, depth: int = 6, **options: Any
    ) -> None:
        require_one_task("cascading_nn_gbdt", feature_map)
        multivalent = [field.name for field in feature_map.fields if field.slots > 1]
        if multivalent:
            raise ValueError(f"A tree cannot split a feature with several values. Received: {multivalent}")
        super().__init__(feature_map, **options)
        self.trees = TreeEnsemble(trees, leaves, depth, dtype="float32", name="trees")

    def boost(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Returns the training input of `trees`: values float32 (batch_size, features) and logits (batch_size, 1).

        The trees split on the values and start from the logits.
        """
        scored = self.with_score(inputs)
        return self._values(scored), self.network_logits(scored, training=False)

    def fold(self) -> None:
        super().fold()
        self.trees.fold()

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        scored = self.with_score(inputs, training)
        return self.network_logits(scored, training, gathered) + self.trees(self._values(scored))

    def _values(self, scored: Inputs) -> Tensor:
        parts = [scored["dense"]]
        if "ids" in scored:
            offsets = [field.offset for field in self.feature_map.fields]
            ordinals = scored["ids"] - ops.convert_to_tensor(offsets, "int32")
            features = np.flatnonzero(~self._is_position()).astype("int32")
            parts.append(ops.cast(ops.take(ordinals, features, axis=1), "float32"))
        return ops.concatenate(parts, axis=1)


def text_model_of(model: CTRModel) -> TextModel | None:
    """Returns the model with the text encoder: the model or one inside it; None for a model without a text."""
    if isinstance(model, TextModel):
        return model
    return model.text if isinstance(model, Cascading) else None
