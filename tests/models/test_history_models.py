"""Models that read a history item by item: their equations in numpy, and invariances to the history."""

import math

import numpy as np
import pytest

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.candidates import join_candidates
from ctrpipe.models.base.feature_map import Field
from ctrpipe.models.base.history_model import History
from ctrpipe.models.dien import auxiliary_loss
from ctrpipe.models.layers.activation_unit import ActivationUnit
from ctrpipe.models.layers.attentional_gru import AttentionalGRU
from ctrpipe.models.layers.behavior_transformer import BehaviorTransformer
from ctrpipe.models.layers.candidate_attention import CandidateAttention
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.hash_search import HashSearch
from ctrpipe.models.layers.history_attention import HistoryAttention
from ctrpipe.models.layers.history_transformer import HistoryTransformer
from ctrpipe.models.layers.hstu_layer import HSTULayer
from ctrpipe.models.layers.interest_evolution import InterestEvolution
from ctrpipe.models.layers.smoothed_attention import SmoothedAttention
from ctrpipe.models.layers.soft_search import SoftSearch
from ctrpipe.models.layers.unified_layer import UnifiedLayer
from tests.models.small_models import (
    IN_ORDER,
    SMALL,
    WITH_HISTORY,
    compare,
    compares,
    divided,
    history_batch,
    history_map,
    randomised,
    unchanged,
    with_items,
)

