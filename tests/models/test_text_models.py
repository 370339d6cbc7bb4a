"""The models with a text: against loops in numpy, by hand, and what must hold between them."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.feature_map import Text
from ctrpipe.models.base.registry import model_class
from ctrpipe.models.layers.number_tokens import NumberTokens, new_tokens
from ctrpipe.models.layers.text_encoder import TextEncoder, activation_of
from ctrpipe.models.layers.tree_ensemble import TreeEnsemble
from ctrpipe.models.layers.uni_attention import UniAttention
from tests.models.small_models import (
    ENCODER,
    FAMILIES,
    SMALL,
    WITH_TEXT,
    cases_of,
    compare,
    compares,
    randomised,
    text_batch,
    text_map,
    unchanged,
)

CROSS_ATTENTION = ("bert4ctr", "numbert_uni_attention", "numbert_uni_attention_reduced")


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def gelu(x):
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.reshape(-1)]).reshape(x.shape)


def dense(layer, x):
    return x @ value(layer.kernel) + value(layer.bias)


def normalised(layer, x):
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + layer.epsilon) * value(layer.gamma) + value(layer.beta)


def feed_forward(layer, x):
    return normalised(layer.norm, x + dense(layer.narrow, gelu(dense(layer.widen, x))))


def encode(encoder, tokens, segments) -> list[np.ndarray]:
    """The states of one row, token by token and head by head."""
    table, positions, kinds = (value(getattr(encoder, f"{name}_table")) for name in ("token", "position", "segment"))
    rows = [table[t] + positions[i] + kinds[s] for i, (t, s) in enumerate(zip(tokens, segments, strict=True))]
    states = [normalised(encoder.norm, np.array(rows))]
    for attention, ffn in zip(encoder.attention, encoder.feed_forward, strict=True):
        x = states[-1]
        query, key, content = np.split(dense(attention.qkv, x), 3, axis=1)
        mixed = np.zeros_like(x)
        width = x.shape[1] // attention.heads
        for head in range(attention.heads):
            part = slice(head * width, (head + 1) * width)
            for i in range(len(x)):
                scores = [query[i, part] @ key[j, part] / math.sqrt(width) for j in range(len(x))]
                weights = softmax(np.where(tokens > 0, scores, -np.inf))
                mixed[i, part] = sum(w * content[j, part] for j, w in enumerate(weights))
        u = normalised(attention.norm, x + dense(attention.out, mixed))
        states.append(feed_forward(ffn, u))
    return states


def algorithm_1(layer, x, y, mask):
    """Algorithm 1 line by line, columns and all; b_i is any number."""
    w_a, b_i = value(layer.align_kernel).T, 0.7
    q = value(layer.query_kernel).T @ x[:, None] + value(layer.query_bias)[:, None]
    k = value(layer.key_kernel).T @ y.T + value(layer.key_bias)[:, None]
    v = value(layer.value_kernel).T @ y.T + value(layer.value_bias)[:, None]
    m = np.concatenate([np.repeat(q, len(y), axis=1), k])
    h = np.tanh(w_a @ m + value(layer.align_bias)[:, None])
    s = value(layer.score)[None] @ h + b_i
    return (v @ softmax(np.where(mask, s[0], -np.inf))[:, None])[:, 0]


def uni_attention_layer(layer, tokens, y, mask):
    attended = np.array([algorithm_1(layer.attention, x, y, mask) for x in tokens])
    return feed_forward(layer.feed_forward, normalised(layer.norm, tokens + attended))


def tower(layer, x):
    for hidden in layer.hidden:
        x = np.maximum(dense(hidden, x), 0)
    return dense(layer.logits, x)


def features(model, ids):
    table = value(model.table.table)
    return np.concatenate([table[ids[0]], table[ids[2]]])


def position(model, ids):
    return value(model.table.table)[ids[1]] @ value(model.position.kernel)


def check(name, expected_of_row, **changes):
    model, inputs = randomised(name, **changes), text_batch()
    expected = [expected_of_row(model, *row) for row in zip(*inputs.values(), strict=True)]
    compare(model, inputs, np.array(expected))


def pooled(model, states):
    return np.tanh(dense(model.pooler, states[-1][0]))


@compares("text_only")
def test_text_only():
    def logit(model, ids, tokens, segments, numbers):
        states = encode(model.encoder, tokens, segments)
        return dense(model.head.logits, pooled(model, states)) + position(model, ids)

    check("text_only", logit)


@compares("features_only")
def test_features_only():
    model, inputs = create("features_only", text_map(), embedding_dim=4, token_dim=6, hidden_units=(5,)), text_batch()
    model(inputs)
    for weight in model.trainable_variables:
        weight.assign(np.random.default_rng(len(weight.shape)).normal(size=weight.shape))
    expected = [
        tower(model.tower, np.maximum(dense(model.reduce, features(model, ids)), 0)) + position(model, ids)
        for ids in inputs["ids"]
    ]
    compare(model, inputs, np.array(expected))


def fallen(trees, values) -> float:
    """The sum of the leaves of one row, node by node."""
    parts = (trees.feature, trees.threshold, trees.left, trees.right, trees.value)
    total = 0.0
    for feature, threshold, left, right, leaves in zip(*(np.asarray(part) for part in parts), strict=True):
        node = 0
        for _ in range(trees.depth):
            node = left[node] if values[feature[node]] <= threshold[node] else right[node]
        total += leaves[node]
    return total


def grow(trees, random) -> None:
    """Returns trees with two levels of splits: on the score, then on the first field's ordinal."""
    shape = (trees.trees, trees.nodes)
    feature, threshold = np.zeros(shape), np.zeros(shape)
    left, right = np.tile(np.arange(trees.nodes), (trees.trees, 1)), np.tile(np.arange(trees.nodes), (trees.trees, 1))
    feature[:, 1], threshold[:, 1] = 1, np.linspace(100, 300, trees.trees)
    threshold[:, 0] = np.linspace(-1, 1, trees.trees)
    left[:, 0], right[:, 0], left[:, 1], right[:, 1] = 1, 2, 3, 4
    trees.assign(feature, threshold, left, right, random.normal(size=shape))


