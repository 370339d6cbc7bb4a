"""A text encoder in lower precision takes a half or a quarter of the bytes, and the logits stay near float32's."""

import keras
import numpy as np
import pytest

from ctrpipe.models.text.precision import in_precision
from tests.models.small_models import batch_of, randomised


def encoder_of(model):
    return model.encoder if hasattr(model, "encoder") else model.text.encoder


def size(layer) -> int:
    """Returns the bytes of a layer's weights."""
    return sum(int(np.prod(weight.shape)) * np.dtype(str(weight.dtype)).itemsize for weight in layer.weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("bert4ctr", "int8"),
        ("bert4ctr", "bfloat16"),
        ("numbert_uni_attention", "int8"),
        ("cascading_nn_gbdt", "int8_weights"),
    ],
)
def test_the_logits_stay_near_and_the_given_model_is_unchanged(name, precision):
    model, inputs = randomised(name, encoder_layers=1), batch_of(name)
    before, weights = np.asarray(model(inputs)), model.get_weights()
    lower = in_precision(model, precision)
    found = np.asarray(lower(inputs))
    assert found.dtype == np.float32 and 0 < np.abs(found - before).max() < 0.25
    np.testing.assert_array_equal(np.asarray(model(inputs)), before)
    for mine, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "ratio"), [("bfloat16", 0.5), ("int8", 0.25), ("int8_weights", 0.25)])
def test_the_encoder_takes_a_half_or_a_quarter_of_the_bytes(precision, ratio):
    model = randomised("text_only", encoder_layers=1, encoder_width=64, encoder_ffn=256)
    lower = in_precision(model, precision)
    # The scales, the norms and the tables of positions and segments stay as they are.
    assert ratio <= size(encoder_of(lower)) / size(encoder_of(model)) < ratio + 0.08
    assert size(lower) - size(encoder_of(lower)) == size(model) - size(encoder_of(model))


@pytest.mark.slow
def test_weights_are_rounded_to_127_steps_of_their_largest_value():
    model = randomised("text_only", encoder_layers=1)
    kernel = np.asarray(model.encoder.feed_forward[0].widen.kernel)
    lower = in_precision(model, "int8_weights").encoder
    step = np.abs(kernel).max(axis=0) / 127
    widen = lower.feed_forward[0].widen
    found = np.asarray(widen._kernel, np.float64) / np.asarray(widen.kernel_scale)
    assert (np.abs(found - kernel) <= step / 2 * 1.01).all()
    table, words = np.asarray(model.encoder.token_table), np.asarray(lower.embed_tokens(np.arange(130, dtype=np.int32)))
    step = np.abs(table).max(axis=1, keepdims=True) / 127
    assert (np.abs(words - table) <= step / 2 * 1.01).all()


def test_float32_and_a_model_without_text_are_returned_as_given():
    model, plain = randomised("text_only"), randomised("mlp")
    assert in_precision(model, "float32") is model and in_precision(plain, "int8") is plain


def test_an_unknown_precision_is_named():
    with pytest.raises(ValueError, match="precision='int4'"):
        in_precision(randomised("text_only"), "int4")


@pytest.mark.slow
def test_the_encoder_gives_bfloat16_states_beside_weights_in_float32():
    lower = in_precision(randomised("bert4ctr"), "bfloat16")
    states = lower.states(batch_of("bert4ctr"))
    assert {keras.backend.standardize_dtype(state.dtype) for state in states} == {"bfloat16"}
    assert {weight.dtype for weight in lower.weights} == {"bfloat16", "float32"}