LENGTH = 5
# Slots of `ids`: user, item, five items, five kinds, five actions, kind.
USER, ITEM, ITEMS, KINDS, ACTIONS, KIND = 0, 1, 2, 7, 12, 17


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def events(table: np.ndarray, row: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The item's id and the embeddings of item, kind and action of each event."""
    found = []
    for place in range(LENGTH):
        if row[ITEMS + place]:
            parts = [table[row[start + place]] for start in (ITEMS, KINDS, ACTIONS)]
            found.append((row[ITEMS + place], np.concatenate(parts)))
    return found


def candidate(table: np.ndarray, row: np.ndarray) -> np.ndarray:
    return np.concatenate([table[row[ITEM]], table[row[KIND]], np.zeros(table.shape[1])])


def linear_part(model, row: np.ndarray, dense: np.ndarray) -> float:
    weights = value(model.linear.table)[:, 0]
    first = weights[row[USER]] + weights[row[ITEM]] + weights[row[KIND]]
    return first + dense @ value(model.linear_dense.kernel)[:, 0] + value(model.linear_dense.bias)[0]


def similarity(model, row, weight_of) -> float:
    """Σ_j a_j <p_i, q_j> over the events that are not the candidate's."""
    p = candidate(value(model.table.table), row)
    others = [q for item, q in events(value(model.history_table.table), row) if item != row[ITEM]]
    weights = weight_of(p, others)
    return sum(weight * (p @ q) for weight, q in zip(weights, others, strict=True))


@compares("fism")
def test_fism():
    model, inputs = randomised("fism", alpha=0.3), history_batch()
    expected = [
        linear_part(model, row, dense)
        + similarity(model, row, lambda p, others: [max(len(others), 1) ** -0.3] * len(others))
        for row, dense in zip(inputs["ids"], inputs["dense"], strict=True)
    ]
    compare(model, inputs, np.array(expected)[:, None])


@pytest.mark.parametrize("beta", [0.3, 1.0])
@pytest.mark.parametrize("kind", ["prod", "concat"])
@compares("nais")
def test_nais(kind, beta):
    model, inputs = randomised("nais", attention=kind, beta=beta), history_batch()
    layer = model.attentions[0]
    w, b, h = value(layer.hidden.kernel), value(layer.hidden.bias), value(layer.score.kernel)[:, 0]

    def weights(p, others):
        features = [p * q if kind == "prod" else np.concatenate([p, q]) for q in others]
        scores = [math.exp(h @ np.maximum(feature @ w + b, 0)) for feature in features]
        return [score / sum(scores) ** beta for score in scores]

    expected = [
        linear_part(model, row, dense) + similarity(model, row, weights)
        for row, dense in zip(inputs["ids"], inputs["dense"], strict=True)
    ]
    compare(model, inputs, np.array(expected)[:, None])


def mlp(model, inputs, read: list[np.ndarray], activation=lambda x: np.maximum(x, 0)) -> np.ndarray:
    """The logits of the MLP on the other fields, the dense features and the history's vectors."""
    table, expected = value(model.table.table), []
    for row, dense, of_history in zip(inputs["ids"], inputs["dense"], read, strict=True):
        x = np.concatenate([table[row[USER]], table[row[ITEM]], table[row[KIND]], dense, of_history])
        for layer in model.tower.hidden:
            x = activation(x @ value(layer.kernel) + value(layer.bias))
        expected.append(x @ value(model.tower.logits.kernel) + value(model.tower.logits.bias))
    return np.array(expected)


@compares("din")
def test_din():
    model, inputs = unchanged("din"), history_batch()
    table, score = value(model.table.table), model.units[0].score
    read = []
    for row in inputs["ids"]:
        v, pooled = candidate(table, row), np.zeros(3 * table.shape[1])
        for _, e in events(table, row):
            x = np.concatenate([v, e, v - e, v * e])
            for layer in score.hidden:
                x = 1 / (1 + np.exp(-(x @ value(layer.kernel) + value(layer.bias))))
            pooled += (x @ value(score.logits.kernel) + value(score.logits.bias)) * e
        read.append(pooled)
    compare(model, inputs, mlp(model, inputs, read))


def softmax(scores: np.ndarray) -> np.ndarray:
    exponents = np.exp(scores - scores.max())
    return exponents / exponents.sum()


def normed(layer, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-6) * value(layer.gamma) + value(layer.beta)


def feed_forward(layer, x: np.ndarray, slope: float) -> np.ndarray:
    hidden = x @ value(layer.widen.kernel) + value(layer.widen.bias)
    hidden = np.where(hidden > 0, hidden, slope * hidden) @ value(layer.narrow.kernel) + value(layer.narrow.bias)
    return normed(layer.norm, x + hidden)


@pytest.mark.parametrize("output", ["all", "candidate"])
@pytest.mark.parametrize("layers", [1, 2])
@compares("bst")
def test_bst(layers, output):
    model, inputs = randomised("bst", layers=layers, output=output), history_batch()
    table, transformer, read = value(model.table.table), model.transformers[0], []
    positions = value(transformer.position_table)
    for row in inputs["ids"]:
        items = [candidate(table, row), *(e for _, e in reversed(events(table, row)))]
        states = [np.concatenate([e, positions[place]]) for place, e in enumerate(items)]
        for attention, ffn in transformer.stack:
            kernel, bias, head = value(attention.qkv.kernel), value(attention.qkv.bias), attention.head_dim
            # In the last axis of the projection stand queries, keys and values, each head by head.
            parts = [(x @ kernel + bias).reshape(3, 2, head) for x in states]
            after = []
            for x, (query, _, _) in zip(states, parts, strict=True):
                mixed = []
                for h in range(2):
                    weights = softmax(np.array([query[h] @ part[1, h] for part in parts]) / math.sqrt(head))
                    mixed.append(sum(w * part[2, h] for w, part in zip(weights, parts, strict=True)))
                out = np.concatenate(mixed) @ value(attention.out.kernel) + value(attention.out.bias)
                after.append(feed_forward(ffn, normed(attention.norm, x + out), 0.01))
            states = after
        empty = [np.zeros_like(states[0])] * (1 + LENGTH - len(states))
        read.append(np.concatenate([*states, *empty]) if output == "all" else states[0])
    compare(model, inputs, mlp(model, inputs, read, lambda x: np.where(x > 0, x, 0.2 * x)))


def attended(layer, query: np.ndarray, items: list[np.ndarray]) -> np.ndarray:
    """HistoryAttention with two heads, for one query and its visible items."""
    key, val = np.split(value(layer.key_value.kernel), 2, axis=1)
    mixed = np.zeros_like(query)
    head = len(query) // 2
    for part in (slice(0, head), slice(head, 2 * head)):
        q = (query @ value(layer.query.kernel))[part]
        scores = np.array([q @ (e @ key)[part] for e in items]) / math.sqrt(head)
        if len(items):
            weights = softmax(scores) if layer.kind == "softmax" else scores / (1 + np.exp(-scores)) / len(items)
            mixed[part] = sum(w * (e @ val)[part] for w, e in zip(weights, items, strict=True))
    return normed(layer.norm, query + mixed @ value(layer.out.kernel))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"positions": "learned", "causal": False}, {"attention": "pointwise"}],
    ids=["softmax", "learned", "pointwise"],
)
@compares("sequence_transformer")
def test_sequence_transformer(changes):
    model, inputs = randomised("sequence_transformer", **changes), history_batch()
    table, transformer, read = value(model.table.table), model.transformers[0], []
    for row in inputs["ids"]:
        items = [candidate(table, row), *(e for _, e in reversed(events(table, row)))]
        states = []
        for place, e in enumerate(items):
            waves = [
                (math.sin if i % 2 == 0 else math.cos)(place / 10000 ** ((i - i % 2) / transformer.width))
                for i in range(transformer.width)
            ]
            position = value(transformer.position_table)[place] if changes.get("positions") == "learned" else waves
            states.append(e @ value(transformer.project.kernel) * math.sqrt(transformer.width) + position)
        query, *states = states
        for attend, ffn in transformer.encoder:
            # The newest is the first, so that what is older stands behind an item.
            seen = [states[place:] if transformer.causal else states for place in range(len(states))]
            states = [feed_forward(ffn, attended(attend, x, among), 0.0) for x, among in zip(states, seen, strict=True)]
        for attend, ffn in transformer.decoder:
            query = feed_forward(ffn, attended(attend, query, states), 0.0)
        read.append(query)
    compare(model, inputs, mlp(model, inputs, read))


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("times", ["actions", ""])
@compares("hstu")
def test_hstu(times):
    model, inputs = randomised("hstu", times=times), history_batch()
    table, project, read = value(model.table.table), model.project[0], []
    first_action = model.feature_map.fields[4].offset
    for row in inputs["ids"]:
        vectors = [candidate(table, row), *(e for _, e in reversed(events(table, row)))]
        states = [x @ value(project.kernel) + value(project.bias) for x in vectors]
        actions = [action - first_action for action in row[ACTIONS : ACTIONS + LENGTH] if action][::-1]
        for layer in model.stacks[0]:
            places = value(layer.places)
            of_time = [0.0, *(value(layer.times)[action] if times else 0.0 for action in actions)]
            parts = [
                np.split(silu(normed(layer.norm, x) @ value(layer.project.kernel) + value(layer.project.bias)), 4)
                for x in states
            ]
            after = []
            for i, (x, (gate, _, q, _)) in enumerate(zip(states, parts, strict=True)):
                mixed = np.zeros_like(x)
                # The candidate is place 0; it has no bucket of time, and an item does not read it.
                seen = range(i, len(states))
                for j in seen:
                    bias = places[j - i] + (of_time[j] if j else 0.0)
                    for part in (slice(0, 3), slice(3, 6)):
                        weight = silu(q[part] @ parts[j][3][part] + bias) / len(seen)
                        mixed[part] += weight * parts[j][1][part]
                out = normed(layer.norm_read, mixed) * gate
                after.append(out @ value(layer.out.kernel) + value(layer.out.bias) + x)
            states = after
        read.append(states[0])
    compare(model, inputs, mlp(model, inputs, read))


