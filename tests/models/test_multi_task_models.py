"""Models of several tasks: against their equations in numpy, the models within them, and what they refuse."""

import dataclasses
import decimal
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models import create
from ctrpipe.models.base.losses import BinaryCrossEntropy
from ctrpipe.models.multi_task.esmm import logits_of_products
from tests.models.small_models import (
    SMALL,
    batch,
    compare,
    compares,
    embed,
    feature_map,
    history_batch,
    history_map,
    linear,
    map_of,
    randomised,
)

TASKS = ("ctr", "cvr")


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def dense(layer, x: np.ndarray) -> np.ndarray:
    return x @ value(layer.kernel) + (value(layer.bias) if layer.use_bias else 0)


def tower(layer, x: np.ndarray) -> np.ndarray:
    for hidden in layer.hidden:
        x = np.maximum(dense(hidden, x), 0)
    return dense(layer.logits, x)


def flat(model, inputs) -> np.ndarray:
    fields = embed(value(model.table.table), inputs["ids"]).reshape(len(inputs["ids"]), -1)
    return np.concatenate([fields, inputs["dense"]], axis=1)


@compares("mmoe")
def test_mmoe():
    model, inputs = randomised("mmoe"), batch()
    expected = []
    for x in flat(model, inputs):
        experts = [np.maximum(tower(expert.tower, x), 0) for expert in model.interactions]
        logits = []
        for gate, top in zip(model.gates, model.towers, strict=True):
            weights = softmax(dense(gate, x))
            logits.append(tower(top, sum(weight * f for weight, f in zip(weights, experts, strict=True)))[0])
        expected.append(logits)
    compare(model, inputs, np.array(expected))


def selected(gate, state: np.ndarray, experts: list[np.ndarray]) -> np.ndarray:
    return sum(weight * f for weight, f in zip(softmax(dense(gate, state)), experts, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2, 3])
@compares("ple")
def test_ple(levels):
    model, inputs = randomised("ple", levels=levels), batch()
    expected = []
    for x in flat(model, inputs):
        gates, above = iter(model.gates), iter(model.experts)
        outputs = [np.maximum(tower(expert.tower, x), 0) for expert in model.interactions]
        state = {"ctr": x, "cvr": x, "shared": x}
        for level in range(levels):
            if level:
                owners = ["ctr", "ctr", "cvr", "cvr", "shared"]
                outputs = [np.maximum(dense(next(above), state[owner]), 0) for owner in owners]
            experts = {"ctr": [*outputs[:2], outputs[4]], "cvr": outputs[2:], "shared": outputs}
            owners = ["ctr", "cvr"] if level == levels - 1 else ["ctr", "cvr", "shared"]
            state = {owner: selected(next(gates), state[owner], experts[owner]) for owner in owners}
        assert next(gates, None) is next(above, None) is None
        expected.append([tower(top, state[task])[0] for top, task in zip(model.towers, TASKS, strict=True)])
    compare(model, inputs, np.array(expected))


@pytest.mark.parametrize("use_linear", [False, True])
@compares("esmm")
def test_esmm(use_linear):
    model, inputs = randomised("esmm", use_linear=use_linear), batch()
    z = np.concatenate([tower(inner.tower, flat(model, inputs)) for inner in model.interactions], axis=1)
    z = z + (linear(model, inputs) if use_linear else 0)
    p = np.cumprod(1 / (1 + np.exp(-z)), axis=1)
    compare(model, inputs, np.log(p / (1 - p)))


def test_logits_of_products_keep_their_digits_where_probabilities_have_none():
    ends = (-80.0, -3.0, 0.0, 0.7, 12.0, 80.0)
    z = np.array(list(itertools.product(ends, repeat=3)), np.float32)
    with decimal.localcontext(decimal.Context(prec=120)):
        expected = []
        for row in z.tolist():
            found, p = [], decimal.Decimal(1)
            for each in row:
                p = p / (1 + decimal.Decimal(-each).exp())
                found.append(float((p / (1 - p)).ln()))
            expected.append(found)
    np.testing.assert_allclose(logits_of_products(keras.ops.convert_to_tensor(z)), expected, rtol=1e-5, atol=1e-6)