@pytest.mark.parametrize("name", ["cascading_wide_deep", "cascading_deepfm", "cascading_nn_gbdt"])
@compares("cascading_wide_deep", "cascading_deepfm", "cascading_nn_gbdt")
def test_cascading(name):
    def logit(model, ids, tokens, segments, numbers):
        states = encode(model.text.encoder, tokens, segments)
        score = dense(model.text.head.logits, pooled(model.text, states))
        downstream = model.downstream
        rows = value(downstream.table.table)[ids]
        rows[1] = 0  # the position
        side = score
        if name == "cascading_deepfm":
            rows = np.concatenate([rows, score * value(downstream.dense_table.vectors)])
            side = score[:0]
        found = tower(downstream.tower, np.concatenate([rows.reshape(-1), side]))
        if name != "cascading_nn_gbdt":
            first_order = value(downstream.linear.table)[ids[[0, 2]]].sum(axis=0)
            found = found + first_order + dense(downstream.linear_dense, score)
        if name == "cascading_deepfm":
            found = found + sum(rows[i] @ rows[j] for i in range(len(rows)) for j in range(i))
        if name == "cascading_nn_gbdt":
            ordinals = [id_ - field.offset for id_, field in zip(ids, text_map().fields, strict=True)]
            found = found + fallen(model.trees, [*score, ordinals[0], ordinals[2]])
        return found + value(model.position.kernel)[ids[1] - text_map().fields[1].offset]

    model, inputs = randomised(name), text_batch()
    model.text.position.kernel.assign(model.text.position.kernel + 1)  # which the score leaves out
    if name == "cascading_nn_gbdt":
        grow(model.trees, np.random.default_rng(4))
    compare(model, inputs, np.array([logit(model, *row) for row in zip(*inputs.values(), strict=True)]))


