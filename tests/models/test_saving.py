"""Every model through every way in which Keras and TensorFlow store it."""

import dataclasses
import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models.base.losses import BinaryCrossEntropy
from ctrpipe.serving.loader import Servable
from tests.models.small_models import (
    KINDS,
    ONE_OF_EACH_KIND,
    SMALL,
    batch_of,
    cases_of,
    map_of,
    randomised,
)

ONE_TASK = (
    "fism",
    "nais",
    "two_tower",
    "starspace",
    "fm",
    "ffm",
    "afm",
    "fnn",
    "deepfm",
    "cascading_deepfm",
    "cascading_nn_gbdt",
    "lightgbm",
)


IN_A_FILE = ("xdeepfm", "hiformer", "bert4ctr", "cascading_nn_gbdt")  # columns, tokens, a text, trees


def equal(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@functools.cache
def model_and_logits(name: str):
    """With two tasks where the model has several. All tests only read it."""
    data = map_of(name)
    if name not in ONE_TASK:
        data = dataclasses.replace(data, tasks=("ctr", "cvr"))
    model = randomised(name, data)
    logits = np.asarray(model(batch_of(name)))
    assert logits.shape == (7, len(data.tasks)) and np.ptp(logits, axis=0).min() > 0
    return model, logits


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)  # how a layer is described, test_layers.py asks
def test_config_round_trip(name):
    model, logits = model_and_logits(name)
    config = json.loads(json.dumps(model.get_config()))
    for key, value in SMALL[name].items():
        assert config[key] == (list(value) if isinstance(value, tuple) else value), key
    copy = type(model).from_config(config)
    copy(batch_of(name))
    assert json.loads(json.dumps(copy.get_config())) == config
    assert [tuple(weight.shape) for weight in copy.weights] == [tuple(weight.shape) for weight in model.weights]
    copy.set_weights(model.get_weights())
    equal(copy(batch_of(name)), logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(IN_A_FILE, quick=KINDS[:2]))  # how a layer is described, the test above asks
def test_keras_file_round_trip(name, tmp_path):
    model, logits = model_and_logits(name)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model) and loaded.feature_map == model.feature_map
    equal(loaded(batch_of(name)), logits)
    loaded.compile("adam", BinaryCrossEntropy(), run_eagerly=True)
    history = loaded.fit(batch_of(name), np.ones_like(logits), verbose=0)  # what was loaded can be trained further
    assert np.isfinite(history.history["loss"][0])
    assert np.abs(np.asarray(loaded(batch_of(name))) - logits).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_saved_model_through_the_loader_of_tf_serving(name, tmp_path):
    model, logits = model_and_logits(name)
    module = tf.Module()
    module.kept = [weight.value for weight in model.weights]
    values = batch_of(name)
    packed = {key: tf.TensorSpec([None, value.shape[1]], value.dtype, name=key) for key, value in values.items()}
    call = tf.function(lambda **tensors: {"logits": model(tensors, training=False)}, autograph=False)
    signature = call.get_concrete_function(**packed)
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_packed": signature})
    servable = Servable(tmp_path, threads=1)
    try:
        for rows in (1, 7):
            inputs = {key: value[:rows] for key, value in batch_of(name).items()}
            equal(servable.run("serving_packed", inputs)["logits"], logits[:rows])
    finally:
        servable.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(("xdeepfm",)))  # the test above exports all kinds
def test_keras_export(name, tmp_path):
    model, logits = model_and_logits(name)
    signature = {key: keras.InputSpec(value.dtype, (None, value.shape[1])) for key, value in batch_of(name).items()}
    model.export(tmp_path / "export", verbose=False, input_signature=[signature])
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    equal(loaded.serve(batch_of(name)), logits)