def weights_of_tables(model) -> list[keras.Variable]:
    tables = (table for table in (model.table, model.dense_table) if table is not None)
    return [weight for table in tables for weight in table.trainable_variables]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("deepfm", {"hidden_units": [8]}),
        ("ffm", {}),
        ("dcn_v2", {"layers": 2, "hidden_units": [8]}),
        ("transformer_pe", {"layers": 1, "heads": 2, "key_dim": 3, "value_dim": 2, "ffn_dim": 6, "hidden_units": [8]}),
        ("din", {"hidden_units": [8], "attention_hidden_units": [5]}),
        ("dien", {"hidden_units": [8], "units": 6}),
    ],
)
def test_a_tasks_interaction_is_the_model_alone_on_the_shared_embeddings(name, options):
    data, inputs = (history_map(), history_batch()) if name in ("din", "dien") else (feature_map(), batch())
    tasks = dataclasses.replace(data, tasks=TASKS)
    model = create("esmm", tasks, interaction={"name": name, **options}, embedding_dim=4)
    model(inputs)
    random = np.random.default_rng(4)
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=0.8, size=weight.shape).astype(np.float32))
    found = np.asarray(keras.ops.sigmoid(model(inputs)), np.float64)
    probabilities = []
    for inner in model.interactions:
        alone = create(name, data, embedding_dim=4, use_linear=False, **options)
        alone(inputs)
        tables = weights_of_tables(alone)
        own = [weight for weight in alone.trainable_variables if all(weight is not table for table in tables)]
        theirs = [*weights_of_tables(model), *inner.trainable_variables]
        for weight, their in zip([*tables, *own], theirs, strict=True):
            weight.assign(their)
        probabilities.append(np.asarray(keras.ops.sigmoid(alone(inputs)), np.float64)[:, 0])
    assert min(np.ptp(each) for each in probabilities) > 0.01
    np.testing.assert_allclose(found, np.cumprod(np.stack(probabilities, axis=1), axis=1), rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), [("dcn_v2", {"hidden_units": [8]}), ("cin", {"maps": [4, 3]})])
def test_an_expert_is_any_interaction_of_several_numbers(name, options):
    model = randomised("mmoe", interaction={"name": name, **options})
    assert len(model.interactions) == 3 and all(not inner.tables() for inner in model.interactions)
    logits = np.asarray(model(batch()))
    assert logits.shape == (7, 2) and np.ptp(logits, axis=0).min() > 0.01


@pytest.mark.parametrize("use_linear", [False, True])
def test_esmm_starts_at_the_rates_of_all_rows(use_linear):
    data = dataclasses.replace(feature_map(), tasks=("view", "click", "order"))
    model = create("esmm", data, **SMALL["esmm"] | {"embedding_stddev": 0.0}, use_linear=use_linear, linear_rate=4.0)
    inputs = {**batch(), "dense": np.zeros((7, 2), np.float32)}
    model(inputs)
    model.start_at(np.array([0.4, 0.03, 0.0006]))
    np.testing.assert_allclose(keras.ops.sigmoid(model(inputs)), [[0.4, 0.03, 0.0006]] * 7, rtol=1e-4)
    model.start_at(np.array([0.4, 0.0, 0.0]))
    assert np.isfinite(np.asarray(model(inputs))).all()
    with pytest.raises(ValueError, match="no bias moves the logits of products"):
        model.shift_logits(1.0)


def test_impressions_without_a_click_train_what_follows_a_click():
    model, inputs = randomised("esmm"), batch()
    bias = model.interactions[1].tower.logits.bias
    with tf.GradientTape() as tape:
        loss = BinaryCrossEntropy((0.0, 1.0))(np.zeros((7, 2), np.float32), model(inputs))
    z = np.concatenate([tower(inner.tower, flat(model, inputs)) for inner in model.interactions], axis=1)
    click, after = 1 / (1 + np.exp(-z)).T
    # d/dz of -log(1 - p_click p_after), p_after = sigmoid(z)
    expected = np.mean(click * after * (1 - after) / (1 - click * after))
    np.testing.assert_allclose(tape.gradient(loss, bias.value), [expected], rtol=1e-4)


def test_one_label_is_refused():
    for name in ("mmoe", "ple", "esmm"):
        with pytest.raises(ValueError, match=f"{name} needs several labels; .* Received: ctr"):
            create(name, feature_map())


@pytest.mark.parametrize(
    ("interaction", "message"),
    [
        ({"hidden_units": [8]}, "interaction should name a model"),
        ({"name": "lr"}, "interaction: lr does not combine given embeddings"),
        ({"name": "fism"}, "interaction: fism does not combine given embeddings"),
        ({"name": "fnn"}, "interaction: fnn does not combine given embeddings"),
        ({"name": "mmoe"}, "interaction: mmoe does not combine given embeddings"),
        ({"name": "cascading_deepfm"}, "interaction: cascading_deepfm does not combine given embeddings"),
        ({"name": "mlp", "embedding_dim": 3}, "interaction: embedding_dim belongs to the shared embeddings"),
        ({"name": "mlp", "units": 3}, "interaction: mlp has no hyperparameter 'units'"),
        ({"name": "fm"}, "interaction: fm predicts one task; .* output_3, ...$"),
        ({"name": "din"}, "interaction: DIN needs a sequence"),
        ({"name": "nosuch"}, "no model 'nosuch'"),
        ("mlp", "interaction should be like its default"),
    ],
)
def test_what_cannot_be_an_interaction_is_one_line(interaction, message):
    with pytest.raises(ValueError, match=message) as error:
        create("mmoe", map_of("mmoe"), interaction=interaction)
    assert "\n" not in str(error.value)


def test_sizes_are_positive():
    with pytest.raises(ValueError, match="`experts` should be positive"):
        create("mmoe", map_of("mmoe"), experts=0)
    with pytest.raises(ValueError, match="`levels` should be positive"):
        create("ple", map_of("ple"), levels=0)