def unified(layer, tokens: list[tuple[str, int, np.ndarray]]) -> list[tuple[str, int, np.ndarray]]:
    """A OneTrans layer on tokens with their groups and positions; the last layer returns the candidate's tokens."""

    def weight(group: str, number: int, name: str) -> np.ndarray:
        found = value(getattr(layer, f"{group}_{name}"))
        return found if group == "items" or name.startswith("norm") else found[number]

    def scaled(group: str, number: int, name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean() + 1e-6) * weight(group, number, name)

    after = []
    for place, (group, number, x) in enumerate(tokens):
        if layer.last and group != "candidate":
            continue
        query = scaled(group, number, "norm", x) @ weight(group, number, "query")
        mixed = np.zeros_like(x)
        seen = [np.split(scaled(g, n, "norm", y) @ weight(g, n, "key_value"), 2) for g, n, y in tokens[: place + 1]]
        for part in (slice(0, 3), slice(3, 6)):
            weights = softmax(np.array([query[part] @ key[part] for key, _ in seen]) / math.sqrt(3))
            mixed[part] = sum(w * val[part] for w, (_, val) in zip(weights, seen, strict=True))
        x = x + mixed @ weight(group, number, "out")
        hidden = scaled(group, number, "norm_ffn", x) @ weight(group, number, "widen")
        hidden = hidden + weight(group, number, "widen_bias")
        hidden = np.array([0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in hidden])
        x = x + hidden @ weight(group, number, "narrow") + weight(group, number, "narrow_bias")
        after.append((group, number, x))
    return after


