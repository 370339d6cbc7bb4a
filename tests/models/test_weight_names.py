"""Weights are found again by where they stand in a model."""

import keras
import numpy as np
import pytest

from ctrpipe.models.base.weight_names import weight_names
from tests.models.small_models import cases_of, randomised

# Layers in lists, in layers, in a model within the model, and built in Keras; `make test-all` has every model.
KINDS_OF_PLACES = ("xdeepfm", "hiformer", "nais", "bert4ctr", "cascading_nn_gbdt")


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(KINDS_OF_PLACES))
def test_every_weight_has_a_name_that_does_not_depend_on_what_the_process_made_before(name):
    first = randomised(name)
    keras.layers.Dense(1), keras.layers.Dense(1)  # Keras counts them
    second = randomised(name)
    names = weight_names(first)
    assert names == weight_names(second)
    weights = [each for each, variable in zip(names, first.variables, strict=True) if variable.dtype == "float32"]
    assert all(weights) and len(set(weights)) == len(weights)
    assert not any(each.startswith("variable_") for each in weights)
    for each, variable in zip(names, first.variables, strict=True):
        assert each or "seed" in variable.path


def test_a_name_is_that_of_the_attributes_on_the_way():
    model = randomised("deepfm")
    names = dict(zip(weight_names(model), model.variables, strict=True))
    assert names["table.table"] is model.table.table
    assert names["linear.table"] is model.linear.table
    assert names["tower.hidden.0.kernel"] is model.tower.hidden[0].kernel


def test_layers_that_only_keras_lists_have_names_too():
    model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(3)])
    model(np.zeros((1, 2)))
    names = weight_names(model)
    assert len(set(names)) == 4 and all(name.rpartition(".")[2] in ("kernel", "bias") for name in names)
