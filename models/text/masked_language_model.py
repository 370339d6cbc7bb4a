"""Pretraining of a text encoder with masked tokens."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.feature_map import Text
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.text_encoder import TextEncoder, activation_of

_MASKED, _REPLACED = 0.8, 0.1  # shares of the chosen tokens; the rest stays unchanged


@keras.saving.register_keras_serializable(package="ctrpipe")
class MaskedLanguageModel(keras.Model):
    """A masked language model: logits over the vocabulary at chosen positions.

    `logits = T LayerNorm(act(W h + b)) + c`, where T is the encoder's own token table.

    Args:
        encoder: dict. The configuration of the TextEncoder.

    Example:
        >>> encoder = TextEncoder(vocabulary_size=30, layers=1, width=8, heads=2, ffn_dim=16, positions=10)
        >>> model = MaskedLanguageModel(encoder.get_config())
        >>> tokens, segments = keras.ops.array([[2, 4, 9, 3]]), keras.ops.zeros((1, 4), "int32")
        >>> inputs = {"tokens": tokens, "segments": segments, "positions": keras.ops.array([[1]])}
        >>> keras.ops.shape(model(inputs))  # (batch_size, positions, vocabulary)
        (1, 1, 30)

    References:
        Devlin et al., "BERT", 2019, section 3.1.
    """

    def __init__(self, encoder: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder = TextEncoder.from_config({**encoder, "name": "encoder"})
        self.dense = keras.layers.Dense(self.encoder.width, name="dense")
        self.norm = LayerNorm(epsilon=self.encoder.epsilon, name="norm")
        self.act = activation_of(self.encoder.activation)

    def build(self, input_shape: Shape | None = None) -> None:
        self.bias = self.add_weight(name="bias", shape=(self.encoder.vocabulary_size,), initializer="zeros")

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the logits, float32 (batch_size, K, vocabulary).

        Args:
            inputs: `tokens` and `segments` int32 (batch_size, T), `positions` int32 (batch_size, K).
            training: Whether dropout is on.
        """
        states = self.encoder(inputs["tokens"], inputs["segments"], training=training)[-1]
        chosen = ops.take_along_axis(states, inputs["positions"][:, :, None], axis=1)
        hidden = self.norm(self.act(self.dense(chosen)))
        table = ops.cast(self.encoder.token_table, hidden.dtype)
        return ops.cast(ops.matmul(hidden, ops.transpose(table)), "float32") + self.bias

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "encoder": self.encoder.get_config()}


def mask_tokens(
    tokens: np.ndarray, text: Text, rate: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Masks a share of every row's tokens, at least one: 80% become [MASK], 10% another token, 10% stay.

    Args:
        tokens: int32 (N, T).
        text: The description of the tokens; special ones are never chosen.
        rate: The share of a row's tokens to choose, not counting special tokens.
        random: The random generator.

    Returns:
        The tokens after masking, int32 (N, T); the chosen positions and their original tokens, int32 (N, K) each, with
        K = max(1, ceil(rate T)); and weights, float32 (N, K): 1, or 0 for the surplus if a row has fewer than K chosen
        tokens.
    """
    is_word = ~np.isin(tokens, text.special_ids)
    most = max(1, math.ceil(rate * tokens.shape[1]))
    order = np.argsort(np.where(is_word, random.random(tokens.shape), 2.0), axis=1)[:, :most]
    count = is_word.sum(axis=1, keepdims=True)
    chosen = np.minimum(np.maximum(np.round(rate * count), 1), count)
    weights = (np.arange(most) < chosen).astype(np.float32)
    masked, targets = tokens.copy(), np.take_along_axis(tokens, order, axis=1)
    choice = random.random(order.shape)
    others = random.choice(np.setdiff1d(np.arange(text.vocabulary_size), text.special_ids), order.shape)
    replaced = np.where(choice < _MASKED, text.mask_id, np.where(choice < _MASKED + _REPLACED, others, targets))
    np.put_along_axis(masked, order, np.where(weights > 0, replaced, targets).astype(tokens.dtype), axis=1)
    return masked, order.astype(np.int32), targets, weights
