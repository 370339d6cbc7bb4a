"""Every model against its paper's equation, written as loops over rows, fields and heads."""

import importlib
import itertools
import math

import numpy as np
import pytest

from ctrpipe.models import FeatureMap, available, create
from ctrpipe.models.layers.top_k_self_attention import TopKSelfAttention
from tests.models.small_models import (
    REFERENCED,
    SMALL,
    batch,
    compare,
    compares,
    dense_layers,
    embed,
    feature_map,
    linear,
    randomised,
    unchanged,
)


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def rows(model, inputs) -> np.ndarray:
    """Embeddings of the fields, and x_d v_d of the dense features where the model has them: (rows, fields, dim)."""
    found = embed(value(model.table.table), inputs["ids"])
    if model.dense_table is None:
        return found
    dense = np.stack(
        [[x * v for x, v in zip(row, value(model.dense_table.vectors), strict=True)] for row in inputs["dense"]]
    )
    return np.concatenate([found, dense], axis=1)


def flat(model, inputs) -> np.ndarray:
    found = rows(model, inputs).reshape(len(inputs["ids"]), -1)
    return found if model.embeds_dense else np.concatenate([found, inputs["dense"]], axis=1)


def tower(layer, x: np.ndarray, activation=relu) -> np.ndarray:
    for dense in layer.hidden:
        x = activation(x @ value(dense.kernel) + value(dense.bias))
    return x if layer.logits is None else x @ value(layer.logits.kernel) + value(layer.logits.bias)


def fm(e: np.ndarray) -> float:
    return sum(e[i] @ e[j] for i, j in itertools.combinations(range(len(e)), 2))


def column(values) -> np.ndarray:
    return np.array(values).reshape(len(values), -1)


def attention(layer: TopKSelfAttention, e: np.ndarray, k: int | None) -> np.ndarray:
    """Equations 3 to 8 of Attention-Net, one row, field and head at a time."""
    fields, d = e.shape
    heads, width = layer.heads, d // layer.heads
    q, key, v = (relu(e @ value(w)) for w in (layer.query, layer.key, layer.value))
    mixed = np.zeros_like(e)
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(fields):
            scores = [q[i, part] @ key[j, part] / np.sqrt(width) for j in range(fields)]
            if k is not None and k < fields:
                limit = sorted(scores, reverse=True)[k - 1]
                scores = [score if score >= limit else -np.inf for score in scores]
            weights = softmax(np.array(scores))
            for j in range(fields):
                mixed[i, part] += weights[j] * v[j, part]
    mixed += e
    return relu(mixed @ value(layer.ffn_in)) @ value(layer.ffn_out) + mixed


@compares("lr")
def test_lr_is_the_sum_of_its_weights():
    model, inputs = unchanged("lr"), batch()
    compare(model, inputs, linear(model, inputs))


@compares("lightgbm")
def test_lightgbm_is_its_trees_on_weights_and_ordinals():
    """Trees of one cut each: a dense feature, a field's weight, an ordinal, and the regression's logit."""
    model, inputs = randomised("lightgbm"), batch()
    compare(model, inputs, linear(model, inputs))  # without trees it is the regression
    fields, dense = feature_map().fields, inputs["dense"]
    weights = embed(value(model.linear.table), inputs["ids"])[:, :, 0]
    slots = np.cumsum([0] + [field.slots for field in fields])
    single = [place for place, field in enumerate(fields) if field.slots == 1]
    ordinals = np.stack([inputs["ids"][:, slots[place]] - fields[place].offset for place in single], axis=1)
    values = np.concatenate([dense, weights, ordinals, linear(model, inputs)], axis=1)
    np.testing.assert_allclose(model.values(inputs), values, atol=len(fields) * 2**-16)
    cuts = np.median(values, axis=0)
    chosen = [0, dense.shape[1], values.shape[1] - 1]
    expected = np.asarray(model.values(inputs))[:, -1].copy()  # the regression's logit, rounded as above
    compare(model, inputs, column(expected))
    parts = [np.zeros((3, 7)) for _ in range(5)]
    parts[2][:], parts[3][:] = np.arange(7), np.arange(7)
    for tree, place in enumerate(chosen):
        cut = cuts[place] + 1e-3  # no row is as near to it as rounding is coarse
        parts[0][tree, 0], parts[1][tree, 0], parts[2][tree, 0], parts[3][tree, 0] = place, cut, 1, 2
        parts[4][tree, 1:3] = [0.25 * (tree + 1), -0.5]
        expected += np.where(values[:, place] <= cut, 0.25 * (tree + 1), -0.5)
    model.trees.assign(*parts)
    compare(model, inputs, column(expected))
    model.shift_logits(0.75)
    compare(model, inputs, column(expected + 0.75))
    model.fold()  # two trees have two levels less
    assert model.trees._grown == (3, 1)
    compare(model, inputs, column(expected + 0.75))