@pytest.mark.parametrize("name", ["shallow_interaction_1", "shallow_interaction_n"])
@compares("shallow_interaction_1", "shallow_interaction_n")
def test_shallow_interaction(name):
    def logit(model, ids, tokens, segments, numbers):
        x = np.maximum(dense(model.reduce, features(model, ids)), 0)
        for layer in getattr(model, "feature_layers", ()):
            x = feed_forward(layer, x)
        states = encode(model.encoder, tokens, segments)
        return tower(model.tower, np.concatenate([x, pooled(model, states)])) + position(model, ids)

    check(name, logit)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert4ctr", "numbert_uni_attention_reduced"])
@pytest.mark.parametrize("count", [1, 2])
@compares("bert4ctr", "numbert_uni_attention_reduced")
def test_bert4ctr(name, count):
    def logit(model, ids, tokens, segments, numbers):
        states = encode(model.encoder, tokens, segments)
        x = np.maximum(dense(model.reduce, features(model, ids)), 0).reshape(count, -1)
        for layer, y in zip(model.uni_attention, states[1:], strict=True):
            x = uni_attention_layer(layer, x, y, tokens > 0)
        return tower(model.tower, np.concatenate([x.reshape(-1), pooled(model, states)])) + position(model, ids)

    check(name, logit, feature_tokens=count)


def written(ids, numbers) -> list[int]:
    """The vocabulary's ordinal of the first feature, and the number of the third, as words that become tokens."""
    local = int(ids[0]) - text_map().fields[0].offset
    ordinal = max(local - 1, 0)
    words = ["[UNK]" if local == 1 else str(ordinal), "[EXP]", str(len(str(ordinal)) - 1), "[SEP]"]
    significand, exponent = numbers
    words += ["[UNK]" if significand == 1000 else str(abs(significand)), "[EXP]" if significand >= 0 else "[-EXP]"]
    return [token_of(word) for word in [*words, str(exponent), "[SEP]"]]


def token_of(word: str) -> int:
    """After the vocabulary's 130 tokens come the two [EXP], -1 to -38, and 100 to 999; 0 to 99 are words."""
    text = text_map().text
    known = {"[SEP]": text.separator_id, "[UNK]": text.unknown_id, "[EXP]": 130, "[-EXP]": 131}
    if word in known:
        return known[word]
    number = int(word)
    if number < 0:
        return 131 - number
    return 20 + number if number < 100 else 170 + number - 100


@compares("numbert")
def test_numbert():
    def logit(model, ids, tokens, segments, numbers):
        numbers = written(ids, numbers)
        states = encode(model.encoder, np.array([*tokens, *numbers]), [*segments, *[1] * len(numbers)])
        return dense(model.head.logits, pooled(model, states)) + position(model, ids)

    check("numbert", logit)


@pytest.mark.slow
@compares("numbert_uni_attention")
def test_numbert_with_uni_attention():
    def logit(model, ids, tokens, segments, numbers):
        states = encode(model.encoder, tokens, segments)
        x = value(model.encoder.token_table)[written(ids, numbers)]
        for layer, y in zip(model.uni_attention, states[1:], strict=True):
            x = uni_attention_layer(layer, x, y, tokens > 0)
        side = np.concatenate([dense(model.project, x).reshape(-1), pooled(model, states)])
        return tower(model.tower, side) + position(model, ids)

    check("numbert_uni_attention", logit)


# By hand


def test_uni_attention_of_one_token_is_its_value():
    layer = UniAttention(2)
    y = np.array([[[1.0, 2.0]]], np.float32)
    layer(np.zeros((1, 1, 3), np.float32), y, np.array([[True]]))
    layer.value_kernel.assign([[1, 0, 2], [0, 1, 1]])
    layer.value_bias.assign([0, 0, 10])
    found = layer(np.ones((1, 1, 3), np.float32), y, np.array([[True]]))
    np.testing.assert_allclose(found, [[[1, 2, 14]]], rtol=1e-6)


