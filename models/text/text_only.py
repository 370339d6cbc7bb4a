"""The text alone."""

from typing import Any

import keras

from models.feature_map import FeatureMap
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor
from models.text.text_model import TextModel, of_rows


@keras.saving.register_keras_serializable(package="ctrpipe")
class TextOnly(TextModel):
    """logit = w · pooled + b: a language model fine-tuned on clicks.

    Args:
        feature_map: The description of the packed tensors; features other than the text and the position are not used.
        embedding_dim: Width of the position's vector.
        **options: See TextModel.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.2.1.
    """

    def __init__(self, feature_map: FeatureMap, *, embedding_dim: int = 1, **options: Any) -> None:
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        if self.position is None:
            self.table = None  # nothing of it would be read
        self.head = Tower((), self.tasks, name="head")

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        return {**super().shared_layers(), "head": self.head}

    def score(self, inputs, training=None):
        """The text's logits, (batch_size, tasks), without the position's term."""
        return of_rows(self.head(self.pooled(self.states(inputs, training), training)), inputs)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.score(inputs, training) + self.position_logits(rows)
