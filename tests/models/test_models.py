"""Every model in each way of running it."""

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import pytest
import tensorflow as tf
from _pytest.mark import ParameterSet

from ctrpipe.models import FeatureMap, available, create
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.losses import BinaryCrossEntropy
from ctrpipe.models.base.registry import model_class
from ctrpipe.models.base.saved import save_model
from tests.models.small_models import (
    EVERY_MODEL,
    FAMILIES,
    KINDS,
    OF_SEVERAL_INPUTS,
    SMALL,
    WITH_TASKS,
    batch_of,
    built,
    cases_of,
    divided,
    feature_map,
    made_once,
    map_of,
    randomised,
    unchanged,
    with_items,
)
from tests.warm_python import python

OURS = "ctrpipe.models."
SUMS = [name for name in SMALL if name != "esmm"]  # whose output biases are added to logits


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(OF_SEVERAL_INPUTS, quick=KINDS))
def test_every_weight_gets_a_gradient(name):
    model, inputs = unchanged(name), batch_of(name, 64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sin(model(inputs)))
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
    for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, weight.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


@pytest.mark.parametrize("name", cases_of(OF_SEVERAL_INPUTS, quick=KINDS))
def test_a_row_does_not_depend_on_other_rows(name):
    model, inputs = unchanged(name), batch_of(name)
    one = {key: value[2:3] for key, value in inputs.items()}
    np.testing.assert_allclose(model(one), model(inputs)[2:3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", cases_of((*KINDS, "lightgbm", "starspace", "numbert"), SUMS, quick=KINDS))
def test_a_base_rate_moves_every_logit_by_its_log_odds(name):
    model, inputs = create(name, map_of(name), **SMALL[name]), batch_of(name)
    before = np.asarray(model(inputs))
    model.start_at(np.full(model.tasks, 0.03))
    np.testing.assert_allclose(np.asarray(model(inputs)) - before, np.log(0.03 / 0.97), rtol=1e-5)


@pytest.mark.parametrize("name", cases_of(KINDS, SUMS))  # of the biases that the test above finds
def test_a_shift_is_added_to_every_logit(name):
    model, inputs = randomised(name), batch_of(name)
    before = np.asarray(model(inputs))
    model.shift_logits(-2.25)
    np.testing.assert_allclose(np.asarray(model(inputs)) - before, -2.25, rtol=1e-5, atol=1e-5)


CORRECTED = [name for name in SMALL if name not in (*WITH_TASKS, "cascading_nn_gbdt")]  # refused


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(KINDS, CORRECTED))
def test_a_model_of_fake_negatives_answers_b_over_1_minus_b(name):
    model, inputs = unchanged(name), batch_of(name)
    corrected = randomised(name, dataclasses.replace(map_of(name), fake_negatives=True))
    biased = np.asarray(model(inputs), np.float64)
    odds = np.minimum(np.exp(biased), 1 - 1e-6)  # b / (1 - b)
    found = 1 / (1 + np.exp(-np.asarray(corrected(inputs), np.float64)))
    np.testing.assert_allclose(found, odds, rtol=1e-4)


def test_a_shift_is_not_multiplied_by_the_factor_on_the_linear_part():
    model, inputs = (
        create("wide_deep", map_of("wide_deep"), **SMALL["wide_deep"], linear_rate=4.0),
        batch_of("wide_deep"),
    )
    before = np.asarray(model(inputs))
    model.shift_logits(-2.25)
    np.testing.assert_allclose(np.asarray(model(inputs)) - before, -2.25, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lr", {}),
        ("wide_deep", {"linear_rate": 4.0}),
        ("dcn_v2", {}),
        ("hiformer", {}),
        ("hiformer", {"use_linear": True, "linear_rate": 4.0}),
    ],
)
def test_tasks_have_base_rates_of_their_own(name, changes):
    options = {**SMALL[name], **changes}
    model, inputs = create(name, dataclasses.replace(feature_map(), tasks=("ctr", "buy")), **options), batch_of(name)
    before = np.asarray(model(inputs))
    model.start_at(np.array([0.25, 0.0]))  # no row has the second label: far away, but not infinitely
    expected = np.tile(np.log([1 / 3, 1e-6 / (1 - 1e-6)]), (len(before), 1))
    np.testing.assert_allclose(np.asarray(model(inputs)) - before, expected, rtol=1e-5)


def test_a_model_without_a_bias_says_how_to_get_one():
    model = create("afm", feature_map(), **SMALL["afm"], use_linear=False)
    model(batch_of("afm"))
    with pytest.raises(ValueError, match="AFM has no bias of its own without `use_linear=True`"):
        model.start_at(np.array([0.5]))


def models_to_compile() -> Iterator[ParameterSet]:
    """Compiles every kind of model with XLA, from TensorFlow's graph. test_layers.py compiles every layer."""
    for jit, name in itertools.product((False, True), SMALL):
        marks = [] if jit and name in KINDS else [pytest.mark.large]
        yield pytest.param(name, jit, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "jit"), models_to_compile())