def test_uni_attention_of_two_tokens_by_hand():
    layer = UniAttention(1)
    y = np.array([[[0.0], [1.0], [5.0]]], np.float32)
    mask = np.array([[True, True, False]])
    layer(np.zeros((1, 1, 1), np.float32), y, mask)
    for weight in (layer.query_kernel, layer.key_kernel, layer.value_kernel):
        weight.assign([[1.0]])
    layer.align_kernel.assign([[1.0], [1.0]])
    layer.score.assign([2.0])
    # Scores 2 tanh(0.5 + 0) and 2 tanh(0.5 + 1); the third token is masked.
    first, second = math.exp(2 * math.tanh(0.5)), math.exp(2 * math.tanh(1.5))
    found, attention = layer(np.full((1, 1, 1), 0.5, np.float32), y, mask, return_attention=True)
    assert float(found[0, 0, 0]) == pytest.approx(second / (first + second), rel=1e-6)
    np.testing.assert_allclose(attention[0, 0], [first / (first + second), second / (first + second), 0], rtol=1e-6)
    assert float(attention[0, 0, 2]) == 0


def test_uni_attention_is_algorithm_1_with_weights_that_tell_the_states_apart():
    random = np.random.default_rng(6)
    layer = UniAttention(3)
    x, y = random.normal(size=(4, 2, 5)).astype(np.float32), random.normal(size=(4, 6, 7)).astype(np.float32)
    mask = np.arange(6) < np.array([[1], [3], [5], [6]])
    layer(x, y, mask)
    for weight in layer.weights:
        weight.assign(random.normal(size=weight.shape))
    expected = [
        [algorithm_1(layer, q, states, kept) for q in row] for row, states, kept in zip(x, y, mask, strict=True)
    ]
    np.testing.assert_allclose(layer(x, y, mask), expected, rtol=1e-4, atol=1e-5)


def test_folded_weights_give_the_same():
    random = np.random.default_rng(1)
    layer = UniAttention(3)
    x, y = random.normal(size=(4, 2, 5)).astype(np.float32), random.normal(size=(4, 6, 7)).astype(np.float32)
    mask = np.arange(6) < random.integers(1, 7, (4, 1))
    before = np.asarray(layer(x, y, mask))
    layer.fold()
    np.testing.assert_array_equal(layer(x, y, mask), before)
    layer.key_kernel.assign(0 * layer.key_kernel)  # what was folded stays
    np.testing.assert_array_equal(layer(x, y, mask), before)


def words_of(layer, data, **inputs) -> list[str]:
    """The words that NumberTokens writes for one row."""
    text = data.text
    first = text.vocabulary_size
    words = {text.padding_id: "[PAD]", text.unknown_id: "[UNK]", text.separator_id: "[SEP]", first: "[EXP]"}
    words |= {first + 1: "[-EXP]"} | {first + 1 + power: f"-{power}" for power in range(1, 39)}
    lacking = [number for number in range(1000) if number >= len(text.number_ids) or text.number_ids[number] == -1]
    words |= {token: str(number) for number, token in enumerate(text.number_ids) if token != -1}
    words |= {first + 40 + index: str(number) for index, number in enumerate(lacking)}
    rows = {name: np.array([row], np.int32) for name, row in inputs.items()}
    assert new_tokens(text) == 40 + len(lacking) and len(words) == 4 + 40 - 1 + 1000
    return [words[token] for token in np.asarray(layer(rows))[0].tolist()]


@pytest.mark.parametrize(
    ("packed", "words"),
    [((35, 1), "35 [EXP] 1"), ((0, 0), "0 [EXP] 0"), ((999, 38), "999 [EXP] 38"), ((124, -2), "124 [EXP] -2")]
    + [((-625, 1), "625 [-EXP] 1"), ((-1, -38), "1 [-EXP] -38"), ((1000, 0), "[UNK] [EXP] 0")],
)
def test_a_number_becomes_four_tokens(packed, words):
    data = FeatureMap.from_sizes([("a", "numeric", 5)], text=Text(4, 10), numbers=("a",))
    layer = NumberTokens(data)
    assert layer.length == 4
    assert words_of(layer, data, ids=[4], numbers=packed) == [*words.split(), "[SEP]"]


