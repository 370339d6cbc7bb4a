"""The product of a softmax and values: its handwritten gradient against central differences."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from ctrpipe.models.layers.softmax_product import softmax_product

RANDOM = np.random.default_rng(5)
SCORES, VALUES = RANDOM.normal(size=(2, 1, 3, 4)), RANDOM.normal(size=(2, 1, 4, 2))
PICK = RANDOM.normal(size=(2, 1, 3, 2))


def total(scores: np.ndarray, values: np.ndarray) -> float:
    return float((scipy.special.softmax(scores, axis=-1) @ values * PICK).sum())


def by_differences(step: float = 1e-5) -> list[np.ndarray]:
    """The gradients of `total` by scores and by values, entry by entry."""
    found = []
    for place in range(2):
        gradient = np.zeros_like((SCORES, VALUES)[place])
        for index in np.ndindex(gradient.shape):
            ends = []
            for sign in (1, -1):
                arrays = [SCORES.copy(), VALUES.copy()]
                arrays[place][index] += sign * step
                ends.append(total(*arrays))
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        found.append(gradient)
    return found


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2e-6), ("bfloat16", 0.05)])
def test_value_and_gradients(dtype, most):
    scores, values = tf.constant(SCORES, "float32"), tf.constant(VALUES, dtype)
    with tf.GradientTape() as tape:
        tape.watch([scores, values])
        product = softmax_product(scores, values)
        picked = tf.reduce_sum(tf.cast(product, "float32") * PICK)
    gradients = tape.gradient(picked, [scores, values])
    assert product.dtype == dtype and [gradient.dtype for gradient in gradients] == ["float32", dtype]
    np.testing.assert_allclose(picked, total(SCORES, VALUES), atol=most * 10)
    for gradient, expected in zip(gradients, by_differences(), strict=True):
        np.testing.assert_allclose(tf.cast(gradient, "float32"), expected, atol=most)


def test_large_scores_have_finite_gradients():
    scores = tf.constant([[1e30, -1e30], [88.0, 89.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        picked = tf.reduce_sum(softmax_product(scores, tf.constant([[1.0], [2.0]])))
    weight = 1 / (1 + np.e)
    slope = weight * (1 - weight)
    np.testing.assert_allclose(tape.gradient(picked, scores), [[0, 0], [-slope, slope]], rtol=1e-5)