def test_compiled_equals_eager(name, jit):
    model, inputs = unchanged(name), batch_of(name)
    compiled = tf.function(lambda values: model(values), autograph=False, jit_compile=jit)
    np.testing.assert_allclose(compiled(inputs), model(inputs), rtol=1e-4, atol=1e-5)


def policies_of_models() -> Iterator[ParameterSet]:
    """Every kind of model in a low precision, by turns in one and in the other; test_saving.py trains in float32."""
    low = dict(zip(KINDS, itertools.cycle(("mixed_float16", "mixed_bfloat16")), strict=False))
    for policy, name in itertools.product(("float32", "mixed_float16", "mixed_bfloat16"), SMALL):
        in_make_test = low.get(name) == policy
        yield pytest.param(policy, name, marks=[] if in_make_test else [pytest.mark.large])


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "name"), policies_of_models())
def test_one_training_step_under_every_policy_gives_float32_logits(name, policy):
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(policy)
    try:
        model = create(name, map_of(name), **SMALL[name])
        # Eagerly: a graph of the step takes up to ten times as long, and test_training_steps.py compiles it.
        model.compile("adam", BinaryCrossEntropy(), run_eagerly=True)
        labels = np.ones((7, 1), np.float32)
        history = model.fit(batch_of(name), labels, verbose=0)
        assert np.isfinite(history.history["loss"][0])
        assert model(batch_of(name)).dtype == tf.float32
    finally:
        keras.mixed_precision.set_dtype_policy(before)


