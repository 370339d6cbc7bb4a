"""The interaction models of 2019 to 2025 against their papers' equations, in loops over rows and fields."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models import create
from ctrpipe.models.layers.bridge import Bridge
from ctrpipe.models.layers.token_mixer import TokenMixer
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.tensorflow_learner import make_learner
from tests.models.small_models import (
    SMALL,
    batch,
    batch_of,
    compare,
    compares,
    feature_map,
    linear,
    map_of,
    randomised,
    unchanged,
)
from tests.models.test_equations import column, flat, relu, rows, softmax, tower, value

EPSILON = 1e-5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def dense(layer, x: np.ndarray) -> np.ndarray:
    return x @ value(layer.kernel) + (value(layer.bias) if layer.use_bias else 0)


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, epsilon: float = EPSILON) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + epsilon) * scale + shift


def by_norm(norm, x: np.ndarray, epsilon: float = EPSILON) -> np.ndarray:
    return layer_norm(x, value(norm.gamma), value(norm.beta), epsilon)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.array([each * 0.5 * (1 + math.erf(each / math.sqrt(2))) for each in x])


def gdcn(model, inputs) -> np.ndarray:
    found = []
    for x0 in flat(model, inputs):
        x = x0
        for layer in model.crosses:
            w, v, b = value(layer.kernel), value(layer.gate), value(layer.bias)
            x = x0 * (x @ w + b) * sigmoid(x @ v) + x
        found.append(x)
    return np.stack(found)


@compares("gdcn")
def test_gdcn_beside_an_mlp():
    model, inputs = randomised("gdcn"), batch()
    beside = tower(model.tower, flat(model, inputs))
    compare(model, inputs, dense(model.logit, np.concatenate([gdcn(model, inputs), beside], axis=1)))


def test_gdcn_below_an_mlp():
    model, inputs = randomised("gdcn", structure="stacked"), batch()
    compare(model, inputs, tower(model.tower, gdcn(model, inputs)))


@compares("final_mlp")
def test_final_mlp():
    model, inputs = unchanged("final_mlp"), batch()
    x = flat(model, inputs)
    first = 2 * sigmoid(tower(model.gates[0], value(model.vectors[0])[None]))
    second = 2 * sigmoid(tower(model.gates[1], rows(model, inputs)[:, 1]))  # the field f1
    streams = [tower(stream, x * gate) for stream, gate in zip(model.streams, (first, second), strict=True)]
    fusion, expected = model.fusion, []
    for o1, o2 in zip(*streams, strict=True):
        logit = dense(fusion.first, o1)[0] + dense(fusion.second, o2)[0]
        for head, kernel in enumerate(value(fusion.kernel)):
            logit += o1[head * 4 : (head + 1) * 4] @ kernel @ o2[head * 3 : (head + 1) * 3]
        expected.append(logit)
    compare(model, inputs, column(expected))


def normalised_fields(model, e: np.ndarray) -> np.ndarray:
    scale, shift = value(model.norm.scale), value(model.norm.shift)
    return np.concatenate([layer_norm(e[f], scale[f], shift[f]) for f in range(len(e))])


def mask_block(block, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    mask = dense(block.mask, relu(dense(block.widen, x)))
    hidden = (mask * h) @ value(block.hidden.kernel)
    return relu(hidden if block.norm is None else by_norm(block.norm, hidden))


@compares("mask_net")
def test_mask_net_in_series():
    model, inputs = unchanged("mask_net"), batch()
    expected = []
    for e in rows(model, inputs):
        h = normalised_fields(model, e)
        for block in model.blocks:
            h = mask_block(block, e.reshape(-1), h)
        expected.append(dense(model.logit, h))
    compare(model, inputs, np.stack(expected))
    assert model.blocks[0].widen.units == 16  # half of 8 fields of 4


def test_mask_net_in_parallel_and_without_norms():
    model = randomised("mask_net", structure="parallel", blocks=2, block_units=5, normalises=False)
    inputs = batch()
    blocks = [
        np.concatenate([mask_block(block, e.reshape(-1), e.reshape(-1)) for block in model.blocks])
        for e in rows(model, inputs)
    ]
    compare(model, inputs, tower(model.tower, np.stack(blocks)))


@pytest.mark.parametrize("kind", ["all", "each", "interaction"])
def test_fibinet(kind):
    model, inputs = randomised("fibinet", bilinear=kind), batch()
    products = []
    for e in rows(model, inputs):
        weights = relu(relu(e.mean(axis=1) @ value(model.senet.squeeze.kernel)) @ value(model.senet.excite.kernel))
        both = []
        for layer, side in zip(model.products, (e, e * weights[:, None]), strict=True):
            kernel = value(layer.kernel)
            for number, (i, j) in enumerate(itertools.combinations(range(len(e)), 2)):
                matrix = {"all": kernel, "each": kernel[i % len(kernel)], "interaction": kernel[number % len(kernel)]}
                both.append((side[i] @ matrix[kind]) * side[j])
        products.append(np.concatenate(both))
    compare(model, inputs, tower(model.tower, np.stack(products)) + linear(model, inputs))


@compares("fibinet")
def test_fibinet_by_default():
    test_fibinet("interaction")


def fcn_network(layers, x0: np.ndarray, exponential: bool, logit) -> float:
    logits = []
    for head in x0:
        x = head
        for layer in layers:
            c = x @ value(layer.kernel)
            mask = relu(by_norm(layer.norm, c))
            x = (x if exponential else head) * (np.concatenate([c, c * mask]) + value(layer.bias)) + x
        logits.append(dense(logit, x)[0])
    return float(np.mean(logits))


def fcn_logits(model, inputs) -> tuple[np.ndarray, np.ndarray]:
    exponential, of_linear = [], []
    for e in rows(model, inputs):
        # Of each head the first halves of all fields, then the second halves.
        heads = [np.concatenate([e[:, h : h + 1].reshape(-1), e[:, h + 1 : h + 2].reshape(-1)]) for h in (0, 2)]
        exponential.append(fcn_network(model.exponential, np.stack(heads), True, model.exponential_logit))
        of_linear.append(fcn_network(model.linear_crosses, np.stack(heads), False, model.linear_logit))
    return column(exponential), column(of_linear)


@compares("fcn")
def test_fcn():
    model, inputs = randomised("fcn"), batch()
    compare(model, inputs, np.mean(fcn_logits(model, inputs), axis=0))


def factorized(block, x: np.ndarray) -> np.ndarray:
    for layer, norm in zip(block.hidden, block.norms, strict=True):
        h2, h1 = np.split(dense(layer.dense, x), 2)
        x = np.concatenate([h2, h1 * h2]) if layer.residual == "concat" else h2 + h1 * h2
        x = (x - value(norm.moving_mean)) / np.sqrt(value(norm.moving_variance) + EPSILON)
        x = x * value(norm.gamma) + value(norm.beta)
    return x


def final_net(model, inputs) -> list[np.ndarray]:
    found = []
    for e in rows(model, inputs):
        gates = value(model.gating.kernel).T @ e + value(model.gating.bias)[:, None]
        read = np.concatenate([e, e * gates]).reshape(-1), e.reshape(-1)
        found.append(
            [
                dense(logit, factorized(block, x))[0]
                for logit, block, x in zip(model.logits, model.blocks, read, strict=True)
            ]
        )
    return [column(each) for each in np.array(found).T]


@compares("final_net")
def test_final_net():
    model, inputs = randomised("final_net"), batch()
    compare(model, inputs, np.mean(final_net(model, inputs), axis=0))
    model = randomised("final_net", residual="sum")
    compare(model, inputs, np.mean(final_net(model, inputs), axis=0))


@compares("edcn")
def test_edcn():
    model, inputs = unchanged("edcn"), batch()
    expected = []
    for e in rows(model, inputs):
        joined, first = e.reshape(-1), None
        for regulation, cross, deep in zip(model.regulations, model.crosses, model.deep, strict=True):
            g1, g2 = (np.repeat(softmax(gate), e.shape[1]) for gate in value(regulation.gates))
            c, h = g1 * joined, g2 * joined
            first = c if first is None else first
            c = first * (c @ value(cross.kernel)[:, 0]) + value(cross.bias) + c
            h = relu(dense(deep.hidden[0], h))
            joined = c * h
        expected.append(dense(model.logit, np.concatenate([c, h, joined])))
    compare(model, inputs, np.stack(expected))


def test_bridges():
    x, y = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(Bridge("sum")(x, y), x + y, rtol=1e-6)
    join = Bridge("concat")
    found = np.asarray(join(x, y))
    np.testing.assert_allclose(found, relu(dense(join.join, np.concatenate([x, y], axis=1))), rtol=1e-4, atol=1e-5)
    attend = Bridge("attention")
    found = np.asarray(attend(x, y))

    def weighted(v):
        return softmax(relu(dense(attend.hidden, v)) @ value(attend.score.kernel)) * v

    expected = [weighted(a) + weighted(b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@compares("wukong")
def test_wukong():
    model, inputs = unchanged("wukong"), batch()
    expected = []
    for x in rows(model, inputs):
        for layer in model.stack:
            products = (x @ (x.T @ value(layer.project))).reshape(-1)
            new = relu(tower(layer.mlp, by_norm(layer.norm_products, products))).reshape(3, -1)
            outputs = np.concatenate([new, value(layer.compress).T @ x])
            if layer.residual is None:
                outputs = outputs + x
            else:
                outputs = outputs + value(layer.residual).T @ x
            x = np.stack([by_norm(layer.norm, row) for row in outputs])
        expected.append(x.reshape(-1))
    compare(model, inputs, tower(model.tower, np.stack(expected)))
    assert [layer.residual is None for layer in model.stack] == [False, True]


def mixed(layer: TokenMixer, x: np.ndarray) -> np.ndarray:
    tokens, part = len(x), x.shape[1] // len(x)
    s = np.stack([np.concatenate([x[t, h * part : (h + 1) * part] for t in range(tokens)]) for h in range(tokens)])
    outputs = []
    for t in range(tokens):
        u = by_norm(layer.norm_mixed, s[t] + x[t], 1e-6)
        total = np.zeros_like(u)
        for e in range(layer.experts):
            own = slice(e * layer.ffn_dim, (e + 1) * layer.ffn_dim)
            hidden = gelu(u @ value(layer.first)[t][:, own] + value(layer.first_bias)[t, own])
            output = hidden @ value(layer.second)[t][own] + value(layer.second_bias)[t, e]
            gate = 1.0
            if layer.router is not None:
                gate = relu(u @ value(layer.router)[t][:, e] + value(layer.router_bias)[t, e])
            total += gate * output
        outputs.append(by_norm(layer.norm_ffn, total + u, 1e-6))
    return np.stack(outputs)


@compares("rank_mixer")
def test_rank_mixer():
    for changes in ({}, {"experts": 1}):
        model, inputs = randomised("rank_mixer", **changes), batch()
        expected = []
        for x in flat(model, inputs):
            parts = np.split(np.pad(x, (0, -len(x) % 2)), 2)
            tokens = np.stack([dense(layer, part) for layer, part in zip(model.project, parts, strict=True)])
            for layer in model.mixers:
                tokens = mixed(layer, tokens)
            expected.append(tokens.mean(axis=0))
        compare(model, inputs, tower(model.tower, np.stack(expected)))


@compares("qnn")
def test_qnn():
    model, inputs = unchanged("qnn"), batch()
    expected = []
    for e in rows(model, inputs):
        fields, dim = e.shape
        x = e.reshape(-1)
        for layer in model.quadratic:
            h = relu(by_norm(layer.norms[0], dense(layer.dense, x))).reshape(2, 2, -1)  # heads, products, width
            by_field = x.reshape(fields, 2, dim // 2)
            x = np.concatenate([by_field[:, head].reshape(-1) * h[head].sum(axis=0) for head in range(2)]) + x
        expected.append(dense(model.logit, x))
    compare(model, inputs, np.stack(expected))


def ppnet(model, inputs, x: np.ndarray, priors: np.ndarray) -> np.ndarray:
    h = x
    prior = np.concatenate([x, priors], axis=1)
    for layer, gate in zip(model.layers_of[0], model.gates_of[0], strict=True):
        h = relu(dense(layer.hidden[0], h)) * gate_network(gate, prior)
    return dense(model.logits[0], h)


def gate_network(gate, x: np.ndarray) -> np.ndarray:
    return 2 * sigmoid(dense(gate.gate, relu(dense(gate.hidden, x))))


@compares("ppnet")
def test_ppnet():
    model, inputs = unchanged("ppnet"), batch()
    e = rows(model, inputs)
    compare(model, inputs, ppnet(model, inputs, flat(model, inputs), np.concatenate([e[:, 1], e[:, 5]], axis=1)))


@compares("pepnet")
def test_pepnet():
    model, inputs = unchanged("pepnet"), batch()
    e, x = rows(model, inputs), flat(model, inputs)
    x = x * gate_network(model.embedding_gate, np.concatenate([e[:, 3], x], axis=1))
    compare(model, inputs, ppnet(model, inputs, x, e[:, 1]))


def test_each_task_of_ppnet_has_an_mlp_and_gates():
    data = map_of("mmoe")
    model = create("ppnet", data, **SMALL["ppnet"])
    assert model(batch()).shape == (7, 2) and len(model.gates_of) == 2
    assert model.gates_of[0][0] is not model.gates_of[1][0]


def bce(labels, logits) -> float:
    return float(np.mean(np.log1p(np.exp(logits)) - labels * logits))


def losses_of(model, inputs, **more) -> float:
    model({**inputs, **more}, training=True)
    return float(tf.add_n(model.losses)) if model.losses else 0.0


def test_the_tri_bce_loss_weighs_a_network_by_how_much_it_is_behind():
    model, inputs = randomised("fcn"), batch()
    labels = np.array([[1], [0], [0], [1], [0], [1], [0]], np.float32)
    z_e, z_l = fcn_logits(model, inputs)
    whole = bce(labels, (z_e + z_l) / 2)
    expected = sum(max(0.0, bce(labels, z) - whole) * bce(labels, z) for z in (z_e, z_l))
    assert expected > 0.01
    assert losses_of(model, inputs, label=labels) == pytest.approx(expected, rel=1e-3)
    assert losses_of(model, inputs) == 0.0  # no labels, no loss
    assert losses_of(randomised("fcn", tri_bce=False), inputs, label=labels) == 0.0


def test_the_two_block_loss_is_a_cross_entropy_against_the_common_prediction():
    model, inputs = randomised("final_net", normalization="none", gating=False), batch()
    e = rows(model, inputs).reshape(7, -1)
    each = []
    for block, logit in zip(model.blocks, model.logits, strict=True):
        x = e
        for layer in block.hidden:
            h2, h1 = np.split(dense(layer.dense, x), 2, axis=1)
            x = np.concatenate([h2, h1 * h2], axis=1)
        each.append(dense(logit, x))
    common = sigmoid(np.mean(each, axis=0))
    assert losses_of(model, inputs) == pytest.approx(sum(bce(common, z) for z in each), rel=1e-3)
    with tf.GradientTape() as tape:
        model(inputs, training=True)
        loss = tf.add_n(model.losses)
    gradient = tape.gradient(loss, model.logits[0].bias.value)
    assert float(gradient[0]) == pytest.approx(np.mean(sigmoid(each[0]) - common), abs=1e-4)  # it is a constant
    assert losses_of(randomised("final_net", blocks=1, second_units=()), inputs) == 0.0


def test_qnn_predicts_the_mean_of_two_passes_in_training():
    inputs = batch()
    plain = randomised("qnn")
    assert not plain.self_ensemble and losses_of(plain, inputs) == 0.0  # there is no dropout
    model = randomised("qnn", dropout=0.4)
    passes = []
    original = model._logits
    model._logits = lambda x, training: passes.append(np.asarray(z := original(x, training), np.float64)) or z
    logits = np.asarray(model(inputs, training=True))
    p = np.mean([sigmoid(z) for z in passes], axis=0)
    assert np.abs(passes[0] - passes[1]).max() > 0.01
    np.testing.assert_allclose(sigmoid(logits), p, rtol=1e-4, atol=1e-5)
    assert float(tf.add_n(model.losses)) == pytest.approx(sum(bce(p, z) for z in passes), rel=1e-3)
    assert len(passes) == 2 and model(inputs) is not None and len(passes) == 3


def test_the_routers_penalty_is_on_the_gates():
    model, inputs = randomised("rank_mixer", router_l1=0.5), batch()
    assert losses_of(model, inputs) > 0
    assert losses_of(randomised("rank_mixer"), inputs) == 0.0


@pytest.mark.parametrize("name", ["fcn", "final_net", "qnn"])
def test_a_training_step_has_the_models_own_loss(name):
    """The step hands FCN the labels; without them its loss would be the cross-entropy alone."""
    changes = {"qnn": {"dropout": 0.3}}.get(name, {})
    training = Training(distribution="one_device", learning_rate=0.01)
    learner = make_learner(Model(name=name, **{**SMALL[name], **changes}), training, map_of(name), 1)
    labels = np.array([[1], [0], [0], [1], [0], [1], [0]], np.float32)
    seen = []
    add = type(learner.network).add_loss
    learner.network.add_loss = lambda loss: seen.append(loss) or add(learner.network, loss)
    before = learner.weights()
    assert np.isfinite(learner.fit([(batch_of(name), labels)]))
    assert seen
    assert any(np.abs(now - old).max() > 0 for now, old in zip(learner.weights(), before, strict=True))


@pytest.mark.parametrize("name", ["fcn", "final_net", "qnn"])
def test_a_row_counts_in_the_models_own_loss_as_often_as_its_weight_says(name):
    """FCN's cross-entropies and the others' targets took a row of weight 0 for one of weight 1."""
    model, inputs = randomised(name, **{"qnn": {"self_ensemble": False}}.get(name, {})), batch()
    if name == "final_net":
        model = randomised(name, normalization="none")
    assert type(model).reads_labels
    count = len(inputs["ids"])
    labels = (np.arange(count)[:, None] % 2).astype(np.float32)
    weights = (np.arange(count)[:, None] % 3).astype(np.float32)
    kept = np.repeat(np.arange(count), weights[:, 0].astype(int))
    if name == "qnn":  # its dropout would differ from row to row
        model.self_ensemble, model._logits = True, lambda x, training, own=model._logits: own(x, False)
    weighted = losses_of(model, {**inputs, "label": labels, "weight": weights})
    repeated = losses_of(model, {key: value[kept] for key, value in {**inputs, "label": labels}.items()})
    assert weighted == pytest.approx(repeated, rel=1e-5)
    assert weighted != pytest.approx(losses_of(model, {**inputs, "label": labels}), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ppnet", {"priors": None}, "ppnet needs `priors`"),
        ("ppnet", {"priors": ["user"]}, "ppnet: user is not a field; the fields are f0, f1, f2, f3, f4, m"),
        ("ppnet", {"priors": ["f1", "f2", "f1"]}, "ppnet: f1 is named twice"),
        ("pepnet", {"domains": None}, "pepnet needs `domains`.*without one, ppnet"),
        ("pepnet", {"domains": ["scene"]}, "pepnet: scene is not a field"),
        ("final_mlp", {"first_context": ["user"]}, "final_mlp: user is not a field"),
        ("final_mlp", {"heads": 5}, "heads=5"),
        ("final_net", {"blocks": 3}, "blocks=3"),
        ("final_net", {"hidden_units": [7]}, "should be even"),
        ("final_net", {"normalization_place": "after"}, "normalises before the activation"),
        ("mask_net", {"structure": "both"}, "structure='both'"),
        ("mask_net", {"hidden_units": []}, "a width for each serial block"),
        ("fcn", {"heads": 3}, "divisible by 2 heads = 6"),
        ("fibinet", {"bilinear": "some"}, "Received: 'some'"),
        ("edcn", {"bridge": "other"}, "Received: 'other'"),
        ("edcn", {"temperature": 0.0}, "temperature"),
        ("qnn", {"heads": 3}, "should divide `embedding_dim`"),
        ("rank_mixer", {"tokens": 4}, "Received: 6 and 4"),
        ("rank_mixer", {"experts": 1, "router_l1": 0.1}, "penalty on the gates of experts"),
        ("wukong", {"rank": 0}, "rank=0"),
        ("gdcn", {"structure": "deep"}, "structure='deep'"),
    ],
)
def test_impossible_options_are_one_line(name, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        create(name, feature_map(), **{**SMALL[name], **changes})(batch())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["fcn", "final_net", "qnn"])
def test_a_model_with_a_loss_of_its_own_is_no_expert(name):
    with pytest.raises(ValueError, match=f"interaction: {name} does not combine given embeddings"):
        create("mmoe", map_of("mmoe"), embedding_dim=4, interaction={"name": name})
