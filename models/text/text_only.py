"""A model that reads only the text."""

from collections.abc import Mapping
from typing import Any

import keras

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.tower import Tower
from ctrpipe.models.text.text_model import TextModel, repeat_for_rows


@keras.saving.register_keras_serializable(package="ctrpipe")
class TextOnly(TextModel):
    """A language model fine-tuned on clicks, without other features.

    `logit = w · pooled + b + position term`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text. The model reads no other field than
            the position.
        embedding_dim: int. Width of the position's embedding. Defaults to 1.
        **options: Options of TextModel.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = TextOnly(feature_map, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.2.1.
    """

    def __init__(self, feature_map: FeatureMap, *, embedding_dim: int = 1, **options: Any) -> None:
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        if self.position is None:
            self.table = None  # no field is looked up
        self.head = Tower((), self.tasks, name="head")

    @classmethod
    def options_of_stage(cls, later: Mapping[str, Any]) -> dict[str, Any]:
        # Other options, such as `use_linear`, concern the later model's features, which this model does not read.
        return {key: value for key, value in super().options_of_stage(later).items() if key.startswith("encoder_")}

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        # Without the embedding: it has positions only, and the later model's own position term starts from zero.
        return {"encoder": self.encoder, "pooler": self.pooler, "head": self.head}

    def score(self, inputs: Inputs, training: bool | None = None) -> Tensor:
        """Returns the logits without the position term, (batch_size, tasks)."""
        return repeat_for_rows(self.head(self.pooled(self.states(inputs, training), training)), inputs)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.score(inputs, training) + self.position_logits(rows)
