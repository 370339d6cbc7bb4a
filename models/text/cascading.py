"""Models of features that take the score of a fine-tuned language model as one feature."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from models.ctr_model import CTRModel, empty_row, require_one_task
from models.deepfm import DeepFM
from models.feature_map import FeatureMap
from models.layers.field_embedding import FieldEmbedding
from models.layers.tree_ensemble import TreeEnsemble
from models.mlp import MLP
from models.tensors import Inputs, Shape, Tensor
from models.text.text_only import TextOnly
from models.wide_deep import WideDeep


class Cascading(CTRModel):
    """Base class: a trained text_only scores the text, and another model takes the score as one more dense feature.

    `logit = downstream(features, score)`, where text_only's weights are not trained further. A subclass sets
    `downstream_class`, the other model; the docstring of CascadingWideDeep has an example.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        **options: `encoder_...` as in TextModel; the others are options of the downstream model.

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
        downstream_map = dataclasses.replace(feature_map, dense=feature_map.dense + scores, text=None)
        self.downstream = self.downstream_class(downstream_map, name="downstream", **options)

    def build(self, input_shape: Shape | None = None) -> None:
        # Set after the model is built: layers that building adds are trainable.
        self.text(empty_row(self.feature_map))
        self.text.trainable = False

    @classmethod
    def options(cls) -> dict[str, Any]:
        encoder_options = {key: value for key, value in TextOnly.options().items() if key.startswith("encoder_")}
        return {**super().options(), **encoder_options, **cls.downstream_class.options()}

    def with_score(self, inputs: Inputs) -> Inputs:
        """Returns the packed tensors with the text's logits after the dense features."""
        scores = ops.stop_gradient(ops.cast(self.text.score(inputs, training=False), "float32"))
        dense = ops.concatenate([inputs["dense"], scores], axis=1) if "dense" in inputs else scores
        return {**inputs, "dense": dense}

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        return self.downstream(self.with_score(inputs), training=training, gathered=gathered)

    def tables(self) -> list[FieldEmbedding]:
        return self.downstream.tables()

    def start_at(self, rates: np.ndarray) -> None:
        self.downstream.start_at(rates)

    def text_model(self) -> TextOnly:
        return self.text

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        return {"encoder": self.text.encoder, "pooler": self.text.pooler, "head": self.text.head}


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingWideDeep(Cascading):
    """The score of a language model as a feature of Wide & Deep.

    `logit = WideDeep(features, score)`, see Cascading.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        **options: Options of Cascading and WideDeep.

    Example:
        >>> from models.feature_map import Text
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
    """The score of a language model as a feature of DeepFM.

    `logit = DeepFM(features, score)`, see Cascading.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text; one task.
        **options: Options of Cascading and DeepFM.

    Example:
        >>> from models.feature_map import Text
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
class CascadingNNGBDT(Cascading):
    """The score of a language model as a feature of an MLP, and of boosted trees that start from the MLP's logit.

    `logit = MLP(features, score) + trees(features, score)`. The trees are trained after the network, on what `boost`
    returns, and split on the score, the dense features and the fields' ordinals.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text; one task, fields of one slot.
        trees: int. Largest number of trees; the logit is the MLP's alone until they are trained. Defaults to 100.
        leaves: int. Largest number of leaves of a tree. Defaults to 31.
        depth: int. Largest depth of a tree. Defaults to 6.
        **options: Options of Cascading and MLP.

    Example:
        >>> from models.feature_map import Text
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
    trees: TreeEnsemble

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
        scored = self.with_score(inputs)
        return self._values(scored), self.downstream(scored, training=False)

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        scored = self.with_score(inputs)
        logits = self.downstream(scored, training=training, gathered=gathered)
        return logits + self.trees(self._values(scored))

    def _values(self, scored: Inputs) -> Tensor:
        parts = [scored["dense"]]
        if "ids" in scored:
            offsets = [field.offset for field in self.feature_map.fields]
            parts.append(ops.cast(scored["ids"] - ops.convert_to_tensor(offsets, "int32"), "float32"))
        return ops.concatenate(parts, axis=1)
