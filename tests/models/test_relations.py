"""Exact relations between models: special cases, symmetries, counts, and weights that can be read off."""

import dataclasses
import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.losses import BinaryCrossEntropy
from ctrpipe.models.layers.cin import CIN
from ctrpipe.models.layers.encoder_layer import EncoderLayer
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.interacting_layer import InteractingLayer
from ctrpipe.models.layers.top_k_self_attention import TopKSelfAttention
from tests.models.small_models import (
    KINDS,
    SMALL,
    WITH_ITEMS,
    WITH_TASKS,
    WITH_TEXT,
    batch,
    cases_of,
    embed,
    feature_map,
    randomised,
    unchanged,
)

# The others: test_text_models.py, test_history_models.py, test_two_tower.py.
WITHOUT_TEXT = [name for name in SMALL if name not in (*WITH_TEXT, *WITH_ITEMS)]


def close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def with_weights(layer: keras.layers.Layer, rows: np.ndarray, scale: float = 1.0) -> keras.layers.Layer:
    """The layer, built for `rows`, with random weights: the same for layers of the same weights."""
    layer(rows)
    random = np.random.default_rng(1)
    for weight in layer.trainable_variables:
        weight.assign(random.normal(scale=scale, size=weight.shape).astype(np.float32))
    return layer


def random_rows(shape=(4, 6, 4), seed=2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# Attention-Net


@pytest.mark.parametrize("k", [6, 9])
def test_top_k_of_all_fields_is_plain_attention(k):
    rows = random_rows()
    layer, plain = (with_weights(TopKSelfAttention(2, top_k), rows) for top_k in (k, None))
    np.testing.assert_array_equal(layer(rows), plain(rows))
    assert np.abs(plain(rows) - with_weights(TopKSelfAttention(2, 5), rows)(rows)).max() > 1e-3


def top_k_scores(layer: TopKSelfAttention, rows: np.ndarray) -> np.ndarray:
    width = rows.shape[2] // layer.heads
    query, key = (
        np.maximum(rows @ weight.numpy(), 0).reshape(*rows.shape[:2], layer.heads, width)
        for weight in (layer.query, layer.key)
    )
    return np.einsum("nihd,njhd->nhij", query, key)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 8])
def test_a_row_of_attention_has_min_k_m_weights_and_more_only_where_scores_tie_with_the_kth(k):
    rows = random_rows()
    layer = with_weights(TopKSelfAttention(2, k), rows)
    counts = (layer(rows, return_attention=True)[1].numpy() > 0).sum(axis=-1)
    scores = top_k_scores(layer, rows)
    kept = min(k, 6)
    kth = np.sort(scores, axis=-1)[..., -kept : 6 - kept + 1]
    tied = (np.abs(scores - kth) < 1e-6).sum(axis=-1)
    assert (counts[tied == 1] == kept).all() and (tied == 1).any()
    np.testing.assert_array_equal(counts, (scores >= kth - 1e-6).sum(axis=-1))
    if k in (3, 5):
        assert counts.max() > k  # ReLU makes ties at zero


def test_fields_with_equal_scores_are_kept_together():
    rows = random_rows()
    rows[:, 4] = rows[:, 1]
    layer = with_weights(TopKSelfAttention(1, 1), rows)
    maps = layer(rows, return_attention=True)[1].numpy()[:, 0]
    np.testing.assert_array_equal(maps[:, :, 1], maps[:, :, 4])
    assert np.isclose(maps[:, :, 1], 0.5, atol=1e-6).any()  # half of the weight, but for rounding


@pytest.mark.parametrize(
    "layer",
    [*[TopKSelfAttention(2, k) for k in (1, 2, 3, None)], InteractingLayer(6), EncoderLayer(heads=2, ffn_dim=5)],
    ids=lambda layer: f"{type(layer).__name__}-{getattr(layer, 'top_k', None)}",
)
def test_the_order_of_fields_does_not_matter_to_the_attention(layer):
    rows, order = random_rows(), np.random.default_rng(2).permutation(6)
    with_weights(layer, rows)
    outputs, maps = layer(rows, return_attention=True)
    moved_outputs, moved_maps = layer(rows[:, order], return_attention=True)
    close(moved_outputs, outputs.numpy()[:, order])
    close(moved_maps, maps.numpy()[:, :, order][:, :, :, order])