@compares("one_trans")
def test_one_trans():
    model, inputs = unchanged("one_trans"), history_batch()
    table, expected = value(model.table.table), []
    positions = value(model.positions[0])
    for row, numbers in zip(inputs["ids"], inputs["dense"], strict=True):
        newest = [e @ value(model.of_items[0].kernel) for _, e in reversed(events(table, row))]
        tokens = [("items", 0, x + positions[age]) for age, x in enumerate(newest)][::-1]
        # The dense features are the user's: only the columns of the candidate's ids are the candidate's.
        columns = {
            "user": (model.of_user, np.concatenate([table[row[USER]], numbers])),
            "candidate": (model.of_candidate, np.concatenate([table[row[ITEM]], table[row[KIND]]])),
        }
        for group, (layer, x) in columns.items():
            made = (x @ value(layer.kernel) + value(layer.bias)).reshape(2, 6)
            tokens += [(group, number, token) for number, token in enumerate(made)]
        for layer in model.stack:
            tokens = unified(layer, tokens)
        x = np.concatenate([token for group, _, token in tokens if group == "candidate"])
        for layer in model.tower.hidden:
            x = np.maximum(x @ value(layer.kernel) + value(layer.bias), 0)
        expected.append(x @ value(model.tower.logits.kernel) + value(model.tower.logits.bias))
    compare(model, inputs, np.array(expected))


@pytest.mark.parametrize("search", ["hash", "attention"])
def test_a_search_over_one_history_for_many_candidates_is_that_of_their_rows(search):
    data, inputs = with_items("sim"), history_batch()
    model = randomised("sim", data, search=search, found=2)
    context, candidates = divided(data, inputs)
    joined = {name: np.asarray(values) for name, values in join_candidates(data, context, candidates).items()}
    found, expected = model.candidate_logits(context, candidates), model(joined, training=False)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-6, atol=2e-6)


def test_one_trans_without_columns_of_the_user_has_no_tokens_of_the_user():
    item, history = ("item", "categorical", 9), ("items", "sequence", 9, 4, "feature", "mean", "item")
    model = create("one_trans", FeatureMap.from_sizes([item, history]), **SMALL["one_trans"])
    logits = model({"ids": np.array([[3, 5, 9, 0, 0], [7, 0, 0, 0, 0]], np.int32)})
    assert logits.shape == (2, 1) and model.user_tokens == 0


@pytest.mark.parametrize(
    "layer", [HSTULayer(2, 3), UnifiedLayer(2, 5), UnifiedLayer(2, 5, last=True)], ids=["hstu", "unified", "last"]
)
def test_a_layer_over_items_and_candidate_is_what_its_configuration_says(layer):
    items, is_item = np.ones((2, 5, 4), np.float32), np.ones((2, 5), bool)
    if isinstance(layer, HSTULayer):
        inputs = items, np.ones((2, 4), np.float32), is_item, np.ones((2, 5), np.int32)
    else:
        inputs = items, np.ones((2, 2, 4), np.float32), np.ones((2, 3, 4), np.float32), is_item
    shapes = [output.shape for output in layer(*inputs)]
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    assert [output.shape for output in copy(*inputs)] == shapes
    assert copy.count_params() == layer.count_params() > 0