@pytest.mark.parametrize(
    ("values", "ordinal", "words"),
    [(999, 7, "7 [EXP] 0"), (999, 999, "999 [EXP] 2"), (1000, 999, "[PAD] 999 [EXP] 2"), (1000, 1000, "1 0 [EXP] 3")]
    + [(500_000, 123_004, "123 4 [EXP] 5"), (500_000, 35, "[PAD] 35 [EXP] 1"), (999, 0, "0 [EXP] 0")]
    + [(2_000_000_000, 1_999_999_999, "1 999 999 999 [EXP] 9"), (1_000_000, 20_001, "[PAD] 20 1 [EXP] 4")],
)
def test_an_id_is_written_with_all_its_digits(values, ordinal, words):
    data = FeatureMap.from_sizes([("p", "numeric", 3, 1, "position"), ("a", "categorical", values)], text=Text(4, 10))
    offset = data.fields[1].offset
    local = ordinal + 1 if ordinal else 0  # 0 is unknown, 1 is missing, 2 the first value
    assert words_of(NumberTokens(data), data, ids=[1, offset + local]) == [*words.split(), "[SEP]"]
    missing = words_of(NumberTokens(data), data, ids=[1, offset + 1])
    assert missing == ["[PAD]"] * (len(words.split()) - 3) + ["[UNK]", "[EXP]", "0", "[SEP]"]


@pytest.mark.slow
def test_no_two_ids_are_written_alike():
    data = FeatureMap.from_sizes([("a", "categorical", 500_000)], text=Text(4, 10))
    ids = np.arange(1, 1 + data.fields[0].size, dtype=np.int32)[:, None]
    assert len(np.unique(np.asarray(NumberTokens(data)({"ids": ids})), axis=0)) == 500_002


def test_every_kind_of_feature_is_written():
    fields = [("tags", "multivalent", 5000, 2), ("p", "categorical", 3, 1, "position"), ("n", "numeric", 10)]
    fields += [("t_hour", "time", 24), ("t_weekday", "time", 7)]
    data = FeatureMap.from_sizes(fields, ("x",), text=Text(4, 200, number_ids=(100, -1, 102)), numbers=("x", "n"))
    tags, _, _, hour, weekday = (field.offset for field in data.fields)
    layer = NumberTokens(data)
    row = [tags + 1 + 4321, 0, 1, 1, hour + 2 + 0, weekday + 0]
    expected = "4 321 [EXP] 3 [PAD] [PAD] [PAD] [PAD] [SEP] 12 [EXP] -3 [SEP] 0 [EXP] 0 [SEP] [UNK] [EXP] 0 [SEP]"
    assert words_of(layer, data, ids=row, numbers=[5, 7, 12, -3]) == [*expected.split(), *"5 [EXP] 7 [SEP]".split()]
    again = NumberTokens.from_config(layer.get_config())
    assert words_of(again, data, ids=row, numbers=[5, 7, 12, -3])[-4:] == "5 [EXP] 7 [SEP]".split()


def test_numbers_that_are_words_keep_their_tokens():
    layer = NumberTokens(text_map())
    assert (new_tokens(text_map().text), layer.length) == (2 + 38 + 900, 8)
    inputs = {"ids": np.array([[1 + 36, 404, 410]], np.int32), "numbers": np.array([[124, 2]], np.int32)}
    assert np.asarray(layer(inputs))[0].tolist() == [20 + 35, 130, 20 + 1, 3, 130 + 2 + 38 + 24, 130, 20 + 2, 3]


