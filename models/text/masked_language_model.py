"""The warm-up of a text encoder: words that are hidden are to be guessed."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from models.feature_map import Text
from models.layers.text_encoder import TextEncoder, activation_of
from models.tensors import Shape, Tensor

_HIDDEN, _REPLACED = 0.8, 0.1  # of the chosen tokens; the others stay as they are


@keras.saving.register_keras_serializable(package="ctrpipe")
class MaskedLanguageModel(keras.Model):
    """Logits over the vocabulary at chosen positions, by the rows of the encoder's own token table.

    Args:
        encoder: The configuration of the TextEncoder.

    References:
        Devlin et al., "BERT", 2019, section 3.1.
    """

    def __init__(self, encoder: dict, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder = TextEncoder.from_config({**encoder, "name": "encoder"})
        self.dense = keras.layers.Dense(self.encoder.width, name="dense")
        self.norm = keras.layers.LayerNormalization(epsilon=self.encoder.epsilon, name="norm")
        self.act = activation_of(self.encoder.activation)

    def build(self, input_shape: Shape | None = None) -> None:
        self.bias = self.add_weight(name="bias", shape=(self.encoder.vocabulary_size,), initializer="zeros")

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """`tokens`, `segments` int32 (batch_size, T), `positions` int32 (batch_size, K) -> (batch_size, K, words)."""
        states = self.encoder(inputs["tokens"], inputs["segments"], training=training)[-1]
        chosen = ops.take_along_axis(states, inputs["positions"][:, :, None], axis=1)
        hidden = self.norm(self.act(self.dense(chosen)))
        table = ops.cast(self.encoder.token_table, hidden.dtype)
        return ops.cast(ops.matmul(hidden, ops.transpose(table)), "float32") + self.bias

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "encoder": self.encoder.get_config()}


def hide_tokens(
    tokens: np.ndarray, text: Text, rate: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Chooses `rate` of every row's words, at least one: 80% become [MASK], 10% another word, 10% stay.

    Args:
        tokens: int32 (N, T).
        text: The description of the tokens; special ones are never chosen.
        rate: The share of a row's words.
        random: Decides.

    Returns:
        Tokens (N, T), the positions chosen and the words that stood there, int32 (N, K) with K for a row full of words,
        and float32 (N, K): 1, or 0 where a row has fewer.
    """
    words = ~np.isin(tokens, text.special_ids)
    most = max(1, math.ceil(rate * tokens.shape[1]))
    order = np.argsort(np.where(words, random.random(tokens.shape), 2.0), axis=1)[:, :most]
    found = words.sum(axis=1, keepdims=True)
    wanted = np.minimum(np.maximum(np.round(rate * found), 1), found)
    weights = (np.arange(most) < wanted).astype(np.float32)
    hidden, truth = tokens.copy(), np.take_along_axis(tokens, order, axis=1)
    choice = random.random(order.shape)
    others = random.choice(np.setdiff1d(np.arange(text.vocabulary_size), text.special_ids), order.shape)
    becomes = np.where(choice < _HIDDEN, text.mask_id, np.where(choice < _HIDDEN + _REPLACED, others, truth))
    np.put_along_axis(hidden, order, np.where(weights > 0, becomes, truth).astype(tokens.dtype), axis=1)
    return hidden, order.astype(np.int32), truth, weights
