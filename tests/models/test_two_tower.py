"""Two towers: their equation in numpy, and invariances of the vectors."""

import dataclasses

import numpy as np
import pytest

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.feature_map import Field
from tests.models.small_models import SMALL, compare, compares, history_batch, history_map, randomised

LENGTH = 5
# Slots of `ids`: user, item, five items, five kinds, five actions, kind.
USER, ITEM, ITEMS, KINDS, ACTIONS, KIND = 0, 1, 2, 7, 12, 17
SEQUENCES = (ITEMS, KINDS, ACTIONS)


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def mlp(tower, x: np.ndarray) -> np.ndarray:
    for layer in tower.hidden:
        x = np.maximum(x @ value(layer.kernel) + value(layer.bias), 0)
    return x @ value(tower.logits.kernel) + value(tower.logits.bias)


def vectors(model, inputs, of_item: tuple[str, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """The users' and the items' vectors, before their lengths are made equal, row by row."""
    table, users, items = value(model.table.table), [], []
    for ids, dense in zip(inputs["ids"], inputs["dense"], strict=True):
        read = [table[ids[USER]]]
        for start in SEQUENCES:
            events = [table[number] for number in ids[start : start + LENGTH] if number]
            read.append(np.mean(events, axis=0) if events else np.zeros(table.shape[1]))
        mine = [number for number, name in zip(dense, ("x", "z"), strict=True) if name in of_item]
        others = [number for number, name in zip(dense, ("x", "z"), strict=True) if name not in of_item]
        users.append(mlp(model.user_tower, np.concatenate([*read, others])))
        items.append(mlp(model.item_tower, np.concatenate([table[ids[ITEM]], table[ids[KIND]], mine])))
    return np.array(users), np.array(items)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("of_item", [(), ("z",)])
@compares("two_tower")
def test_two_tower(similarity, of_item):
    data = dataclasses.replace(history_map(), item_dense=of_item)
    model, inputs = randomised("two_tower", data, similarity=similarity, temperature=0.25), history_batch()
    users, items = vectors(model, inputs, of_item)
    if similarity == "cosine":
        users, items = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (users, items))
    expected = (users * items).sum(axis=1) / 0.25 + value(model.bias)
    compare(model, inputs, expected[:, None])
    np.testing.assert_allclose(model.user_vectors(inputs), users, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.item_vectors(inputs), items, rtol=1e-4, atol=1e-5)


def test_a_vector_depends_on_its_own_columns_alone_also_where_a_history_would_attend_to_the_candidate():
    fields = tuple(
        dataclasses.replace(field, pooling="attention") if field.shared_with else field
        for field in history_map().fields
    )
    model, inputs = randomised("two_tower", dataclasses.replace(history_map(), fields=fields)), history_batch()
    others = {key: array.copy() for key, array in inputs.items()}
    others["ids"][:, [ITEM, KIND]] = others["ids"][::-1][:, [ITEM, KIND]]
    np.testing.assert_array_equal(model.user_vectors(inputs), model.user_vectors(others))
    assert np.abs(np.asarray(model.item_vectors(inputs)) - model.item_vectors(others)).max() > 1e-3
    others = {"ids": inputs["ids"].copy(), "dense": inputs["dense"] + 1}
    others["ids"][:, [USER, *range(ITEMS, KIND)]] = inputs["ids"][::-1][:, [USER, *range(ITEMS, KIND)]]
    np.testing.assert_array_equal(model.item_vectors(inputs), model.item_vectors(others))
    assert np.abs(np.asarray(model.user_vectors(inputs)) - model.user_vectors(others)).max() > 1e-3


def test_longer_padding_changes_no_vector():
    model, inputs, further = randomised("two_tower"), history_batch(), 3
    longer = create("two_tower", history_map(length=LENGTH + further), **SMALL["two_tower"])
    ids = np.insert(inputs["ids"], np.repeat([KINDS, ACTIONS, KIND], further), 0, axis=1)
    longer({**inputs, "ids": ids})
    longer.set_weights(model.get_weights())
    np.testing.assert_allclose(longer.user_vectors({**inputs, "ids": ids}), model.user_vectors(inputs), atol=1e-6)


def test_the_role_item_names_the_items_columns_without_a_history():
    film, genres = ("film", "categorical", 8, 1, "item"), ("genres", "multivalent", 4, 3, "item")
    data = FeatureMap.from_sizes([("user", "categorical", 9), film, genres])
    assert [field.name for field in data.item_fields] == ["film", "genres"]
    model = create("two_tower", data, **SMALL["two_tower"])
    ids = np.array([[3, 13, 22, 0, 0], [4, 13, 22, 0, 0], [3, 14, 22, 23, 0]])
    users, items = np.asarray(model.user_vectors({"ids": ids})), np.asarray(model.item_vectors({"ids": ids}))
    assert (users[0] == users[2]).all() and (users[0] != users[1]).any()
    assert (items[0] == items[1]).all() and (items[0] != items[2]).any()


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ([("a", "categorical", 5)], {}, "needs the item's columns; give them `role: item`, or a sequence"),
        ([("a", "categorical", 5, 1, "item")], {}, "needs columns of the user; all of them are the item's"),
        (None, {"similarity": "euclid"}, "`similarity` should be one of"),
        (None, {"temperature": 0.0}, "`temperature` should be positive"),
        (None, {"use_linear": True}, "has no linear part"),
    ],
)
def test_impossible_towers_are_refused_in_one_line(fields, options, message):
    data = FeatureMap.from_sizes(fields) if fields else history_map()
    with pytest.raises(ValueError, match=message) as refused:
        create("two_tower", data, **{**SMALL["two_tower"], **options})
    assert "\n" not in str(refused.value)


def test_item_dense_names_dense_features():
    with pytest.raises(ValueError, match="`item_dense` should name dense features"):
        FeatureMap((Field("a", "categorical", 5, 1),), ("x",), item_dense=("a",))
    data = dataclasses.replace(history_map(), item_dense=("z",))
    assert FeatureMap.from_json(data.to_json()) == data