@compares("fm")
def test_fm():
    model, inputs = randomised("fm"), batch()
    compare(model, inputs, linear(model, inputs) + column([fm(e) for e in rows(model, inputs)]))


@compares("ffm")
def test_ffm():
    model, inputs = unchanged("ffm"), batch()
    expected = []
    for e in rows(model, inputs):
        fields, dim = len(e), e.shape[1] // len(e)
        expected.append(
            sum(
                e[i, j * dim : (j + 1) * dim] @ e[j, i * dim : (i + 1) * dim]
                for i, j in itertools.combinations(range(fields), 2)
            )
        )
    compare(model, inputs, linear(model, inputs) + column(expected))


@compares("afm")
def test_afm():
    model, inputs = unchanged("afm"), batch()
    layer, expected = model.pooling, []
    for e in rows(model, inputs):
        products = [e[i] * e[j] for i, j in itertools.combinations(range(len(e)), 2)]
        scores = [
            relu(p @ value(layer.hidden.kernel) + value(layer.hidden.bias)) @ value(layer.score.kernel)[:, 0]
            for p in products
        ]
        pooled = sum(a * p for a, p in zip(softmax(np.array(scores)), products, strict=True))
        expected.append(pooled @ value(model.projection.kernel)[:, 0])
    compare(model, inputs, linear(model, inputs) + column(expected))


@pytest.mark.parametrize("name", ["mlp", "wide_deep"])
@compares("mlp", "wide_deep")
def test_mlp_is_dense_layers_on_concatenated_embeddings(name):
    model, inputs = randomised(name), batch()
    compare(model, inputs, dense_layers(model, flat(model, inputs)) + linear(model, inputs))


@compares("fnn")
def test_fnn_reads_weights_and_vectors_and_starts_from_an_fm():
    model, inputs = randomised("fnn"), batch()
    source = randomised("fm")
    model.take_weights(source)
    np.testing.assert_array_equal(model.table.table, source.table.table)
    weights = embed(value(source.linear.table), inputs["ids"])[:, :, 0]
    dense = inputs["dense"] * value(source.linear_dense.kernel)[:, 0]
    x = np.concatenate([flat(model, inputs), weights, dense], axis=1)
    compare(model, inputs, tower(model.tower, x, np.tanh))


def convolve(layer, maps: np.ndarray) -> np.ndarray:
    """(fields, dim, channels) -> the k largest of the convolution along the fields, in their order."""
    fields, dim, channels = maps.shape
    kernel, width = value(layer.kernel), layer.width
    before = (width - 1) // 2
    keep = min(layer.keep, fields)
    out = np.zeros((keep, dim, layer.filters))
    for d in range(dim):
        for f in range(layer.filters):
            sums = []
            for position in range(fields):
                total = value(layer.bias)[f]
                for step in range(width):
                    source = position + step - before
                    if 0 <= source < fields:
                        total += sum(kernel[step, c, f] * maps[source, d, c] for c in range(channels))
                sums.append(total)
            places = sorted(sorted(range(fields), key=lambda place: -sums[place])[:keep])
            out[:, d, f] = [math.tanh(sums[place]) for place in places]
    return out


@compares("ccpm")
def test_ccpm():
    model, inputs = unchanged("ccpm"), batch()
    expected = []
    for e in rows(model, inputs):
        maps = e[:, :, None]
        for layer in model.convolutions:
            maps = convolve(layer, maps)
        expected.append(maps.reshape(-1))
    assert [layer.keep for layer in model.convolutions] == [4, 3]  # half of 8 fields, then 3
    compare(model, inputs, tower(model.tower, np.stack(expected)))


