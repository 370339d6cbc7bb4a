"""The compiled step: under XLA with static shapes, as a TPU wants it; several steps in one call; low precision."""

import functools
import os
import pathlib
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.weight_names import weight_names
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training import loss_scale, tensorflow_learner
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.network import build_network, l2_strengths
from ctrpipe.pipeline.training.tensorflow_learner import fill_batches, make_learner
from ctrpipe.pipeline.training.train import train
from tests.models.small_models import SMALL, batch_of, cases_of, history_map, map_of
from tests.pipeline.gradient_steps import l2_error
from tests.pipeline.test_training import MAP, MODEL, SETTINGS, write

ROWS = 8
NO_DROPOUT = ("dropout", "embedding_dropout", "attention_dropout", "encoder_dropout")


def learner_of(name: str, **changes):
    options = {**SMALL[name], **{key: 0.0 for key in NO_DROPOUT if key in SMALL[name]}}
    training = Training(**{"batch_size": ROWS, "distribution": "one_device", "gradient_clip_norm": 1.0, **changes})
    return make_learner(Model(name=name, **options), training, columns_of(name), 1)


def columns_of(name: str) -> FeatureMap:
    """A model's small data. DIEN has a step of its loop for each place of a history, and two are as good as five."""
    return history_map(length=2) if name == "dien" else map_of(name)


def batches_of(name: str, count: int, rows: int = ROWS):
    random = np.random.default_rng(5)
    inputs = batch_of(name, rows * count)
    if name == "dien":
        kept = [slot for slot in range(inputs["ids"].shape[1]) if slot in (0, 1, 17) or (slot - 2) % 5 < 2]
        inputs["ids"] = inputs["ids"][:, kept]
    labels = random.integers(0, 2, (rows * count, len(map_of(name).tasks))).astype(np.float32)
    parts = [slice(start, start + rows) for start in range(0, rows * count, rows)]
    return [({key: value[part] for key, value in inputs.items()}, labels[part]) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(("din",)))  # histories; test_models.py compiles all kinds
def test_xla_compiles_the_step_of_every_model_and_computes_the_same(name):
    plain, compiled = learner_of(name), learner_of(name)
    step = tf.function(compiled.step, jit_compile=True, reduce_retracing=False)
    rate = tf.constant(1e-3)
    for inputs, labels in batches_of(name, 2):
        np.testing.assert_allclose(step(inputs, labels, rate), plain.step(inputs, labels, rate), rtol=1e-4, atol=1e-5)
    for found, expected in zip(compiled.weights(), plain.weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)


