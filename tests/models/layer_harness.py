"""Checks for every layer: `check_layer` tests everything except the values of its output."""

import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

POLICIES = ("mixed_float16", "mixed_bfloat16", "bfloat16")


def check_layer(
    make: Callable[..., keras.layers.Layer],
    inputs: np.ndarray,
    output_shape: tuple[int, ...],
    weights: int,
    rows_independent: bool = True,
) -> None:
    """Config round trip, weights, shapes, eager, compiled fit, policies, tf.function, XLA, SavedModel, gradients.

    Args:
        make: Makes the layer; takes Keras's own arguments (dtype, name).
        inputs: A batch of at least three rows.
        output_shape: The shape of the output for that batch.
        weights: Number of trainable numbers.
        rows_independent: Whether a row's output depends on that row alone.
    """
    layer = make()
    expected = np.asarray(layer(inputs))
    assert expected.shape == output_shape
    assert sum(int(np.prod(weight.shape)) for weight in layer.trainable_weights) == weights
    _randomise(layer)
    expected = np.asarray(layer(inputs))
    _check_config(layer, inputs, expected)
    symbolic = layer(keras.KerasTensor((None, *inputs.shape[1:]), inputs.dtype.name))
    assert symbolic.shape == (None, *output_shape[1:]) and symbolic.dtype == "float32"
    for jit in (False, True):
        compiled = tf.function(lambda x: layer(x), jit_compile=jit)
        np.testing.assert_allclose(compiled(inputs), expected, rtol=1e-4, atol=1e-5, err_msg=f"jit_compile={jit}")
    if rows_independent:
        np.testing.assert_allclose(layer(inputs[1:2]), expected[1:2], rtol=1e-4, atol=1e-5)
    _check_gradients(layer, inputs)
    _check_saved_model(layer, inputs, expected)
    _check_fit(make(), inputs)
    for policy in POLICIES:
        low = make(dtype=policy)
        output = low(inputs)
        assert np.isfinite(np.asarray(output, np.float32)).all(), policy
        assert all(weight.dtype == low.variable_dtype for weight in low.trainable_weights)


def _randomise(layer: keras.layers.Layer) -> None:
    random = np.random.default_rng(11)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape).astype(np.float32))


def _check_config(layer: keras.layers.Layer, inputs: np.ndarray, expected: np.ndarray) -> None:
    config = layer.get_config()
    copy = type(layer).from_config(json.loads(json.dumps(config)))
    assert json.dumps(copy.get_config(), sort_keys=True) == json.dumps(config, sort_keys=True)
    copy(inputs)
    copy.set_weights(layer.get_weights())
    np.testing.assert_allclose(copy(inputs), expected, rtol=1e-6, atol=1e-6)


def _check_gradients(layer: keras.layers.Layer, inputs: np.ndarray) -> None:
    """Every weight's gradient exists, is not zero, and is right: against a central difference along one direction."""
    values = [weight.value for weight in layer.trainable_weights]
    if not values:
        return
    random = np.random.default_rng(12)
    pick = tf.constant(random.normal(size=layer(inputs).shape), tf.float32)

    def total() -> tf.Tensor:
        return tf.reduce_sum(tf.cast(layer(inputs), tf.float32) * pick)

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            result = total()
        found = tape.gradient(result, values)
        assert all(gradient is not None for gradient in found), [weight.path for weight in layer.trainable_weights]
        return [tf.convert_to_tensor(gradient) for gradient in found]

    for weight, gradient, compiled in zip(layer.trainable_weights, gradients(), tf.function(gradients)(), strict=True):
        np.testing.assert_allclose(compiled, gradient, rtol=1e-4, atol=1e-4, err_msg=weight.path)
        gradient = gradient.numpy()
        assert np.abs(gradient).max() > 0, weight.path
        before, direction = weight.numpy(), np.sign(gradient) * (np.abs(gradient) > np.abs(gradient).max() / 2)
        step = 1e-3
        ends = []
        for sign in (1, -1):
            weight.assign(before + sign * step * direction)
            ends.append(float(total()))
        weight.assign(before)
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(slope, (gradient * direction).sum(), rtol=0.05, err_msg=weight.path)


def _check_saved_model(layer: keras.layers.Layer, inputs: np.ndarray, expected: np.ndarray) -> None:
    """Runs the layer in the TF1 loader, as TF Serving does."""
    module = tf.Module()
    module.kept = [weight.value for weight in layer.weights]
    spec = tf.TensorSpec([None, *inputs.shape[1:]], inputs.dtype)
    module.call = tf.function(lambda x: {"y": layer(x)}, input_signature=[spec])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"serving_default": module.call})
        np.testing.assert_allclose(_run_saved_model(folder, inputs), expected, rtol=1e-4, atol=1e-5)


def _run_saved_model(folder: str, inputs: np.ndarray) -> Any:
    from ctrpipe.serving.loader import Servable

    servable = Servable(pathlib.Path(folder))
    try:
        [alias] = servable.signatures["serving_default"].inputs
        return servable.run("serving_default", {alias: inputs})["y"]
    finally:
        servable.close()


def _check_fit(layer: keras.layers.Layer, inputs: np.ndarray) -> None:
    features = keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)
    model = keras.Model(features, keras.layers.Dense(1)(keras.layers.Flatten()(layer(features))))
    # Eagerly and by hand: Keras's graph of the step takes ten times as long, and `fit` makes a dataset of the rows.
    # _check_gradients compiles the layer's part of it.
    model.compile("adam", "mse", run_eagerly=True)
    labels = np.ones((len(inputs), 1), np.float32)
    losses = [model.train_on_batch(inputs, labels) for _ in range(2)]
    assert np.isfinite(losses).all()
