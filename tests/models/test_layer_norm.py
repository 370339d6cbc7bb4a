"""Layer normalization: its handwritten gradient against Keras's layer, which TensorFlow differentiates."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models.layers.layer_norm import LayerNorm

RANDOM = np.random.default_rng(3)
INPUTS = RANDOM.normal(20, 3, (4, 3, 5)).astype(np.float32)
GAMMA, BETA, PICK = RANDOM.normal(size=5), RANDOM.normal(size=5), RANDOM.normal(size=(4, 3, 5))


def value_and_gradients(make: type[keras.layers.Layer], dtype: str) -> tuple[tf.Tensor, list[tf.Tensor]]:
    layer, inputs = make(epsilon=0.1, dtype=dtype), tf.constant(INPUTS)
    layer.build(INPUTS.shape)
    layer.set_weights([GAMMA, BETA])
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = layer(inputs)
        picked = tf.reduce_sum(tf.cast(output, "float32") * PICK)
    return output, tape.gradient(picked, [inputs, *layer.trainable_variables])


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2e-5), ("mixed_bfloat16", 0.05)])
def test_values_and_gradients_are_keras_own(dtype: str, most: float) -> None:
    output, gradients = value_and_gradients(LayerNorm, dtype)
    expected, of_keras = value_and_gradients(keras.layers.LayerNormalization, dtype)
    assert output.dtype == expected.dtype and [one.dtype for one in gradients] == [one.dtype for one in of_keras]
    np.testing.assert_allclose(tf.cast(output, "float32"), tf.cast(expected, "float32"), atol=most)
    for gradient, other in zip(gradients, of_keras, strict=True):
        assert np.abs(other).max() > 0.1
        np.testing.assert_allclose(gradient, other, atol=most)


def test_large_numbers_that_differ_little_are_normalised() -> None:
    """The variance is the mean of squared deviations; the mean square less the squared mean would lose it here."""
    layer = LayerNorm(epsilon=1e-6)
    found = layer(INPUTS + 1e4)
    centred = INPUTS.astype(np.float64) - INPUTS.mean(axis=-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(found, expected, atol=2e-3)
