"""The warm-up of a text encoder: its logits, and the masked words."""

import numpy as np
import pytest
from keras import ops

from ctrpipe.models.layers.text_encoder import TextEncoder
from ctrpipe.models.text.masked_language_model import MaskedLanguageModel

WORDS, WIDTH = 23, 6


@pytest.fixture
def model():
    encoder = TextEncoder(WORDS, layers=1, width=WIDTH, heads=2, ffn_dim=8, positions=16, dropout=0.0)
    model = MaskedLanguageModel(encoder.get_config())
    model(inputs())
    random = np.random.default_rng(0)
    for weight in model.trainable_variables:
        weight.assign(random.normal(0, 0.5, weight.shape))
    return model


def inputs(length: int = 8) -> dict[str, np.ndarray]:
    """Two texts of five and three tokens, and the places of two of them."""
    tokens = np.zeros((2, length), np.int32)
    tokens[0, :5], tokens[1, :3] = [2, 7, 4, 9, 3], [2, 11, 3]
    return {"tokens": tokens, "segments": np.zeros_like(tokens), "positions": np.array([[2, 3], [1, 1]], np.int32)}


def test_logits_are_of_the_chosen_places_alone_and_as_in_numpy(model):
    given = inputs()
    states = np.asarray(model.encoder(given["tokens"], given["segments"])[-1], np.float64)
    chosen = states[np.arange(2)[:, None], given["positions"]]
    kernel, bias = (np.asarray(weight, np.float64) for weight in model.dense.get_weights())
    hidden = np.asarray(ops.gelu(chosen @ kernel + bias, approximate=False), np.float64)
    scale, shift = model.norm.get_weights()
    deviation = np.sqrt(hidden.var(axis=2, keepdims=True) + model.encoder.epsilon)
    hidden = (hidden - hidden.mean(axis=2, keepdims=True)) / deviation * scale + shift
    expected = hidden @ np.asarray(model.encoder.token_table).T + np.asarray(model.bias)
    found = np.asarray(model(given))
    assert found.shape == (2, 2, WORDS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_logits_do_not_depend_on_how_much_padding_is_behind_a_text(model):
    np.testing.assert_allclose(np.asarray(model(inputs(5))), np.asarray(model(inputs(16))), rtol=1e-4, atol=1e-5)