@compares("pnn")
def test_pnn_with_inner_outer_and_kernel_products():
    model, inputs = unchanged("pnn"), batch()
    kernel, expected = value(model.products[2].kernel), []
    for e in rows(model, inputs):
        pairs = list(itertools.combinations(range(len(e)), 2))
        inner = [e[i] @ e[j] for i, j in pairs]
        outer = sum(np.outer(e[i], e[j]) for i in range(len(e)) for j in range(len(e))).reshape(-1)
        weighted = [e[i] @ kernel[p] @ e[j] for p, (i, j) in enumerate(pairs)]
        expected.append(np.concatenate([e.reshape(-1), inner, outer, weighted]))
    compare(model, inputs, tower(model.tower, np.stack(expected)))


@compares("deepfm")
def test_deepfm():
    model, inputs = unchanged("deepfm"), batch()
    second_order = column([fm(e) for e in rows(model, inputs)])
    compare(model, inputs, linear(model, inputs) + second_order + tower(model.tower, flat(model, inputs)))


def vector_crosses(layers, x0: np.ndarray) -> np.ndarray:
    x = x0
    for layer in layers:
        x = x0 * (x @ value(layer.kernel)[:, 0]) + x + (value(layer.bias) if layer.use_bias else 0)
    return x


@compares("crossnet", "dcn")
def test_crossnet_and_dcn():
    inputs = batch()
    for name in ("crossnet", "dcn"):
        model = randomised(name)
        x0 = flat(model, inputs)
        crossed = np.stack([vector_crosses(model.crosses, row) for row in x0])
        if name == "dcn":
            crossed = np.concatenate([crossed, tower(model.tower, x0)], axis=1)
        compare(model, inputs, crossed @ value(model.logit.kernel) + value(model.logit.bias))


def matrix_crosses(layers, x0: np.ndarray) -> np.ndarray:
    x = x0
    for layer in layers:
        kernel = value(layer.dense.kernel)
        if layer.projection_dim:
            kernel = value(layer.down_proj_dense.kernel) @ kernel
        x = x0 * (x @ kernel + value(layer.dense.bias)) + x
    return x


@pytest.mark.parametrize("changes", [{}, {"structure": "stacked"}, {"hidden_units": ()}, {"rank": 3}])
@compares("dcn_v2")
def test_dcn_v2(changes):
    model, inputs = randomised("dcn_v2", **changes), batch()
    x0 = flat(model, inputs)
    x = np.stack([matrix_crosses(model.crosses, row) for row in x0])
    if changes.get("structure") == "stacked":
        x = tower(model.tower, x)
    elif "hidden_units" not in changes:
        x = np.concatenate([x, tower(model.tower, x0)], axis=1)
    compare(model, inputs, x @ value(model.logit.kernel) + value(model.logit.bias))


@compares("dlrm")
def test_dlrm():
    model, inputs = unchanged("dlrm"), batch()
    bottom = tower(model.bottom, inputs["dense"].astype(np.float64))
    expected = []
    for b, e in zip(bottom, rows(model, inputs), strict=True):
        vectors = np.concatenate([b[None], e])
        dots = [vectors[i] @ vectors[j] for i in range(len(vectors)) for j in range(i)]
        expected.append(np.concatenate([b, dots]))
    compare(model, inputs, tower(model.tower, np.stack(expected)))


def cin(layer, e: np.ndarray) -> np.ndarray:
    """Equations 6 and 7 (9 with ranks) of xDeepFM, one map and pair of fields at a time."""
    act = {"linear": lambda x: x, "relu": relu}[layer.activation]
    x, pools = e, []
    for k, weight in enumerate(layer.weights_of_layers):
        if layer.rank is None:
            w = value(weight[0])
        else:
            u, v = value(weight[0]), value(weight[1])
            w = np.zeros((len(u), len(v), u.shape[1]))
            for h in range(u.shape[1]):
                w[:, :, h] = u[:, h] @ v[:, h].T
        maps = np.zeros((w.shape[2], e.shape[1]))
        for h in range(w.shape[2]):
            for i in range(len(x)):
                for j in range(len(e)):
                    maps[h] += w[i, j, h] * (x[i] * e[j])
        maps = act(maps)
        half = len(maps) // 2 if layer.split_half and k < len(layer.maps) - 1 else 0
        pools.append((maps[:half] if half else maps).sum(axis=1))
        x = maps[half:]
    return np.concatenate(pools)


