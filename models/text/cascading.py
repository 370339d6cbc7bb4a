"""The score of a fine-tuned language model as one more feature of a model of features."""

import dataclasses
from typing import Any

import keras
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
    """A trained text_only, whose weights stay as they are, scores the text; a model of the features, of which the score
    is one more, gives the logit.

    Args:
        feature_map: The description of the packed tensors, with a text.
        **options: `encoder_...` as in TextModel; the others are those of the model of the features.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    needs_text = True
    shares_text = True
    pretraining = ("text_only",)
    downstream_class: type[CTRModel]

    def __init__(self, feature_map: FeatureMap, *, name: str | None = None, **options: Any) -> None:
        super().__init__(feature_map, embedding_dim=0, name=name)
        of_text = {key: options.pop(key) for key in list(options) if key.startswith("encoder_")}
        self.text = TextOnly(feature_map, name="text", **of_text)
        scores = tuple(f"text_score_{task}" for task in feature_map.tasks)
        described = dataclasses.replace(feature_map, dense=feature_map.dense + scores, text=None)
        self.downstream = self.downstream_class(described, name="downstream", **options)

    def build(self, input_shape: Shape | None = None) -> None:
        # Layers that come to be when the text is built would be trainable, whatever was said before.
        self.text(empty_row(self.feature_map))
        self.text.trainable = False

    @classmethod
    def options(cls) -> dict[str, Any]:
        of_text = {key: value for key, value in TextOnly.options().items() if key.startswith("encoder_")}
        return {**of_text, **cls.downstream_class.options()}

    def with_score(self, inputs):
        """The packed tensors with the text's logits behind the dense features."""
        scores = ops.stop_gradient(ops.cast(self.text.score(inputs, training=False), "float32"))
        dense = ops.concatenate([inputs["dense"], scores], axis=1) if "dense" in inputs else scores
        return {**inputs, "dense": dense}

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        return self.downstream(self.with_score(inputs), training=training, gathered=gathered)

    def tables(self) -> list[FieldEmbedding]:
        return self.downstream.tables()

    def start_at(self, rates) -> None:
        self.downstream.start_at(rates)

    @property
    def text_model(self) -> TextOnly:
        return self.text

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        # Not the text model's embedding, which is of the position: here the position is a feature of the other model.
        return {"encoder": self.text.encoder, "pooler": self.text.pooler, "head": self.text.head}


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingWideDeep(Cascading):
    """The language model's score as a feature of Wide & Deep.

    Args:
        feature_map: The description of the packed tensors, with a text.
        **options: See Cascading and WideDeep.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    downstream_class = WideDeep


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingDeepFM(Cascading):
    """The language model's score as a feature of DeepFM.

    Args:
        feature_map: The description of the packed tensors, with a text; one task.
        **options: See Cascading and DeepFM.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    downstream_class = DeepFM


@keras.saving.register_keras_serializable(package="ctrpipe")
class CascadingNNGBDT(Cascading):
    """The language model's score as a feature of an MLP, and of boosted trees that start from the MLP's logit.

    logit = MLP + trees. The trees are learned after the network (`boost` says from what), and read the score, the dense
    features and the ordinals of the fields.

    Args:
        feature_map: The description of the packed tensors, with a text; one task, fields of one slot.
        trees: How many trees; 0 of them say anything until they are learned.
        leaves: The most leaves of a tree.
        depth: The depth of a tree.
        **options: See Cascading and MLP.

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

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {**super().options(), "trees": 100, "leaves": 31, "depth": 6}

    def boost(self, inputs):
        """What trees are learned from: the values that they split, float32 (batch_size, features), and the logits that
        they start from, float32 (batch_size, 1)."""
        scored = self.with_score(inputs)
        return self._values(scored), self.downstream(scored, training=False)

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        scored = self.with_score(inputs)
        logits = self.downstream(scored, training=training, gathered=gathered)
        return logits + self.trees(self._values(scored))

    def _values(self, scored):
        parts = [scored["dense"]]
        if "ids" in scored:
            offsets = [field.offset for field in self.feature_map.fields]
            parts.append(ops.cast(scored["ids"] - ops.convert_to_tensor(offsets, "int32"), "float32"))
        return ops.concatenate(parts, axis=1)