def test_trees_fall_to_their_leaves():
    layer = TreeEnsemble(trees=2, leaves=3, depth=2)
    layer.build()
    layer.assign(
        feature=np.array([[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]),
        threshold=np.array([[0.5, 2.0, 0, 0, 0], [1.0, 0, 0, 0, 0]]),
        left=np.array([[1, 3, 2, 3, 4], [1, 1, 2, 3, 4]]),
        right=np.array([[2, 4, 2, 3, 4], [2, 1, 2, 3, 4]]),
        value=np.array([[9, 9, 1.0, 2.0, 4.0], [9, 10.0, 20.0, 9, 9]]),
    )
    rows = np.array([[0.5, 2.0], [0.5, 2.1], [0.6, 0.0], [0.6, 1.0]], np.float32)
    np.testing.assert_array_equal(layer(rows), [[2 + 20], [4 + 20], [1 + 10], [1 + 10]])


def test_a_threshold_between_two_floats_is_rounded_down():
    layer = TreeEnsemble(trees=1, leaves=2, depth=1)
    layer.build()
    just_below = np.nextafter(np.float32(0.1), np.float32(0))
    threshold = (float(np.float32(0.1)) + float(just_below)) / 2 + 1e-12  # in float32 this is 0.1
    assert np.float32(threshold) == np.float32(0.1)
    columns = [np.array([row]) for row in ([0, 0, 0], [threshold, 0, 0], [1, 1, 2], [2, 1, 2], [0, -1.0, 1.0])]
    layer.assign(*columns)
    assert layer(np.array([[0.1]], np.float32)).numpy()[0, 0] == 1


# What must hold


@pytest.mark.slow
@pytest.mark.parametrize("name", CROSS_ATTENTION)
def test_the_text_never_sees_the_features(name):
    model, inputs = unchanged(name), text_batch()
    other = {**inputs, **{name: text_batch(seed=9)[name] for name in ("ids", "numbers")}}
    assert np.abs(np.asarray(model(inputs)) - model(other)).max() > 1e-3
    for before, after in zip(model.states(inputs), model.states(other), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(FAMILIES, [name for name in WITH_TEXT if name != "numbert"]))
def test_padding_does_not_change_an_answer(name):
    model, inputs = randomised(name), text_batch()
    encoder = getattr(model, "encoder", None) or model.text.encoder
    before = np.asarray(model(inputs))
    table = encoder.token_table.numpy()
    table[0] += 5.0  # what padding looks like
    encoder.token_table.assign(table)
    np.testing.assert_allclose(model(inputs), before, rtol=1e-5, atol=1e-6)


def test_masked_tokens_have_exactly_no_weight():
    random = np.random.default_rng(2)
    layer = UniAttention(3)
    x, y = random.normal(size=(4, 2, 5)).astype(np.float32), random.normal(size=(4, 6, 7)).astype(np.float32)
    mask = np.arange(6) < np.array([[1], [3], [5], [6]])
    attention = np.asarray(layer(x, y, mask, return_attention=True)[1])
    assert (attention[~np.broadcast_to(mask[:, None], attention.shape)] == 0).all()
    np.testing.assert_allclose(attention.sum(axis=2), 1, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(FAMILIES, WITH_TEXT))
def test_a_position_adds_a_term_that_starts_from_zero(name):
    model, inputs = create(name, text_map(), **SMALL[name]), text_batch()
    elsewhere = {**inputs, "ids": inputs["ids"].copy()}
    field = text_map().fields[1]
    elsewhere["ids"][:, 1] = field.offset + (inputs["ids"][:, 1] - field.offset + 1) % field.size
    np.testing.assert_array_equal(model(inputs), model(elsewhere))
    model.position.kernel.assign(model.position.kernel + np.arange(model.position.kernel.shape[0])[:, None] + 1)
    assert np.abs(np.asarray(model(inputs)) - model(elsewhere)).max() > 0


@pytest.mark.slow
def test_only_the_downstream_model_of_a_cascade_is_trained():
    model = randomised("cascading_deepfm")
    assert not model.text.trainable_variables
    trained = [*model.downstream.trainable_variables, model.position.kernel]
    assert {id(v) for v in model.trainable_variables} == {id(v) for v in trained}
    inputs = text_batch(64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(inputs)))
    assert all(g is not None for g in tape.gradient(loss, [v.value for v in model.trainable_variables]))


