"""What tests leave out of TensorFlow changes no value, no name and no error's cause."""

import httpx
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops
from tensorflow.python.util import tf_stack

from tests.quick_tensorflow import with_one_answer, without_debug_name


@pytest.fixture
def quick(monkeypatch):
    made = gen_resource_variable_ops.var_handle_op
    monkeypatch.setattr(gen_resource_variable_ops, "var_handle_op", without_debug_name(made))
    monkeypatch.setattr(tf_stack, "extract_stack", with_one_answer(tf_stack.extract_stack))
    before = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    yield
    if before:
        keras.config.enable_traceback_filtering()


def test_variables_have_their_values_and_names_and_are_apart(quick):
    first, second = (tf.Variable([value], name=name) for value, name in ((1.0, "first"), (2.0, "second")))
    first.assign_add([10.0])
    assert (first.name, second.name) == ("first:0", "second:0")
    np.testing.assert_array_equal([*first.numpy(), *second.numpy()], [11.0, 2.0])
    layer = keras.layers.Dense(3, name="dense")
    layer.build((None, 2))
    assert [weight.path for weight in layer.weights] == ["dense/kernel", "dense/bias"]


def test_an_error_in_a_graph_names_its_operation_and_its_cause(quick):
    @tf.function
    def looked_up(ids):
        return tf.gather([1.0, 2.0], ids, name="looked_up")

    assert looked_up(tf.constant([1])).numpy() == [2.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)looked_up.*indices\[0\] = 5 is not in \[0, 2\)"):
        looked_up(tf.constant([5]))
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 2, but received"):
        layer = keras.layers.Dense(1)
        layer(np.ones((4, 2)))
        layer(np.ones((4, 3)))


def test_clients_that_verify_share_what_they_read(monkeypatch):
    with httpx.Client() as one, httpx.Client() as other:
        contexts = [client._transport._pool._ssl_context for client in (one, other)]
    assert contexts[0].verify_mode == contexts[1].verify_mode and contexts[0].check_hostname