def test_the_losses_gradient_is_p_minus_y_also_at_zero():
    logits, labels = tf.constant([[0.0], [0.0], [3.0], [-80.0]]), tf.constant([[0.0], [1.0], [0.0], [1.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = BinaryCrossEntropy()(labels, logits)
    np.testing.assert_allclose(tape.gradient(loss, logits) * 4, tf.sigmoid(logits) - labels, rtol=1e-6)


def test_task_weights_weigh_the_mean_over_tasks():
    z, y = np.array([[0.5, -1.0], [2.0, 0.1]], np.float32), np.array([[1, 0], [0, 1]], np.float32)
    each = np.log1p(np.exp(z)) - z * y
    assert float(BinaryCrossEntropy((3.0, 1.0))(y, z)) == pytest.approx((each @ [0.75, 0.25]).mean(), rel=1e-6)
    assert float(BinaryCrossEntropy((1.0, 1.0))(y, z)) == pytest.approx(float(BinaryCrossEntropy()(y, z)), rel=1e-6)
    with pytest.raises(ValueError, match="task_weights"):
        BinaryCrossEntropy((0.0, 0.0))


def test_loss_equals_cross_entropy_and_survives_large_logits():
    z, y = np.array([[2.0], [-3.0], [90.0]], np.float32), np.array([[1.0], [1.0], [0.0]], np.float32)
    expected = np.mean([np.log1p(np.exp(-2)), np.log1p(np.exp(3)), 90.0])
    assert float(BinaryCrossEntropy()(y, z)) == pytest.approx(expected, rel=1e-6)


JAX = """
import json, pathlib, sys
import jax
import numpy as np
from ctrpipe.common.libraries import importing
with importing("sklearn", "matplotlib"):  # what Keras imports in half of its time, and no model uses
    import keras
from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.saved import load_model
from tests.models.jax_drawing import draw_zeros
draw_zeros()
assert keras.backend.backend() == "jax" and not sys.modules.get("tensorflow")

def arrays(inputs):
    return {key: np.array(value, "float32" if key == "dense" else "int32") for key, value in inputs.items()}

for line in sys.stdin:
    task = json.loads(line)
    inputs = arrays(task["inputs"])
    if "kept" in task:
        model = load_model(pathlib.Path(task["kept"]))
        print(json.dumps(np.asarray(jax.jit(model)(inputs)).tolist()), flush=True)
        assert not sys.modules.get("tensorflow")
        continue
    model = create(task["name"], FeatureMap.from_json(task["map"]), **task["options"])
    model({key: keras.KerasTensor(value.shape, value.dtype.name) for key, value in inputs.items()})
    model.set_weights([np.array(value) for value in task["weights"]])
    given = [arrays(side) for side in task["candidates"]]
    # One program, as a training compiles it: operation by operation a model takes twice as long. Of inputs that are
    # no arguments, XLA would compute all that follows from them while it compiles.
    logits = jax.jit(model.candidate_logits)(*given) if given else jax.jit(model)(inputs)
    print(json.dumps(np.asarray(logits).tolist()), flush=True)
"""


@pytest.fixture(scope="module")
def jax_logits() -> Iterator[Callable[[dict], list]]:
    """Returns a task's logits on JAX, from one process for all models."""
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*python("jax"), "-c", JAX], text=True, env=environment, **pipes) as process:

        def logits(task: dict) -> list:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, "the process ended; standard error says why"
            return json.loads(answer)

        yield logits
        process.stdin.close()


# Crosses, a recurrent layer, a text and trees; then those whose layers use operations that no other model has. JAX
# compiles a model in 2 s.
ON_JAX = ("xdeepfm", "dien", "bert4ctr", "cascading_nn_gbdt", "rank_mixer", "hstu", "pepnet", "esmm")


def jax_task(name: str, data: FeatureMap, model: CTRModel, *candidates: Mapping[str, np.ndarray]) -> dict:
    """The input of `JAX`: a model with its weights, and a batch, or a context with candidates."""

    def lists(inputs: Mapping[str, np.ndarray]) -> dict[str, list]:
        return {key: value.tolist() for key, value in inputs.items()}

    return {
        "name": name,
        "map": data.to_json(),
        "options": SMALL[name],
        "inputs": lists(batch_of(name)),
        "weights": [value.tolist() for value in model.get_weights()],
        "candidates": [lists(side) for side in candidates],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(ON_JAX))
def test_jax_gives_the_same(name, jax_logits):
    model = unchanged(name)
    found = jax_logits(jax_task(name, map_of(name), model))
    np.testing.assert_allclose(found, model(batch_of(name)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_kept_model_is_loaded_on_jax_without_tensorflow(tmp_path, jax_logits):
    model, inputs = randomised("attention_net"), batch_of("attention_net")
    save_model(tmp_path, "attention_net", model)
    lists = {key: value.tolist() for key, value in inputs.items()}
    np.testing.assert_allclose(jax_logits({"kept": str(tmp_path), "inputs": lists}), model(inputs), atol=1e-5)


@pytest.mark.large(like="tests/models/test_models.py::test_jax_gives_the_same")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["nais", "din", "sim", "dien", "sequence_transformer", "two_tower", "starspace", "bert4ctr"]
)
def test_jax_gives_many_candidates_the_same(name, jax_logits):
    data = with_items(name)
    model, (context, candidates) = randomised(name, data), divided(data, batch_of(name))
    found = jax_logits(jax_task(name, data, model, context, candidates))
    np.testing.assert_allclose(found, model.candidate_logits(context, candidates), rtol=1e-4, atol=1e-5)


def test_wrong_names_and_values_say_what_exists():
    with pytest.raises(ValueError, match="did you mean 'attention_net'"):
        create("attention_nets", feature_map())
    with pytest.raises(ValueError, match="did you mean 'top_k'"):
        create("attention_net", feature_map(), topk=3)
    with pytest.raises(ValueError, match="no model 'nosuch'; known: afm, attention_net, "):
        create("nosuch", feature_map())
    with pytest.raises(ValueError, match="layers should be like its default 3"):
        create("attention_net", feature_map(), layers="three")
    with pytest.raises(ValueError, match="should divide"):
        create("attention_net", feature_map(), embedding_dim=6, heads=4)


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_no_part_of_a_model_is_left_without_weights(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Keras warns of a layer that was never called
        model = built(name)
    assert all(layer.built for layer in model._flatten_layers())


def test_a_model_that_tests_share_is_refused_where_one_of_them_has_changed_it():
    shared = made_once(randomised)
    model = shared("lr")
    assert shared("lr") is model
    model.shift_logits(1.0)
    with pytest.raises(AssertionError, match="a test changed the weights of lr"):
        shared("lr")


def ancestors(layer: object) -> set[type]:
    return {each for each in type(layer).__mro__ if each.__module__.startswith(OURS)}


@pytest.mark.slow
def test_every_layer_and_every_base_class_is_in_one_of_the_families():
    parts = {}
    for name in SMALL:
        model = built(name)
        own = type(model)
        parts[name] = {part for layer in model._flatten_layers() for part in ancestors(layer)} - {own}
    everything = set().union(*parts.values())
    assert len([part for part in everything if part.__module__.startswith(f"{OURS}layers.")]) > 25
    # A model that another one is built on stands for itself where it is a family.
    of_families = set().union(*(parts[name] | {model_class(name)} for name in FAMILIES))
    assert {part.__name__ for part in everything - of_families} == set()


def test_every_model_tells_its_options():
    assert {model.name for model in available()} == set(SMALL)
    assert all(model.description and model.options for model in available())


def test_an_unknown_label_adds_nothing_to_the_loss_and_its_gradient():
    z, y = (
        np.array([[0.5, -1.0], [2.0, 0.1], [-3.0, 4.0]], np.float32),
        np.array([[1, 0], [0, np.nan], [np.nan, 1]], np.float32),
    )
    each = np.where(np.isnan(y), 0, np.log1p(np.exp(z)) - z * np.nan_to_num(y))
    logits = tf.constant(z)
    for weights, shares in ((None, [0.5, 0.5]), ((3.0, 1.0), [0.75, 0.25])):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = BinaryCrossEntropy(weights)(tf.constant(y), logits)
        assert float(loss) == pytest.approx((each @ shares).mean(), rel=1e-6)
        expected = np.where(np.isnan(y), 0, (1 / (1 + np.exp(-z)) - np.nan_to_num(y)) * shares) / 3
        np.testing.assert_allclose(tape.gradient(loss, logits), expected, rtol=1e-5)
