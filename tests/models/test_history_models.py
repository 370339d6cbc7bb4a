"""Models that read a history item by item: against their equations in numpy, and what a history may not change."""

import math

import numpy as np
import pytest

from models import FeatureMap, create
from models.feature_map import Field
from models.layers.activation_unit import ActivationUnit
from models.layers.field_embedding import FieldEmbedding
from models.layers.smoothed_attention import SmoothedAttention
from tests.models.small_models import (
    SMALL,
    WITH_HISTORY,
    compare,
    compares,
    history_batch,
    history_map,
    randomised,
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


@compares("din")
def test_din():
    model, inputs = randomised("din"), history_batch()
    table, score = value(model.table.table), model.units[0].score
    expected = []
    for row, dense in zip(inputs["ids"], inputs["dense"], strict=True):
        v, pooled = candidate(table, row), np.zeros(3 * table.shape[1])
        for _, e in events(table, row):
            x = np.concatenate([v, e, v - e, v * e])
            for layer in score.hidden:
                x = 1 / (1 + np.exp(-(x @ value(layer.kernel) + value(layer.bias))))
            pooled += (x @ value(score.logits.kernel) + value(score.logits.bias)) * e
        x = np.concatenate([table[row[USER]], table[row[ITEM]], table[row[KIND]], dense, pooled])
        for layer in model.tower.hidden:
            x = np.maximum(x @ value(layer.kernel) + value(layer.bias), 0)
        expected.append(x @ value(model.tower.logits.kernel) + value(model.tower.logits.bias))
    compare(model, inputs, np.array(expected))


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_padding_never_changes_a_logit_and_a_longer_feature_map_reads_the_same(name):
    model, inputs = randomised(name), history_batch()
    before = np.asarray(model(inputs))
    for table in model.tables():
        moved = value(table.table)
        moved[0] = 9.0
        table.table.assign(moved)
    np.testing.assert_array_equal(np.asarray(model(inputs)), before)


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_the_order_of_events_does_not_matter_but_which_belong_together_does(name):
    model, inputs = randomised(name), history_batch(6)
    full = {key: array[5:6].copy() for key, array in inputs.items()}
    before = np.asarray(model(full))
    order = np.array([3, 0, 4, 1, 2])
    for start in (ITEMS, KINDS, ACTIONS):
        full["ids"][:, start : start + LENGTH] = full["ids"][:, start + order]
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
    ],
)
def test_impossible_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("layer", [SmoothedAttention(units=3), ActivationUnit((3,))])
def test_a_history_layer_is_what_its_configuration_says(layer):
    inputs = np.ones((2, 4), np.float32), np.ones((2, 5, 4), np.float32), np.ones((2, 5), bool)
    shape = layer(*inputs).shape
    copy = type(layer).from_config(layer.get_config())
    assert copy(*inputs).shape == shape == layer.compute_output_shape(*(array.shape for array in inputs))
    assert copy.count_params() == layer.count_params() > 0


def test_nais_stands_scores_that_a_softmax_in_float32_would_not():
    layer = SmoothedAttention(units=1, beta=1.0)
    items = np.array([[[100.0], [200.0]]], np.float32)
    layer(np.ones((1, 1), np.float32), items, np.ones((1, 2), bool))
    layer.hidden.set_weights([np.ones((1, 1)), np.zeros(1)])
    layer.score.set_weights([np.ones((1, 1))])
    weights = np.asarray(layer(np.ones((1, 1), np.float32), items, np.ones((1, 2), bool)))
    np.testing.assert_allclose(weights, [[0.0, 1.0]], atol=1e-6)