@pytest.mark.slow
def test_xla_compiles_several_steps():
    plain, compiled = learner_of("deepfm"), learner_of("deepfm")
    batches = batches_of("deepfm", 3)
    stacked = {key: np.stack([inputs[key] for inputs, _ in batches]) for key in batches[0][0]}
    rates = np.full(3, 1e-3, np.float32)
    several = tf.function(compiled.several_steps, jit_compile=True)
    losses = several(stacked, np.stack([labels for _, labels in batches]), rates)
    assert losses.shape == (3,)
    assert plain.fit(batches) == pytest.approx(np.mean(losses), abs=1e-6)
    for found, expected in zip(compiled.weights(), plain.weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow
def test_a_training_under_xla_is_the_same_whatever_the_last_batch():
    batches = [*batches_of("deepfm", 2), *batches_of("deepfm", 1, rows=3)]
    plain, compiled = learner_of("deepfm", optimizer="lazy_adam"), learner_of("deepfm", optimizer="lazy_adam", xla=True)
    assert compiled._step._jit_compile and compiled._several_steps._jit_compile and not plain._step._jit_compile
    assert compiled.fit(batches) == pytest.approx(plain.fit(batches), abs=1e-6)
    for found, expected in zip(compiled.state(), plain.state(), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_xla_is_refused_where_it_has_no_one_step_to_compile(monkeypatch):
    with pytest.raises(ValueError, match="JAX compiles every step; remove it"):
        Training(backend="jax", xla=True)
    several = types.SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tensorflow_learner, "make_strategy", lambda distribution: several)
    with pytest.raises(InputError, match="training.xla: it compiles the step of one device"):
        learner_of("deepfm", xla=True)


@pytest.mark.slow
def test_several_steps_in_one_call_are_those_steps():
    batches = [*batches_of("deepfm", 7), *batches_of("deepfm", 1, rows=3)]
    warmed_up = {"warmup_steps": 4, "learning_rate": 0.01}
    one, three = learner_of("deepfm", **warmed_up), learner_of("deepfm", **warmed_up, steps_per_execution=3)
    calls = []
    run = three._several_steps
    three._several_steps = lambda inputs, labels, rates: calls.append(len(rates)) or run(inputs, labels, rates)
    assert three.fit(batches) == pytest.approx(one.fit(batches), abs=1e-6)
    assert calls == [3, 3]  # then the seventh, and the smaller one
    for found, expected in zip(three.state(), one.state(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_small_batch_is_filled_with_its_own_rows():
    whole = batches_of("deepfm", 1, rows=8)[0]
    inputs, labels = batches_of("deepfm", 1, rows=3)[0]
    first, (filled, filled_labels) = fill_batches([whole, (inputs, labels)])
    np.testing.assert_array_equal(filled["ids"], inputs["ids"][[0, 1, 2, 0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(filled_labels, labels[[0, 1, 2, 0, 1, 2, 0, 1]])
    assert first is whole


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [write(folder / "train", 1500, 1)], [write(folder / "validation", 600, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [
        ("mixed_bfloat16", "lazy_adam"),
        ("mixed_float16", "adam"),
        pytest.param("mixed_bfloat16", "adam", marks=pytest.mark.large),
        pytest.param("mixed_float16", "lazy_adam", marks=pytest.mark.large),
    ],
)
def test_low_precision_learns_the_same_and_ends_in_float32(files, tmp_path, precision, optimizer):
    training = Training(**{**SETTINGS, "epochs": 15, "precision": precision, "optimizer": optimizer})
    result = train(TrainingJob(MODEL, training, MAP, *files, 1), tmp_path)
    assert max(row["validation_auc"] for row in result.progress.evaluations) > 0.9
    assert result.model.dtype_policy.name == "float32"
    assert {layer.compute_dtype for layer in result.model._flatten_layers()} == {"float32"}


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_precision_is_that_of_the_layers_and_of_nothing_else(precision):
    network = build_network(MODEL, MAP, 1, precision)
    assert {layer.compute_dtype for layer in network._flatten_layers()} == {precision.removeprefix("mixed_")}
    assert {weight.dtype for weight in network.trainable_weights} == {"float32"}
    assert network({"ids": np.zeros((2, 2), np.int32)}).dtype == tf.float32
    assert keras.config.dtype_policy().name == "float32"
    expected = build_network(MODEL, MAP, 1)
    for found, weight in zip(network.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(found, weight)


FIRST_AND_SECOND = """
import numpy as np
from ctrpipe.pipeline.config import Model
from ctrpipe.pipeline.training.network import build_network
from tests.models.small_models import SMALL, map_of
first, second = (build_network(Model(name="dcn_v2", **SMALL["dcn_v2"]), map_of("dcn_v2"), 1) for _ in range(2))
for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
    np.testing.assert_array_equal(one, other)
"""


@pytest.mark.large(like="tests/pipeline/test_training.py::test_the_same_seed_gives_the_same_model")
@pytest.mark.slow
def test_the_first_model_of_a_process_has_the_seeds_weights_too():
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run([sys.executable, "-c", FIRST_AND_SECOND], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", pytest.param("xdeepfm", marks=pytest.mark.large)])
def test_l2_shrinks_every_row_of_the_tables_and_the_networks_kernels_and_no_bias(model):
    [batch] = batches_of(model, 1)
    assert l2_error(functools.partial(learner_of, model), batch, 0.5, 0.25) < 1e-5


@pytest.mark.slow
def test_network_l2_goes_with_an_optimizer_of_single_rows():
    [batch] = batches_of("mlp", 1)
    learner = functools.partial(learner_of, "mlp", optimizer="lazy_adam")
    assert l2_error(learner, batch, 0.0, 0.25) < 1e-5


def penalised(model: str) -> set[str]:
    network = build_network(Model(name=model, **SMALL[model]), map_of(model), 1)
    strengths = l2_strengths(network, network.variables, Training(network_l2=0.1))
    return {name for name, strength in zip(weight_names(network), strengths, strict=True) if strength}


@pytest.mark.slow
def test_network_l2_is_on_matrices_and_neither_on_a_text_encoder_nor_on_biases_of_each_row():
    assert penalised("fm") == {"dense_table.vectors", "linear_dense.kernel"}
    assert penalised("cin") >= {"cin.kernel_0", "cin.kernel_1", "logit.kernel"}
    assert penalised("text_only") == {"head.logits.kernel", "position.kernel"}
    assert not any(name.endswith("bias") for name in penalised("hiformer"))
    assert penalised("hiformer") >= {"encoder.0.query_left", "encoder.0.query_right", "task_tokens"}


def test_table_l2_is_refused_where_other_rows_are_not_updated():
    with pytest.raises(ValueError, match="table_l2 needs optimizer adam: lazy_adam updates only the rows of a batch"):
        Training(optimizer="lazy_adam", table_l2=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "lazy_adam"])
def test_a_step_whose_gradients_overflow_is_left_out_and_the_scale_halved(optimizer):
    learner = learner_of("deepfm", precision="mixed_float16", optimizer=optimizer)
    whole = learner.state()
    scale = next(index for index, value in enumerate(whole) if value.shape == () and value == loss_scale.INITIAL_SCALE)
    whole[scale] = np.float32(3e38)
    learner.load_state(whole)
    learner.fit(batches_of("deepfm", 1))
    after = learner.state()
    assert after[scale] == np.float32(1.5e38)
    for index, (found, before) in enumerate(zip(after, whole, strict=True)):
        if index != scale:
            np.testing.assert_array_equal(found, before)
    after[scale] = np.float32(1024.0)
    learner.load_state(after)
    learner.fit(batches_of("deepfm", 1))
    assert learner.state()[scale] == 1024.0
    assert any(np.any(found != before) for found, before in zip(learner.weights(), whole, strict=False))


def test_the_loss_scale_doubles_after_enough_finite_steps():
    last = loss_scale.GROWTH_STEPS - 1
    for scale, steps, finite, expected in [
        (8.0, 5, True, (8.0, 6)),
        (8.0, last, True, (16.0, 0)),
        (8.0, last, False, (4.0, 0)),
        (1.0, 5, False, (1.0, 0)),
    ]:
        found = loss_scale.next_scale(np.float32(scale), np.int32(steps), finite)
        assert tuple(map(float, found)) == expected


@pytest.mark.parametrize("most, of_bytes, parts", [(1, 8, 1), (2, 8, 3), (64, 8, 4), (64, 112, 2), (64, 1 << 20, 1)])
def test_a_tables_gradient_is_the_sum_of_its_rows_however_many_fields_are_summed_together(
    most, of_bytes, parts, monkeypatch
):
    monkeypatch.setattr(tensorflow_learner, "_MOST_PARTS", most)
    monkeypatch.setattr(tensorflow_learner, "_PART_BYTES", of_bytes)
    fields = [("a", "categorical", 5), ("b", "multivalent", 3, 2), ("c", "categorical", 4), ("d", "numeric", 6)]
    fields.append(("of_a", "sequence", 5, 2, "feature", "mean", "a"))
    feature_map = FeatureMap.from_sizes(fields)
    random = np.random.default_rng(4)
    ids = np.concatenate(
        [field.offset + random.integers(0, field.size, (50, field.slots), np.int32) for field in feature_map.fields],
        axis=1,
    )
    ids[::3, (2, 6)] = 0  # padding
    gradients = random.normal(size=(50, 7, 2)).astype(np.float32)
    expected = np.zeros((feature_map.total_ids, 2))
    np.add.at(expected, ids, gradients)
    expected[0] = 0
    table = FieldEmbedding(feature_map, 2)
    found = tensorflow_learner._table_gradient(table, tf.constant(ids), tf.constant(gradients))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    traced = tf.function(lambda *arrays: tensorflow_learner._table_gradient(table, *arrays))
    sums = [op.type for op in traced.get_concrete_function(ids, gradients).graph.get_operations()]
    assert sums.count("UnsortedSegmentSum") == parts