@pytest.mark.parametrize(
    "changes",
    [{}, {"split_half": True}, {"cin_activation": "relu"}, {"rank": 2}, {"rank": 3, "split_half": True}],
)
@compares("cin")
def test_cin(changes):
    model, inputs = randomised("cin", maps=(4, 6, 3), **changes), batch()
    pooled = np.stack([cin(model.cin, e) for e in rows(model, inputs)])
    compare(model, inputs, pooled @ value(model.logit.kernel) + value(model.logit.bias))


@compares("xdeepfm")
def test_xdeepfm_is_linear_part_cin_and_dnn():
    model, inputs = unchanged("xdeepfm"), batch()
    pooled = np.stack([cin(model.cin, e) for e in rows(model, inputs)])
    explicit = pooled @ value(model.logit.kernel) + value(model.logit.bias)
    compare(model, inputs, linear(model, inputs) + explicit + tower(model.tower, flat(model, inputs)))


def interacting(layer, e: np.ndarray) -> np.ndarray:
    fields, width = len(e), layer.dim // layer.heads
    q, k, v = (e @ value(w) for w in (layer.query, layer.key, layer.value))
    out = np.zeros((fields, layer.dim))
    for h in range(layer.heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(fields):
            scores = np.array([q[i, part] @ k[j, part] for j in range(fields)])
            weights = softmax(scores / np.sqrt(width) if layer.scaled else scores)
            out[i, part] = sum(weights[j] * v[j, part] for j in range(fields))
    return relu(out + e @ value(layer.residual) if layer.use_residual else out)


@pytest.mark.parametrize(
    "changes", [{}, {"scaled": True}, {"use_residual": False}, {"hidden_units": (), "deep_units": ()}]
)
@compares("autoint")
def test_autoint(changes):
    model, inputs = randomised("autoint", **changes), batch()
    expected = []
    for e in rows(model, inputs):
        for layer in model.attention:
            e = interacting(layer, e)
        expected.append(e.reshape(-1))
    logits = tower(model.tower, np.stack(expected))
    if model.deep is not None:
        logits = logits + tower(model.deep, flat(model, inputs))
    compare(model, inputs, logits)


@pytest.mark.parametrize("k", [1, 2, 5, None])
@compares("attention_net")
def test_attention_net_is_the_papers_equations(k):
    model, inputs = randomised("attention_net", top_k=k), batch()
    expected = []
    for e in rows(model, inputs):
        for layer in model.attention:
            e = attention(layer, e, k)
        expected.append(e.reshape(-1))
    compare(model, inputs, tower(model.tower, np.concatenate([np.stack(expected), inputs["dense"]], axis=1)))


def gelu(x):
    return np.vectorize(lambda z: 0.5 * z * (1 + math.erf(z / math.sqrt(2))))(x)


def layer_norm(norm, x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * value(norm.gamma) + value(norm.beta)


def projected(layer, name: str, head: int, token: int, e: np.ndarray, count: int, width: int) -> np.ndarray:
    """The query, key or value of one token in one head."""
    if layer.projection == "composite":
        everything = e.reshape(-1)
        if hasattr(layer, f"{name}_kernel"):
            kernel = value(getattr(layer, f"{name}_kernel"))
            matrix = kernel[:, head * count * width : (head + 1) * count * width]
        else:
            left, right = value(getattr(layer, f"{name}_left")), value(getattr(layer, f"{name}_right"))
            rank = right.shape[1]
            matrix = left[:, head * rank : (head + 1) * rank] @ right[head]
        return (everything @ matrix)[token * width : (token + 1) * width]
    kernel = value(getattr(layer, f"{name}_kernel"))
    if layer.projection == "feature":
        kernel = kernel[token]
    own = token if name != "query" else token + len(e) - layer.outputs
    return e[own] @ kernel[:, head * width : (head + 1) * width]


def encode(layer, e: np.ndarray) -> np.ndarray:
    """Equations 1 to 7 of Hiformer, one token and head at a time."""
    tokens, outputs = len(e), []
    for i in range(layer.outputs):
        heads = []
        for h in range(layer.heads):
            q = projected(layer, "query", h, i, e, layer.outputs, layer.key_dim)
            scores = [
                q @ projected(layer, "key", h, j, e, tokens, layer.key_dim) / np.sqrt(layer.key_dim)
                for j in range(tokens)
            ]
            weights = softmax(np.array(scores))
            heads.append(
                sum(weights[j] * projected(layer, "value", h, j, e, tokens, layer.value_dim) for j in range(tokens))
            )
        parts = (layer.output_kernel, layer.ffn_in_kernel, layer.ffn_in_bias, layer.ffn_out_kernel, layer.ffn_out_bias)
        o, w1, b1, w2, b2 = (value(w) if layer.projection == "shared" else value(w)[i] for w in parts)
        u = layer_norm(layer.norm_attention, e[i + tokens - layer.outputs] + np.concatenate(heads) @ o)
        outputs.append(layer_norm(layer.norm_ffn, u + gelu(u @ w1 + b1) @ w2 + b2))
    return np.stack(outputs)


def two_tasks() -> FeatureMap:
    one = feature_map()
    return FeatureMap(one.fields, one.dense, ("ctr", "cvr"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer", {}),
        ("transformer", {"prune": False}),
        ("transformer_pe", {}),
        ("hetero_att", {}),
        pytest.param("hetero_att", {"prune": False, "layers": 3}, marks=pytest.mark.large),  # as the transformer
        ("hiformer", {}),
        ("hiformer", {"qk_rank": None, "v_rank": None}),
        pytest.param("hiformer", {"qk_rank": None, "prune": False}, marks=pytest.mark.large),
    ],
)
@compares("transformer", "transformer_pe", "hetero_att", "hiformer")
def test_the_transformer_family(name, changes):
    model, inputs = randomised(name, two_tasks(), **changes), batch(3)
    dense = tower(model.dense_mlp, inputs["dense"].astype(np.float64)).reshape(len(inputs["ids"]), 2, -1)
    expected = []
    for e, d in zip(rows(model, inputs), dense, strict=True):
        tokens = np.concatenate([e, d])
        if name == "transformer_pe":
            tokens = tokens + value(model.feature_encoding)
        tokens = np.concatenate([tokens, value(model.task_tokens)])
        for layer in model.encoder:
            tokens = encode(layer, tokens)
        expected.append(np.concatenate([tower(t, tokens[i - 2]) for i, t in enumerate(model.towers)]))
    compare(model, inputs, np.stack(expected))


@compares("autoint")
def test_autoint_in_hiformers_comparison_attends_to_dense_and_task_tokens():
    changes = {"dense_tokens": 2, "dense_units": (3,), "task_tokens": True, "deep_units": ()}
    model, inputs = randomised("autoint", two_tasks(), **changes), batch()
    dense = tower(model.dense_mlp, inputs["dense"].astype(np.float64)).reshape(len(inputs["ids"]), 2, -1)
    encoded = []
    for fields, d in zip(embed(value(model.table.table), inputs["ids"]), dense, strict=True):
        e = np.concatenate([fields, d, value(model.task_tokens)])
        for layer in model.attention:
            e = interacting(layer, e)
        encoded.append(e.reshape(-1))
    compare(model, inputs, tower(model.tower, np.stack(encoded)))
    assert [len(maps[0][0]) for maps in model.attention_maps(inputs)] == [len(e)] * 2


def test_every_model_is_compared_with_a_reference():
    # The tests of models that need other data, which mark them.
    for module in (
        "test_text_models",
        "test_history_models",
        "test_two_tower",
        "test_starspace",
        "test_multi_task_models",
        "test_interaction_models",
    ):
        importlib.import_module(f"tests.models.{module}")
    assert sorted(REFERENCED) == [model.name for model in available()] == sorted(SMALL)


@pytest.mark.parametrize("compared", [(), ("fm",), ("lr", "fm")])
def test_a_test_that_does_not_compare_what_it_says_fails(compared):
    @compares("lr")
    def claims() -> None:
        for name in compared:
            inputs = batch()
            compare(model := randomised(name), inputs, np.asarray(model(inputs)))

    with pytest.raises(AssertionError):
        claims()


def test_models_of_one_number_refuse_several_labels():
    for name in ("fm", "ffm", "afm", "fnn", "deepfm", "lightgbm"):
        with pytest.raises(ValueError, match=f"{name} predicts one task.*ctr, cvr"):
            create(name, two_tasks())