@pytest.mark.slow
def test_the_score_of_a_cascade_is_the_texts_logit_without_the_position():
    text, model = randomised("text_only"), randomised("cascading_wide_deep")
    model.take_weights(text)
    inputs = text_batch()
    score = np.asarray(model.with_score(inputs)["dense"])
    table = value(text.table.table)
    expected = value(text(inputs)) - table[inputs["ids"][:, 1]] @ value(text.position.kernel)
    np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-5)
    described = FeatureMap(text_map().fields, ("text_score_ctr",))
    alone = create("wide_deep", described, **{k: v for k, v in SMALL["wide_deep"].items()})
    alone({"ids": inputs["ids"], "dense": score})
    alone.set_weights(model.downstream.get_weights())
    field = text_map().fields[1]
    for part in alone.tables():  # the position is no feature of the downstream model
        vectors = value(part.table).astype(np.float32)
        vectors[field.offset : field.offset + field.size] = 0
        part.table.assign(vectors)
    term = value(model.position.kernel)[inputs["ids"][:, 1] - field.offset]
    expected = alone({"ids": inputs["ids"], "dense": score}) + term
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5, atol=1e-6)
    gathered = {part.name: value(part.table)[inputs["ids"]].astype(np.float32) for part in model.tables()}
    np.testing.assert_allclose(model(inputs, gathered=gathered), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_trees_start_from_the_networks_logit_and_split_score_and_ordinals():
    model, inputs = randomised("cascading_nn_gbdt"), text_batch()
    values, logits = (np.asarray(part) for part in model.boost(inputs))
    np.testing.assert_array_equal(model(inputs), logits)  # trees that were not learned say nothing
    offsets = [field.offset for field in text_map().fields]
    np.testing.assert_array_equal(values[:, 1:], (inputs["ids"] - offsets)[:, [0, 2]])  # 1 is the position
    np.testing.assert_array_equal(values[:, :1], model.with_score(inputs)["dense"])
    cut = float(np.median(values[:, 2]))
    columns = [np.zeros((3, 7)) for _ in range(5)]
    columns[0][0], columns[1][0, 0] = 2, cut
    columns[2][:], columns[3][:] = np.arange(7), np.arange(7)  # every node its own child, but for one root
    columns[2][0, 0], columns[3][0, 0] = 1, 2
    columns[4][0, 1:3] = [0.25, -0.5]
    model.trees.assign(*columns)
    expected = logits[:, 0] + np.where(values[:, 2] <= cut, 0.25, -0.5)
    np.testing.assert_allclose(np.asarray(model(inputs))[:, 0], expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert4ctr", {}),
        ("bert4ctr", {"feature_tokens": 2, "token_dim": 5, "embedding_dim": 3, "use_linear": True}),
        ("shallow_interaction_1", {}),
        ("shallow_interaction_n", {"token_dim": 7}),
    ],
)
def test_joint_training_starts_from_both_warm_ups(name, changes):
    """The stages get training's hyperparameters, and the defaults for the rest."""
    model = create(name, text_map(), **ENCODER, **changes)
    later = {**type(model).options(), **ENCODER, **changes}
    stages = {
        first: create(first, text_map(), **model_class(first).options_of_stage(later)) for first in model.pretraining
    }
    for each in (model, *stages.values()):
        each(text_batch())
    random = np.random.default_rng(1)
    for weight in (weight for first in stages.values() for weight in first.trainable_variables):
        weight.assign(random.normal(size=weight.shape))
    start = [np.array(weight) for weight in model.tower.weights]
    for first in stages.values():
        model.take_weights(first)
    text, plain = stages["text_only"], stages["features_only"]
    taken = [(model.encoder, text.encoder), (model.pooler, text.pooler)]
    taken += [(model.reduce, plain.reduce), (model.table, plain.table)]
    for mine, theirs in taken:
        assert mine.weights and len(mine.weights) == len(theirs.weights)
        for a, b in zip(mine.weights, theirs.weights, strict=True):
            np.testing.assert_array_equal(a, b)
    for weight, before in zip(model.tower.weights, start, strict=True):
        np.testing.assert_array_equal(weight, before)
    assert not np.any(model.position.kernel)  # the position belongs to neither