# xDeepFM


@pytest.mark.parametrize("dim", [2, 7])
@pytest.mark.parametrize("maps", [(4,), (6, 4), (8, 6, 3)])
def test_cin_parameters_do_not_depend_on_the_width(maps, dim):
    fields, shape = 5, (2, 5, dim)

    def count(**changes) -> int:
        layer = CIN(maps, **changes)
        layer.build(shape)
        return layer.count_params()

    before = [fields, *maps]
    assert count() == sum(h * previous * fields for h, previous in zip(maps, before, strict=False))
    handed_on = [fields, *[h // 2 for h in maps]]
    assert count(split_half=True) == sum(h * previous * fields for h, previous in zip(maps, handed_on, strict=False))
    assert count(rank=3) == sum(h * (previous + fields) * 3 for h, previous in zip(maps, before, strict=False))


@pytest.mark.parametrize("changes", [{}, {"split_half": True}, {"rank": 2}])
@pytest.mark.parametrize("factor", [0.5, -1.5, 2.0])
def test_scaling_the_embeddings_scales_layer_k_by_the_power_k_plus_1(factor, changes):
    rows = random_rows()
    layer = with_weights(CIN((4, 6, 3), **changes), rows, 0.3)
    pools, scaled = np.asarray(layer(rows)), np.asarray(layer(factor * rows))
    widths = (2, 3, 3) if changes.get("split_half") else (4, 6, 3)
    parts = np.split(np.arange(sum(widths)), np.cumsum(widths)[:-1])
    for k, part in enumerate(parts, start=1):
        np.testing.assert_allclose(scaled[:, part], factor ** (k + 1) * pools[:, part], rtol=1e-3, atol=1e-4)
    assert np.abs(pools).min(axis=0).max() > 0.01


def test_one_map_of_ones_above_the_diagonal_is_an_fm():
    inputs, fm = batch(), randomised("fm")
    model = randomised("xdeepfm", maps=(1,), hidden_units=(), split_half=False, cin_activation="linear")
    model.table.table.assign(fm.table.table)
    model.dense_table.vectors.assign(fm.dense_table.vectors)
    model.linear.table.assign(fm.linear.table)
    model.linear_dense.set_weights(fm.linear_dense.get_weights())
    model.cin.weights_of_layers[0][0].assign(np.triu(np.ones((8, 8)), 1)[:, :, None])
    model.logit.set_weights([np.ones((1, 1)), np.zeros(1)])
    close(model(inputs), fm(inputs))


def test_a_cross_network_without_biases_gives_a_multiple_of_its_input():
    inputs = batch()
    model = randomised("crossnet", use_bias=False, layers=3)
    rows = model.rows(inputs)
    x0, x = np.asarray(model.flatten(rows, inputs)), np.asarray(model.cross(rows, inputs))
    factors = (x * x0).sum(axis=1) / (x0 * x0).sum(axis=1)
    close(x, factors[:, None] * x0)
    assert np.ptp(factors) > 0.1  # one factor a row, not one for all


# Hiformer


def two_tasks() -> FeatureMap:
    return FeatureMap(feature_map().fields, feature_map().dense, ("ctr", "cvr"))


def take_common(target: keras.Model, source: keras.Model) -> None:
    """All weights but the encoder layers'."""
    for mine, theirs in zip(target.weights, source.weights, strict=True):
        if "/encoder_" not in mine.path:
            mine.assign(theirs)


def take_norms(target: EncoderLayer, source: EncoderLayer) -> None:
    target.norm_attention.set_weights(source.norm_attention.get_weights())
    target.norm_ffn.set_weights(source.norm_ffn.get_weights())


OWN = ("output_kernel", "ffn_in_kernel", "ffn_in_bias", "ffn_out_kernel", "ffn_out_bias")
PROJECTIONS = ("query", "key", "value")


@pytest.mark.slow
@pytest.mark.parametrize("prune", [True, False])
def test_hetero_att_with_tied_projections_is_the_transformer(prune):
    inputs = batch()
    model, tied = (randomised(name, two_tasks(), prune=prune) for name in ("transformer", "hetero_att"))
    take_common(tied, model)
    for target, source in zip(tied.encoder, model.encoder, strict=True):
        for name in (*[f"{projection}_kernel" for projection in PROJECTIONS], *OWN):
            weight = getattr(target, name)
            weight.assign(np.broadcast_to(getattr(source, name).numpy(), weight.shape))
        take_norms(target, source)
    close(tied(inputs), model(inputs))


def block_diagonal(kernel: np.ndarray, heads: int, tokens: int) -> np.ndarray:
    """(count, dim, heads * width) of the last `count` tokens -> the composite (tokens * dim, heads * count * width)."""
    count, dim, width = kernel.shape[0], kernel.shape[1], kernel.shape[2] // heads
    composite = np.zeros((tokens, dim, heads, count, width))
    for index in range(count):
        composite[tokens - count + index, :, :, index] = kernel[index].reshape(dim, heads, width)
    return composite.reshape(tokens * dim, heads * count * width)


@pytest.mark.slow
@pytest.mark.parametrize("prune", [True, False])
def test_hiformer_with_block_diagonal_projections_is_hetero_att(prune):
    inputs = batch()
    model = randomised("hetero_att", two_tasks(), prune=prune)
    blocks = randomised("hiformer", two_tasks(), prune=prune, qk_rank=None, v_rank=None)
    take_common(blocks, model)
    for target, source in zip(blocks.encoder, model.encoder, strict=True):
        for name in PROJECTIONS:
            kernel = getattr(source, f"{name}_kernel").numpy()
            getattr(target, f"{name}_kernel").assign(block_diagonal(kernel, source.heads, source.tokens))
        for name in OWN:
            getattr(target, name).assign(getattr(source, name))
        take_norms(target, source)
    close(blocks(inputs), model(inputs))


def factorise(layer: EncoderLayer, name: str, kernel: np.ndarray) -> None:
    """Sets L and R of every head to the factors of its full matrix, padded with zeros to the layer's rank."""
    left, right = getattr(layer, f"{name}_left"), getattr(layer, f"{name}_right")
    heads, rank, width = right.shape
    lefts, rights = np.zeros((left.shape[0], heads, rank)), np.zeros(right.shape)
    for head in range(heads):
        u, s, v = np.linalg.svd(kernel[:, head * width : (head + 1) * width], full_matrices=False)
        lefts[:, head, : len(s)], rights[head, : len(s)] = u * s, v
    left.assign(lefts.reshape(left.shape))
    right.assign(rights)


@pytest.mark.slow
@pytest.mark.parametrize("prune", [True, False])
def test_full_rank_is_the_unfactorised_hiformer(prune):
    inputs, tokens = batch(), 10  # 6 fields, 2 of the dense features, 2 tasks
    full = randomised("hiformer", two_tasks(), prune=prune, qk_rank=None, v_rank=None)
    ranks = {"qk_rank": min(tokens * 4, tokens * 3), "v_rank": min(tokens * 4, tokens * 2)}
    low = create("hiformer", two_tasks(), **{**SMALL["hiformer"], **ranks, "prune": prune})
    low(inputs)
    for mine, theirs in zip(_others(low), _others(full), strict=True):
        mine.assign(theirs)
    for target, source in zip(low.encoder, full.encoder, strict=True):
        for name in PROJECTIONS:
            factorise(target, name, getattr(source, f"{name}_kernel").numpy())
    close(low(inputs), full(inputs))
    for found, expected in zip(low.singular_values(), full.singular_values(), strict=True):
        close(found, expected)


def _others(model: keras.Model) -> list[keras.Variable]:
    """All weights but the composite projections."""
    return [weight for weight in model.weights if not re.search("/(query|key|value)_(kernel|left|right)$", weight.path)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer", {}),
        ("transformer_pe", {}),
        ("hetero_att", {}),
        ("hiformer", {}),
        ("hiformer", {"qk_rank": None, "v_rank": None}),
    ],
)
def test_a_pruned_last_layer_gives_the_same_task_outputs(name, changes):
    inputs = batch()
    whole = randomised(name, two_tasks(), prune=False, **changes)
    pruned = randomised(name, two_tasks(), prune=True, **changes)
    take_common(pruned, whole)
    pruned.encoder[0].set_weights(whole.encoder[0].get_weights())
    target, source = pruned.encoder[1], whole.encoder[1]
    assert (target.outputs, source.outputs) == (2, 10)
    for mine, theirs in zip(target.weights, source.weights, strict=True):
        value = theirs.numpy()
        if mine.shape == theirs.shape:
            mine.assign(value)
        elif mine.path.endswith("/query_kernel") and name == "hiformer":
            per_token = value.reshape(len(value), source.heads, source.tokens, source.key_dim)
            mine.assign(per_token[:, :, -2:].reshape(mine.shape))
        elif mine.path.endswith("/query_right"):
            mine.assign(value[:, :, -2 * source.key_dim :])
        else:
            mine.assign(value[-2:])
    close(pruned(inputs), whole(inputs))


# The order of the fields, in whole models

ORDER = (3, 5, 0, 4, 2, 1)


def permuted_map() -> FeatureMap:
    fields = [feature_map().fields[index] for index in ORDER]
    sizes = [(field.name, field.kind, field.size - 2, field.slots, field.role) for field in fields]
    return FeatureMap.from_sizes(sizes, feature_map().dense[::-1])


def permuted(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same rows, as `permuted_map` describes them."""
    columns, slot = {}, 0
    for field in feature_map().fields:
        columns[field.name] = inputs["ids"][:, slot : slot + field.slots], field.offset
        slot += field.slots
    ids = []
    for field in permuted_map().fields:
        column, offset = columns[field.name]
        ids.append(np.where(column > 0, column - offset + field.offset, 0))
    return {"ids": np.concatenate(ids, axis=1).astype(np.int32), "dense": inputs["dense"][:, ::-1]}


def cells(names: list, width: int) -> list:
    return [(name, index) for name in names for index in range(width)]


def pairs(names: list, kind: str) -> list:
    return [(kind, frozenset(pair)) for pair in itertools.combinations(names, 2)]


def field_weights(name: str, model: keras.Model) -> list[tuple[keras.Variable, list[list]]]:
    """Every weight that depends on the order of the fields, with what each index of its leading axes belongs to."""
    data = model.feature_map
    fields, dense = [field.name for field in data.fields], list(data.dense)
    ids = ["padding", *[(field.name, index) for field in data.fields for index in range(field.size)]]
    rows = fields + dense if model.embeds_dense else fields
    flat = cells(rows, 4) + ([] if model.embeds_dense else dense)
    own = cells(rows, 3) if name == "ffm" else range(4)  # of the embedding's columns
    found = [] if model.table is None else [(model.table.table, [ids, own])]
    if model.dense_table is not None:
        found.append((model.dense_table.vectors, [dense, own]))
    if model.linear is not None:
        found.append((model.linear.table, [ids]))
    if model.linear_dense is not None:
        found.append((model.linear_dense.kernel, [dense]))
    if name in ("transformer", "transformer_pe", "hetero_att", "hiformer"):
        return found + token_weights(name, model, fields, dense)
    if name in ("cin", "xdeepfm"):
        first, second = (weight for [weight] in model.cin.weights_of_layers)
        found += [(first, [rows, rows]), (second, [range(second.shape[0]), rows])]
    if name in ("dcn", "crossnet", "dcn_v2"):
        for layer in model.crosses:
            layer = layer if name != "dcn_v2" else layer.dense
            found += [(layer.kernel, [flat, flat] if name == "dcn_v2" else [flat]), (layer.bias, [flat])]
        found.append((model.logit.kernel, [flat if name == "crossnet" else [*flat, *range(8)]]))
    if name == "pnn":
        entries = [
            frozenset(((first, i), (second, j)))
            for first, second in itertools.combinations(rows, 2)
            for i in range(4)
            for j in range(4)
        ]
        found.append((model.products[2].kernel, [entries]))
    if name == "dlrm":
        found.append((model.bottom.hidden[0].kernel, [dense]))
    if name == "autoint":
        found.append((model.deep.hidden[0].kernel, [flat]))
    if name in WITH_TASKS:
        found += [(inner.tower.hidden[0].kernel, [flat]) for inner in model.interactions]
        found += [(gate.kernel, [flat]) for gate in getattr(model, "gates", [])[:3]]  # those of the first level
    if name == "fnn":
        found.append((model.dense_weights.vectors, [dense]))
    found += of_new_models(name, model, rows, flat)
    into_tower = {
        "wukong": range(20),
        "fnn": [*flat, *fields, *dense],
        "pnn": [*flat, *pairs(rows, "inner"), *range(16), *pairs(rows, "kernel")],
        "dlrm": [*range(4), *lower_pairs(["bottom", *fields])],
        "autoint": cells(rows, 6),
    }
    if getattr(model, "tower", None) is not None and name not in IN_ORDER_OF_FIELDS[1:]:
        first = model.reduce if name == "features_only" else model.tower.hidden[0]
        found.append((first.kernel, [into_tower.get(name, flat)]))
    return found


def of_new_models(name: str, model: keras.Model, rows: list, flat: list) -> list[tuple[keras.Variable, list[list]]]:
    """The permuted weights of the interaction models since 2021."""
    found = []
    if name == "gdcn":
        for layer in model.crosses:
            found += [(layer.kernel, [flat, flat]), (layer.gate, [flat, flat]), (layer.bias, [flat])]
        found.append((model.logit.kernel, [[*flat, *range(8)]]))
    if name == "final_mlp":
        found += [(stream.hidden[0].kernel, [flat]) for stream in model.streams]
        for gate in model.gates:
            found += [(gate.logits.kernel, [range(8), flat]), (gate.logits.bias, [flat])]
    if name == "mask_net":
        first = model.blocks[0]
        found += [(model.norm.scale, [rows]), (model.norm.shift, [rows]), (first.hidden.kernel, [flat])]
        found += [(first.mask.kernel, [range(first.widen.units), flat]), (first.mask.bias, [flat])]
        found += [(block.widen.kernel, [flat]) for block in model.blocks]
    if name == "fcn":
        halves = [(row, half) for half in range(2) for row in rows]
        for layer in (*model.exponential, *model.linear_crosses):
            found += [(layer.kernel, [halves, rows]), (layer.bias, [halves])]
            found += [(layer.norm.gamma, [rows]), (layer.norm.beta, [rows])]
        found += [(logit.kernel, [halves]) for logit in (model.exponential_logit, model.linear_logit)]
    if name == "final_net":
        first, second = (block.hidden[0].dense.kernel for block in model.blocks)
        found += [(first, [[*flat, *(("gated", cell) for cell in flat)]]), (second, [flat])]
        found += [(model.gating.kernel, [rows, rows]), (model.gating.bias, [rows])]
    if name == "edcn":
        for regulation, cross, deep in zip(model.regulations, model.crosses, model.deep, strict=True):
            found += [(regulation.gates, [range(2), rows]), (cross.kernel, [flat]), (cross.bias, [flat])]
            found += [(deep.hidden[0].kernel, [flat, flat]), (deep.hidden[0].bias, [flat])]
        found.append((model.logit.kernel, [[(part, cell) for part in range(3) for cell in flat]]))
    if name in ("ppnet", "pepnet"):
        for layers, gates in zip(model.layers_of, model.gates_of, strict=True):
            found.append((layers[0].hidden[0].kernel, [flat]))
            found += [(gate.hidden.kernel, [[*flat, *range(4 * len(model.priors))]]) for gate in gates]
    if name == "pepnet":
        gate = model.embedding_gate
        found += [(gate.hidden.kernel, [[*range(4), *flat]]), (gate.gate.kernel, [range(3), flat])]
        found.append((gate.gate.bias, [flat]))
    if name == "wukong":
        first = model.stack[0]
        found += [(weight, [rows]) for weight in (first.project, first.compress, first.residual)]
        products = cells(rows, 2)
        found += [(weight, [products]) for weight in (first.norm_products.gamma, first.norm_products.beta)]
        found.append((first.mlp.hidden[0].kernel, [products]))
    return found


# A convolution along the fields, a matrix for the first field of a pair, heads and tokens that cut the embeddings: the
# order of the fields is a part of these models.
IN_ORDER_OF_FIELDS = ("ccpm", "fibinet", "qnn", "rank_mixer")
# Of each way in which weights belong to fields.
PERMUTED = (*KINDS, *IN_ORDER_OF_FIELDS, "ffm", "pnn", "attention_net", "transformer", "final_mlp", "pepnet", "wukong")


def lower_pairs(names: list) -> list:
    return [frozenset((names[i], names[j])) for i in range(len(names)) for j in range(i)]


def token_weights(name, model, fields, dense) -> list[tuple[keras.Variable, list[list]]]:
    not_tasks = [*fields, "first dense token", "second dense token"]
    found = [(model.dense_mlp.hidden[0].kernel, [dense])]
    if name == "transformer_pe":
        found.append((model.feature_encoding, [not_tasks]))
    if name in ("transformer", "transformer_pe"):
        return found
    tokens = [*not_tasks, "task"]
    for layer in model.encoder:
        if name == "hetero_att":
            found += [(layer.key_kernel, [tokens]), (layer.value_kernel, [tokens])]
        else:
            widths = {"query": layer.key_dim, "key": layer.key_dim, "value": layer.value_dim}
            for projection, width in widths.items():
                right = getattr(layer, f"{projection}_right")
                found.append((getattr(layer, f"{projection}_left"), [cells(tokens, 4)]))
                if right.shape[2] > width:  # not the pruned query's
                    found.append((right, [range(right.shape[0]), range(right.shape[1]), cells(tokens, width)]))
        if layer.outputs == len(tokens):
            found += [(getattr(layer, part), [tokens]) for part in OWN]
            found += [(layer.query_kernel, [tokens])] if name == "hetero_att" else []
    return found


def move(source: keras.Variable, axes: list[list], target: keras.Variable, target_axes: list[list]) -> None:
    value = source.numpy().reshape(*[len(axis) for axis in axes], -1)
    for number, (axis, wanted) in enumerate(zip(axes, target_axes, strict=True)):
        where = {label: index for index, label in enumerate(axis)}
        value = np.take(value, [where[label] for label in wanted], axis=number)
    target.assign(value.reshape(target.shape))


@pytest.mark.parametrize("name", cases_of(PERMUTED, WITHOUT_TEXT, quick=KINDS))
def test_permuting_fields_with_their_parameters_changes_no_output(name):
    inputs = batch()
    model = unchanged(name)
    moved = randomised(name, dataclasses.replace(permuted_map(), tasks=model.feature_map.tasks))
    ours, theirs = field_weights(name, model), field_weights(name, moved)
    for (source, axes), (target, target_axes) in zip(ours, theirs, strict=True):
        move(source, axes, target, target_axes)
    expected, found = np.asarray(model(inputs)), np.asarray(moved(permuted(inputs)))
    assert np.ptp(expected) > 0.05  # the fields matter
    if name in IN_ORDER_OF_FIELDS:
        assert np.abs(found - expected).max() > 0.01
    else:
        close(found, expected)


# Embeddings


def step(model: keras.Model, inputs: dict[str, np.ndarray]) -> None:
    model.compile(keras.optimizers.SGD(0.1), BinaryCrossEntropy(), run_eagerly=True)  # a graph takes ten times as long
    model.fit(inputs, np.ones((len(inputs["ids"]), 1), np.float32), epochs=2, verbose=0)


@pytest.mark.parametrize("name", cases_of(KINDS, WITHOUT_TEXT, quick=KINDS[:1]))
def test_padding_is_zero_and_never_trained(name):
    inputs, model = batch(), randomised(name)
    assert (inputs["ids"] == 0).any()
    expected = np.asarray(model(inputs))
    before = []
    for table in model.tables():
        values = table.table.numpy()
        values[0] = 100.0
        table.table.assign(values)
        before.append(values)
    np.testing.assert_array_equal(model(inputs), expected)
    step(model, inputs)
    for table, values in zip(model.tables(), before, strict=True):
        np.testing.assert_array_equal(table.table.numpy()[0], values[0])
        assert np.abs(table.table.numpy()[1:] - values[1:]).max() > 0


def test_embedding_l2_counts_the_rows_of_the_batch():
    ids, layer = batch()["ids"], FieldEmbedding(feature_map(), 4, stddev=1.0, l2=0.5)
    with tf.GradientTape() as tape:
        layer(ids)
        loss = layer.losses[0]
    rows = embed(layer.table.numpy(), ids)
    assert float(loss) == pytest.approx(0.25 * np.mean(np.sum(rows**2, axis=(1, 2))), rel=1e-5)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value)).numpy()
    touched = np.unique(ids[ids > 0])
    assert (np.abs(gradient[touched]).max(axis=1) > 0).all()
    assert not np.delete(gradient, touched, axis=0).any()
    univalent = ids[:, :5]
    expected = np.zeros_like(gradient)
    for row in univalent:
        for index in row:
            expected[index] += 0.5 / len(ids) * layer.table.numpy()[index]
    close(gradient[np.unique(univalent)], expected[np.unique(univalent)])


# What can be read out, of the model itself


@pytest.mark.parametrize(
    "name", ["attention_net", "autoint", "transformer", "transformer_pe", "hetero_att", "hiformer"]
)
def test_attention_maps_can_be_read_out(name):
    model, inputs = unchanged(name), batch()
    logits = np.asarray(model(inputs))
    maps = [np.asarray(attention) for attention in model.attention_maps(inputs)]
    size = {"attention_net": 6, "autoint": 8}.get(name, 9)
    pruned = size if name in ("attention_net", "autoint") else 1
    assert [attention.shape for attention in maps] == [(7, 2, size, size), (7, 2, pruned, size)]
    for attention in maps:
        assert (attention >= 0).all()
        close(attention.sum(axis=-1), np.ones(attention.shape[:-1]))
    assert np.ptp(maps[0], axis=0).max() > 1e-3  # of the rows, not of the weights alone
    np.testing.assert_array_equal(model(inputs), logits)


def test_the_weights_of_pairs_can_be_read_out_of_an_afm():
    model, inputs = unchanged("afm"), batch()
    attention = np.asarray(model.attention_map(inputs))
    assert attention.shape == (7, 28)  # pairs of 6 fields and 2 dense features
    close(attention.sum(axis=1), np.ones(7))
    rows = np.asarray(model.rows(inputs))
    first, second = np.triu_indices(8, 1)
    pooled = (attention[:, :, None] * rows[:, first] * rows[:, second]).sum(axis=1)
    close(pooled @ model.projection.kernel.numpy() + model.linear_logits(inputs), model(inputs))


@pytest.mark.parametrize("name", ["cin", "xdeepfm"])
def test_cin_maps_and_pools_can_be_read_out(name):
    model, inputs = randomised(name, split_half=False), batch()
    maps = [np.asarray(layer) for layer in model.feature_maps(inputs)]
    assert [layer.shape for layer in maps] == [(7, 4, 4), (7, 3, 4)]
    pools = np.concatenate([layer.sum(axis=2) for layer in maps], axis=1)
    explicit = pools @ model.logit.kernel.numpy() + model.logit.bias.numpy()
    if name == "xdeepfm":
        explicit = explicit + model.linear_logits(inputs) + model.tower(model.flatten(model.rows(inputs), inputs))
    close(explicit, model(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [5, None])
def test_singular_values_of_the_value_projections_can_be_read_out(rank):
    model = randomised("hiformer", v_rank=rank)
    for layer, found in zip(model.encoder, model.singular_values(), strict=True):
        everything, width = layer.tokens * layer.dim, layer.tokens * layer.value_dim
        assert found.shape == (layer.heads, min(everything, width))
        for head in range(layer.heads):
            if rank is None:
                matrix = layer.value_kernel.numpy()[:, head * width : (head + 1) * width]
            else:
                left = layer.value_left.numpy()[:, head * rank : (head + 1) * rank]
                matrix = left @ layer.value_right.numpy()[head]
                assert found[head, rank:].max() < 1e-4
            # Their squares are the eigenvalues of V̂ᵀV̂.
            close(found[head] ** 2, np.sort(np.linalg.eigvalsh(matrix.T @ matrix))[::-1][: found.shape[1]])
    with pytest.raises(ValueError, match="feature"):
        randomised("hetero_att").encoder[0].value_projections()