def test_an_encoded_item_depends_on_older_items_only():
    random = np.random.default_rng(2)
    layer = HistoryTransformer(width=4, layers=2, ffn_dim=3)
    candidate, items, is_item = random.normal(size=(1, 3)), random.normal(size=(1, 5, 3)), np.ones((1, 5), bool)
    seen = []
    layer.decoder[0][0].call = lambda query, states, *_, **__: seen.append(np.asarray(states)) or query
    for moved in (0.0, 1.0):
        items[0, 2] += moved
        layer(candidate.astype("float32"), items.astype("float32"), is_item)
    before, after = seen[0][0], seen[1][0]  # the newest first
    np.testing.assert_allclose(after[3:], before[3:], atol=1e-6)
    assert (np.abs(after[:3] - before[:3]).max(axis=1) > 1e-3).all()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gru(layer, items: list[np.ndarray], attention: np.ndarray) -> list[np.ndarray]:
    """The states of an AttentionalGRU."""
    kernels = [np.split(value(weight), 3, axis=-1) for weight in (layer.kernel, layer.recurrent_kernel, layer.bias)]
    (w_u, w_r, w_c), (u_u, u_r, u_c), (b_u, b_r, b_c) = kernels
    state, states = np.zeros(layer.units), []
    for x, a in zip(items, attention, strict=True):
        update = a * sigmoid(x @ w_u + state @ u_u + b_u)
        reset = sigmoid(x @ w_r + state @ u_r + b_r)
        new = np.tanh(x @ w_c + reset * (state @ u_c) + b_c)
        state = (1 - update) * state + update * new
        states.append(state)
    return states


@compares("dien")
def test_dien():
    model, inputs = unchanged("dien"), history_batch()
    table, layer, read = value(model.table.table), model.evolutions[0], []
    for row in inputs["ids"]:
        items = [e for _, e in events(table, row)]
        interests = gru(layer.extraction, items, np.ones(len(items)))
        compared = candidate(table, row) @ value(layer.compare.kernel)
        attention = softmax(np.array([h @ compared for h in interests])) if items else np.zeros(0)
        read.append([np.zeros(layer.units), *gru(layer.evolution, interests, attention)][-1])
    compare(model, inputs, mlp(model, inputs, read))


def test_an_interest_is_to_tell_the_next_item_from_one_of_the_next_row():
    random = np.random.default_rng(4)
    ids = np.array([[3, 4, 5, 6], [5, 4, 0, 0], [0, 0, 0, 0], [7, 9, 8, 0]], np.int32)
    interests, items = random.normal(size=(2, 4, 4, 3))
    items *= (ids > 0)[:, :, None]
    found = auxiliary_loss(interests, History(items[:, 0], items, ids, ids > 0, ids == 3))

    def pair(row: int, place: int, other: tuple[int, int]) -> float:
        h = interests[row, place - 1]
        return -math.log(sigmoid(h @ items[row, place])) - math.log(1 - sigmoid(h @ items[other]))

    # Beside the first row's items stand those of the second, from its first again where it ends: the last alone is
    # another item. The second row stands beside one without items, the third has none, the fourth beside the first.
    of_last_row = (pair(3, 1, (0, 1)) + pair(3, 2, (0, 2))) / 2
    assert float(found) == pytest.approx((pair(0, 3, (1, 1)) + of_last_row) / 4, rel=1e-5)
    weights = np.array([[2], [1], [1], [0]], np.float32)
    history = History(items[:, 0], items, ids, ids > 0, ids == 3)
    assert float(auxiliary_loss(interests, history, weights)) == pytest.approx(2 * pair(0, 3, (1, 1)) / 4, rel=1e-5)
    assert float(auxiliary_loss(interests, history, 0 * weights)) == 0


@pytest.mark.slow
def test_the_auxiliary_loss_is_added_in_training_alone():
    inputs = history_batch()
    losses = {}
    for weight in (0.0, 1.0, 2.0):
        model = randomised("dien", auxiliary_weight=weight)
        model(inputs)
        assert not model.losses
        model(inputs, training=True)
        losses[weight] = float(sum(model.losses))
    assert losses[0.0] == 0 < losses[1.0] == pytest.approx(losses[2.0] / 2, rel=1e-6)