SHARING = tuple(name for name in WITH_TEXT if model_class(name).shares_text)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases_of(FAMILIES, SHARING))
@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.large), 7])
def test_rows_that_share_a_text_get_what_each_would_get_alone(name, rows):
    model, inputs = randomised(name), text_batch(rows)
    text = {key: inputs[key][:1] for key in ("tokens", "segments")}
    repeated = {key: np.repeat(value, rows, axis=0) for key, value in text.items()}
    encoded = []
    encoder = model.encoder if hasattr(model, "encoder") else model.text.encoder
    call = encoder.call
    encoder.call = lambda tokens, *others, **options: (
        encoded.append(tokens.shape[0]) or call(tokens, *others, **options)
    )
    shared = np.asarray(model({**inputs, **text}))
    assert encoded == [1] and shared.shape == (rows, 1)
    np.testing.assert_allclose(shared, model({**inputs, **repeated}), rtol=1e-5, atol=1e-6)
    graph = tf.function(model.call, autograph=False, reduce_retracing=True)
    np.testing.assert_allclose(graph({**inputs, **text}), shared, rtol=1e-5, atol=1e-6)


def test_a_text_is_shared_by_all_models_but_the_one_that_writes_features_into_it():
    assert set(WITH_TEXT) - set(SHARING) == {"numbert"}


def test_the_two_orders_of_roberta_and_bert_positions():
    tokens = np.array([[5, 6, 7, 1, 1]], np.int32)
    encoder = TextEncoder(9, 1, 4, 2, 8, positions=8, segments=1, padding_id=1, first_position=2, dropout=0.0)
    encoder(tokens)
    encoder.position_table.assign(np.arange(8)[:, None] * np.array([[1.0, -1.0, 2.0, 0.5]]))
    encoder.token_table.assign(np.zeros((9, 4)))
    found = np.asarray(encoder.embed(tokens))
    rows = value(encoder.position_table)[[2, 3, 4, 1, 1]] + value(encoder.segment_table)[0]
    np.testing.assert_allclose(found[0], normalised(encoder.norm, rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextEncoder(9, heads=5, width=12)(np.ones((1, 3), np.int32)), "heads=5"),
        (lambda: TextEncoder(9, layers=0), "layers=0"),
        (lambda: TextEncoder(9, 1, 4, 2, 8, positions=4)(np.ones((1, 5), np.int32)), "positions for 4 tokens"),
        (lambda: activation_of("gelu_tanh"), "activation='gelu_tanh'"),
        (lambda: UniAttention(0), "attention_dim=0"),
        (lambda: TreeEnsemble(0), "trees=0"),
        (lambda: create("bert4ctr", FeatureMap.from_sizes([("a", "categorical", 3, 1, "feature")])), "needs a text"),
        (lambda: create("bert4ctr", text_map(), feature_tokens=0), "feature_tokens=0"),
        (lambda: create("numbert", FeatureMap((), text=Text(8, 130))), "no feature to write"),
        (lambda: create("numbert", FeatureMap((), ("x",), text=Text(8, 130))), r"raw_numbers: true`.*\['x'\]"),
        (lambda: Text(0, 10), "length=0"),
        (lambda: Text(4, 10, mask_id=10), "Received: 10"),
        (lambda: Text(4, 2000, number_ids=tuple(range(1001))), "1000 numbers.*1001"),
    ],
)
def test_impossible_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_mixed_precision_stays_near():
    model, inputs = unchanged("bert4ctr"), text_batch()
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        low = randomised("bert4ctr")
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    low.set_weights(model.get_weights())
    np.testing.assert_allclose(low(inputs), model(inputs), atol=0.2)
