"""StarSpace: against its equations in numpy, and what its losses train and leave alone."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.feature_map import LABEL, WEIGHT
from ctrpipe.models.base.losses import BinaryCrossEntropy
from tests.models.small_models import SMALL, compare, compares, history_batch, history_map, randomised
from tests.models.starspace_pairs import IDS, LABELS, PAIRS, WEIGHTS, loss_by_loops
from tests.models.test_two_tower import ITEM, KIND, LENGTH, SEQUENCES, USER, value


def entities(model, inputs, of_item=(), leave_out=True, table=None) -> tuple[np.ndarray, np.ndarray]:
    """The bags a and b, row by row; events whose item is b are left out."""
    table = value(model.table.table) if table is None else table
    first, second = [], []
    for ids, dense in zip(inputs["ids"], inputs["dense"], strict=True):
        items = ids[SEQUENCES[0] : SEQUENCES[0] + LENGTH]
        counted = [place for place in range(LENGTH) if items[place] and not (leave_out and items[place] == ids[ITEM])]
        a = [table[ids[USER]], *(table[ids[start + place]] for start in SEQUENCES for place in counted)]
        b = [table[ids[ITEM]], table[ids[KIND]]]
        for name, x, v in zip(("x", "z"), dense, value(model.dense_table.vectors), strict=True):
            (b if name in of_item else a).append(x * v)
        first.append(sum(a))
        second.append(sum(b))
    return np.array(first), np.array(second)


def as_compared(vectors: np.ndarray, similarity: str) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if similarity == "cosine" else vectors


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("leave_out", [True, False])
@pytest.mark.parametrize("of_item", [(), ("z",)])
@compares("starspace")
def test_starspace(similarity, leave_out, of_item):
    data = dataclasses.replace(history_map(), item_dense=of_item)
    model, inputs = randomised("starspace", data, similarity=similarity, leave_out=leave_out), history_batch(14)
    a, b = (as_compared(bags, similarity) for bags in entities(model, inputs, of_item, leave_out))
    compare(model, inputs, value(model.slope) * (a * b).sum(axis=1, keepdims=True) + value(model.bias))
    whole, _ = entities(model, inputs, of_item, leave_out=False)
    # Of the vectors, which items are looked for with, nothing is left out.
    np.testing.assert_allclose(model.user_vectors(inputs), as_compared(whole, similarity), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.item_vectors(inputs), b, rtol=1e-4, atol=1e-5)
    items = inputs["ids"][:, SEQUENCES[0] : SEQUENCES[0] + LENGTH]
    has_item = (items == inputs["ids"][:, [ITEM]]).any(axis=1)
    assert (
        1 < has_item.sum() < 14
        and (np.abs(whole - entities(model, inputs, of_item)[0]).max(axis=1) > 0)[has_item].all()
    )


def test_a_vector_does_not_depend_on_the_columns_of_the_other_side():
    model, inputs = randomised("starspace"), history_batch()
    others = {key: array.copy() for key, array in inputs.items()}
    others["ids"][:, [ITEM, KIND]] = others["ids"][::-1][:, [ITEM, KIND]]
    np.testing.assert_array_equal(model.user_vectors(inputs), model.user_vectors(others))
    others = {"ids": inputs["ids"].copy(), "dense": inputs["dense"] + 1}
    others["ids"][:, [USER, *range(SEQUENCES[0], KIND)]] = inputs["ids"][::-1][:, [USER, *range(SEQUENCES[0], KIND)]]
    np.testing.assert_array_equal(model.item_vectors(inputs), model.item_vectors(others))


def bags_of_words(**changes):
    model = create("starspace", PAIRS, **{**SMALL["starspace"], **changes})
    model({"ids": IDS})
    random = np.random.default_rng(2)
    model.table.table.assign(random.normal(scale=0.6, size=model.table.table.shape).astype(np.float32))
    model.slope.assign([1.5])
    return model


def in_training(labels=LABELS, weights=None) -> dict[str, np.ndarray]:
    inputs = {"ids": IDS, LABEL: labels[:, None].astype(np.float32)}
    return inputs if weights is None else {**inputs, WEIGHT: weights[:, None].astype(np.float32)}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_the_loss_of_the_pairs_and_its_gradient(loss, similarity, k, weighted):
    model = bags_of_words(loss=loss, similarity=similarity, negatives=k, margin=0.3)
    weights = WEIGHTS if weighted else np.ones(6)
    with tf.GradientTape() as tape:
        model(in_training(weights=weights if weighted else None), training=True)
        found = tf.add_n(model.losses)
    table = value(model.table.table)
    settings = (similarity, loss, k, 0.3, LABELS, weights)
    expected = loss_by_loops(table, *settings)
    assert expected > 0.01 and float(found) == pytest.approx(expected, rel=1e-5)
    gradient = np.asarray(tf.convert_to_tensor(tape.gradient(found, model.table.table.value)))
    for row, column in np.ndindex(*table.shape):
        moved = [table.copy(), table.copy()]
        moved[0][row, column] += 1e-6
        moved[1][row, column] -= 1e-6
        slope = (loss_by_loops(moved[0], *settings) - loss_by_loops(moved[1], *settings)) / 2e-6
        assert gradient[row, column] == pytest.approx(slope, rel=1e-3, abs=1e-5)
    assert np.abs(gradient).max() > 0.01


def test_a_step_along_the_gradient_brings_a_pair_closer_and_its_negatives_apart():
    model = bags_of_words(negatives=5, margin=2.0)  # above every difference of cosines: all negatives count

    def similarities() -> np.ndarray:
        a, b = (np.asarray(vectors({"ids": IDS})) for vectors in (model.user_vectors, model.item_vectors))
        return a @ b.T

    only_first = np.array([1.0, 0, 0, 0, 0, 0])
    before = similarities()[0]
    with tf.GradientTape() as tape:
        model(in_training(only_first), training=True)
        loss = tf.add_n(model.losses)
    gradient = tf.convert_to_tensor(tape.gradient(loss, model.table.table.value))
    model.table.table.assign(model.table.table - 0.01 * gradient)
    change = similarities()[0] - before
    others = [j for j in range(6) if IDS[j, 0] != IDS[0, 0]]
    assert change[0] > 0.001 > change[others].sum()


def test_the_log_loss_trains_slope_and_bias_alone_and_the_pairs_loss_the_rest():
    model = bags_of_words()
    with tf.GradientTape(persistent=True) as tape:
        logits = model(in_training(), training=True)
        log_loss = BinaryCrossEntropy()(LABELS[:, None].astype(np.float32), logits)
        of_pairs = tf.add_n(model.losses)
    platt, others = [model.slope.value, model.bias.value], [model.table.table.value]
    assert all(abs(float(gradient[0])) > 0.01 for gradient in tape.gradient(log_loss, platt))
    assert tape.gradient(of_pairs, platt) == [None, None] and tape.gradient(log_loss, others) == [None]
    assert tape.gradient(of_pairs, others) != [None]
    np.testing.assert_allclose(logits, model({"ids": IDS}), rtol=1e-6)  # the value is that of an answer


def test_rows_without_a_pair_have_no_loss():
    model = bags_of_words()
    model(in_training(np.zeros(6)), training=True)
    assert [float(loss) for loss in model.losses] == [0.0]
    model({"ids": IDS})
    assert not model.losses
    alone = {"ids": IDS[:1], LABEL: np.ones((1, 1), np.float32)}
    model(alone, training=True)  # no other row, and so no negative
    assert [float(loss) for loss in model.losses] == [0.0]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_an_entity_without_features_has_finite_gradients(similarity):
    model = bags_of_words(similarity=similarity)
    inputs = in_training()
    inputs["ids"] = IDS.copy()
    inputs["ids"][0, 1:] = 0
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = tf.add_n(model.losses)
    assert np.isfinite(logits).all() and np.asarray(logits)[0] == value(model.bias)
    assert np.isfinite(tf.convert_to_tensor(tape.gradient(loss, model.table.table.value))).all()


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ([("a", "categorical", 5)], {}, "starspace needs the item's columns; give them `role: item`, or a sequence"),
        ([("a", "categorical", 5, 1, "item")], {}, "starspace needs columns of the user; all of them are the item's"),
        (None, {"similarity": "euclid"}, "`similarity` should be one of"),
        (None, {"loss": "hinge"}, "`loss` should be one of"),
        (None, {"margin": -0.1}, "`margin` should be non-negative"),
        (None, {"max_norm": -1.0}, "`max_norm` should be non-negative"),
        (None, {"negatives": 0}, "`negatives` should be positive"),
        (None, {"use_linear": True}, "starspace has no linear part"),
    ],
)
def test_impossible_options_are_refused_in_one_line(fields, options, message):
    data = FeatureMap.from_sizes(fields) if fields else history_map()
    with pytest.raises(ValueError, match=message) as refused:
        create("starspace", data, **{**SMALL["starspace"], **options})
    assert "\n" not in str(refused.value)