def test_the_auxiliary_loss_weighs_the_rows():
    model, inputs = randomised("dien"), history_batch()
    assert model.reads_labels  # a training step gives the weights only then
    weights = np.arange(len(inputs["ids"]), dtype=np.float32)[:, None]
    losses = []
    for given in ({}, {"weight": np.ones_like(weights)}, {"weight": weights}):
        model({**inputs, **given}, training=True)
        losses.append(float(sum(model.losses)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and losses[2] != pytest.approx(losses[0], rel=1e-3)


SEARCHES = [{}, {"search": "hard", "category": "kinds"}, {"search": "hash"}, {"search": "attention"}]


@pytest.mark.parametrize("changes", SEARCHES, ids=["soft", "hard", "hash", "attention"])
@compares("sim")
def test_sim(changes):
    model, inputs = randomised("sim", **changes, found=2), history_batch(14)
    table, attention, read, sizes = value(model.table.table), model.attentions[0], [], []
    for row in inputs["ids"]:
        v, items = candidate(table, row), [e for _, e in events(table, row)]
        parts = []
        best = None
        if changes.get("search") == "hash":
            planes = value(model.searches[0].planes)
            scores = [int(((e @ planes > 0) == (v @ planes > 0)).sum()) for e in items]
            found = [items[place] for place in sorted(range(len(items)), key=lambda place: -scores[place])[:2]]
        elif changes.get("search") == "attention":
            found, best = items, 2  # of each head
        elif changes:
            found = [e for place, e in enumerate(items) if row[KINDS + place] == row[KIND]][-2:]
        else:
            search = model.searches[0]
            scores = [(e @ value(search.of_item.kernel)) @ (v @ value(search.of_candidate.kernel)) for e in items]
            found = [items[place] for place in sorted(range(len(items)), key=lambda place: -scores[place])[:2]]
            parts.append(
                sum((r * e for r, e in zip(scores, items, strict=True)), np.zeros_like(v)) / max(len(items), 1)
            )
        sizes.append(min(len(found), 2))
        keys = [(e @ value(attention.of_item.kernel)).reshape(2, 2) for e in found]
        query = (v @ value(attention.of_candidate.kernel)).reshape(2, 2)
        for head in range(2):
            scores = np.array([key[head] @ query[head] for key in keys])
            if best is not None and len(scores) > best:
                scores = np.where(scores >= np.sort(scores)[-best], scores, -np.inf)
            weights = softmax(scores) if found else []
            parts.append(sum((w * e for w, e in zip(weights, found, strict=True)), np.zeros_like(v)))
        read.append(np.concatenate(parts))
    assert set(sizes) == {0, 1, 2}
    compare(model, inputs, mlp(model, inputs, read))


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_the_row_of_padding_never_changes_a_logit(name):
    model, inputs = randomised(name), history_batch()
    before = np.asarray(model(inputs))
    for table in model.tables():
        moved = value(table.table)
        moved[0] = 9.0
        table.table.assign(moved)
    np.testing.assert_array_equal(np.asarray(model(inputs)), before)


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_longer_padding_changes_no_logit(name):
    model, inputs, further = unchanged(name), history_batch(), 3
    longer = create(name, history_map(length=LENGTH + further), **SMALL[name])
    ids = np.insert(inputs["ids"], np.repeat([KINDS, ACTIONS, KIND], further), 0, axis=1)
    longer({**inputs, "ids": ids})
    for weight, other in zip(model.weights, longer.weights, strict=True):
        # Weights of further places, if there are any, stand behind the others and may be anything.
        filled = np.full(other.shape, 5.0, np.float32)
        filled[tuple(slice(size) for size in weight.shape)] = np.asarray(weight)
        other.assign(filled)
    np.testing.assert_allclose(
        np.asarray(longer({**inputs, "ids": ids})), np.asarray(model(inputs)), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_the_order_of_events_matters_where_a_model_reads_it_and_which_belong_together_always(name):
    model, inputs = unchanged(name), history_batch(6)
    full = {key: array[5:6].copy() for key, array in inputs.items()}
    before = np.asarray(model(full))
    order = np.array([3, 0, 4, 1, 2])
    for start in (ITEMS, KINDS, ACTIONS):
        full["ids"][:, start : start + LENGTH] = full["ids"][:, start + order]
    if name in IN_ORDER:
        assert np.abs(np.asarray(model(full)) - before).max() > 1e-3
        before = np.asarray(model(full))
    else:
        np.testing.assert_allclose(np.asarray(model(full)), before, rtol=1e-5, atol=1e-5)
    full["ids"][:, KINDS : KINDS + LENGTH] = full["ids"][:, KINDS + order]
    assert np.abs(np.asarray(model(full)) - before).max() > 1e-3


def test_a_candidate_in_its_own_history_adds_nothing():
    for name in ("fism", "nais"):
        model, inputs = randomised(name), history_batch(6)
        row = {key: array[5:6].copy() for key, array in inputs.items()}
        row["ids"][0, ITEMS : ITEMS + LENGTH] = row["ids"][0, ITEM]
        alone = {key: array.copy() for key, array in row.items()}
        alone["ids"][0, ITEMS:KIND] = 0
        np.testing.assert_allclose(np.asarray(model(row)), np.asarray(model(alone)), atol=1e-6)


def test_nais_begins_as_the_fism_whose_weights_it_takes():
    """Without attention the weights are n^-β, as in FISM with α = β."""
    first, model = randomised("fism", alpha=0.3), randomised("nais", beta=0.3)
    model.take_weights(first)
    inputs = history_batch()
    assert np.abs(np.asarray(model(inputs)) - np.asarray(first(inputs))).max() > 1e-2
    model.attentions[0].score.set_weights([np.zeros(model.attentions[0].score.kernel.shape)])
    np.testing.assert_allclose(np.asarray(model(inputs)), np.asarray(first(inputs)), atol=1e-5)


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_a_log_without_a_shared_sequence_is_refused(name):
    alone = [("item", "categorical", 5), ("items", "sequence", 5, 3)]
    with pytest.raises(ValueError, match="shared_with, the candidate's column; no column is shared with items"):
        create(name, FeatureMap.from_sizes(alone), **SMALL[name])
    with pytest.raises(ValueError, match="there is none"):
        create(name, FeatureMap.from_sizes(alone[:1]), **SMALL[name])


@pytest.mark.parametrize("pooling", ["sum", "mean", "attention"])
def test_pooling_of_a_sequence_beside_a_loop(pooling):
    fields = [("item", "categorical", 6), ("items", "sequence", 6, 3, "feature", pooling, "item")]
    random = np.random.default_rng(1)
    layer, ids = FieldEmbedding(FeatureMap.from_sizes(fields), 4), np.array([[3, 4, 5, 6], [3, 7, 4, 0], [5, 0, 0, 0]])
    layer(ids)
    table = random.normal(size=(9, 4))
    layer.table.assign(table)
    expected = np.zeros((3, 4))
    for n, (item, *others) in enumerate(ids):
        items = [table[other] for other in others if other]
        scores = [math.exp(table[item] @ e) if pooling == "attention" else 1.0 for e in items]
        total = 1.0 if pooling == "sum" else sum(scores)
        for score, e in zip(scores, items, strict=True):
            expected[n] += score / total * e
    found = np.asarray(layer(ids))
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:, 0], table[ids[:, 0]], rtol=1e-6)


def test_a_shared_sequence_adds_no_rows_to_the_table():
    shared = history_map()
    assert shared.total_ids == 1 + (9 + 8 + 2 + 3) + 4 * 2 and shared.total_slots == 18
    by_name = {field.name: field for field in shared.fields}
    assert by_name["items"].offset == by_name["item"].offset and by_name["kinds"].offset == by_name["kind"].offset
    assert [[field.name for field in group] for group in shared.histories] == [["items", "kinds", "actions"]]
    assert FeatureMap.from_json(shared.to_json()) == shared


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([Field("a", "sequence", 5, 1, 2, shared_with="b")], "shared_with should name a categorical field"),
        ([Field("b", "categorical", 5, 1), Field("a", "sequence", 4, 1, 2, shared_with="b")], "those of 'b'"),
    ],
)
def test_a_feature_map_refuses_ids_that_are_not_those_of_the_shared_field(fields, message):
    with pytest.raises(ValueError, match=message):
        FeatureMap(tuple(fields))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Field("a", "categorical", 5, 1, shared_with="b"), "kind='sequence'"),
        (lambda: Field("a", "sequence", 5, 1, pooling="attention"), "needs shared_with"),
        (lambda: Field("a", "sequence", 5, 1, pooling="max"), "pooling should be one of"),
        (lambda: SmoothedAttention("dot"), "`attention` should be one of"),
        (lambda: SmoothedAttention(beta=0.0), "beta=0.0"),
        (lambda: SmoothedAttention(units=0), "units=0"),
        (lambda: HistoryAttention(kind="dot"), "`attention` should be one of"),
        (lambda: HistoryAttention(heads=0), "heads=0"),
        (lambda: SoftSearch(0), "units=0"),
        (lambda: CandidateAttention(key_dim=0), "key_dim=0"),
        (lambda: CandidateAttention(found=0), "found=0"),
        (lambda: HashSearch(0), "bits=0"),
        (lambda: create("sim", history_map(), search="near"), "`search` should be one of"),
        (lambda: create("sim", history_map(), found=0), "found=0"),
        (
            lambda: create("sim", history_map(), search="hard", category="actions"),
            "category='actions'",
        ),
        (lambda: AttentionalGRU(0), "units=0"),
        (lambda: InterestEvolution(0), "units=0"),
        (lambda: create("dien", history_map(), auxiliary_weight=-1.0), "non-negative. Received: -1.0"),
        (lambda: HistoryAttention(heads=3).build((None, 1, 4)), "should divide the width 4"),
        (lambda: HistoryTransformer(positions="none"), "`positions` should be one of"),
        (lambda: HistoryTransformer(width=5), "should divide the width 5"),
        (lambda: HistoryTransformer(layers=0), "layers=0"),
        (lambda: BehaviorTransformer(output="last"), "`output` should be one of"),
        (lambda: BehaviorTransformer(position_dim=0), "position_dim=0"),
        (lambda: create("hstu", history_map(), width=5), "Received: 2 and 5"),
        (lambda: create("hstu", history_map(), times="hours"), "items, kinds, actions. Received: times='hours'"),
        (lambda: create("one_trans", history_map(), width=5), "Received: 2 and 5"),
        (lambda: create("one_trans", history_map(), user_tokens=0), "user_tokens=0"),
        (lambda: HSTULayer(buckets=-1), "buckets=-1"),
        (lambda: UnifiedLayer(heads=0), "heads=0"),
    ],
)
def test_impossible_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "layer",
    [
        SmoothedAttention(units=3),
        ActivationUnit((3,)),
        HistoryTransformer(width=6, positions="learned"),
        InterestEvolution(3),
        CandidateAttention(key_dim=3, found=2),
        BehaviorTransformer(position_dim=4),
        BehaviorTransformer(position_dim=4, output="candidate"),
    ],
    ids=lambda layer: layer.name,
)
def test_a_history_layer_is_what_its_configuration_says(layer):
    inputs = np.ones((2, 4), np.float32), np.ones((2, 5, 4), np.float32), np.ones((2, 5), bool)
    shape = layer(*inputs).shape
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    shapes = [array.shape for array in inputs]
    copy.build(*shapes)  # all of its weights, without a call
    assert copy.count_params() == layer.count_params() > 0
    assert copy(*inputs).shape == shape == layer.compute_output_shape(*shapes)
    assert copy.count_params() == layer.count_params()


def test_nais_stands_scores_that_a_softmax_in_float32_would_not():
    layer = SmoothedAttention(units=1, beta=1.0)
    items = np.array([[[100.0], [200.0]]], np.float32)
    layer(np.ones((1, 1), np.float32), items, np.ones((1, 2), bool))
    layer.hidden.set_weights([np.ones((1, 1)), np.zeros(1)])
    layer.score.set_weights([np.ones((1, 1))])
    weights = np.asarray(layer(np.ones((1, 1), np.float32), items, np.ones((1, 2), bool)))
    np.testing.assert_allclose(weights, [[0.0, 1.0]], atol=1e-6)
