"""One context and many candidates: every model gives the same logits as for full rows."""

import dataclasses

import keras
import numpy as np
import pytest

from ctrpipe.models.base.candidates import join_candidates
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.base.registry import model_class
from ctrpipe.models.layers.activation_unit import ActivationUnit
from tests.models.small_models import (
    FAMILIES,
    KINDS,
    OF_SEVERAL_INPUTS,
    WITH_HISTORY,
    WITH_ITEMS,
    WITH_TEXT,
    batch_of,
    cases_of,
    divided,
    randomised,
    unchanged,
    unchanged_with_items,
    with_items,
)


def repeated(context: dict[str, np.ndarray], joined: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The joined tensors with the text in every row."""
    texts = {name: np.repeat(context[name], rows, axis=0) for name in ("tokens", "segments") if name in context}
    return {**{name: np.asarray(values) for name, values in joined.items()}, **texts}


@pytest.mark.parametrize("name", cases_of(OF_SEVERAL_INPUTS, quick=KINDS))
def test_candidates_have_the_logits_of_their_rows(name):
    data, inputs = with_items(name), batch_of(name)
    model = unchanged_with_items(name)
    context, candidates = divided(data, inputs)
    joined = repeated(context, join_candidates(data, context, candidates), 7)
    expected = np.asarray(model(joined, training=False))
    found = np.asarray(model.candidate_logits(context, candidates))
    assert found.shape == expected.shape == (7, len(data.tasks))
    assert name == "text_only" or np.ptp(expected[:, 0]) > 1e-4
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["din", "two_tower", "starspace"])
def test_candidates_of_a_model_of_fake_negatives_are_corrected_once(name):
    data, inputs = dataclasses.replace(with_items(name), fake_negatives=True), batch_of(name)
    context, candidates = divided(data, inputs)
    plain = np.asarray(unchanged_with_items(name).candidate_logits(context, candidates), np.float64)
    found = np.asarray(randomised(name, data).candidate_logits(context, candidates), np.float64)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), np.minimum(np.exp(plain), 1 - 1e-6), rtol=1e-4)


def test_joined_tensors_have_the_first_context_and_every_candidate():
    data, inputs = with_items("din"), batch_of("din")
    joined = join_candidates(data, *divided(data, inputs))
    for field in data.fields:
        expected = inputs["ids"][:, data.slots_of(field.name)]
        expected = expected if field.name in ("item", "kind") else np.repeat(expected[:1], 7, axis=0)
        np.testing.assert_array_equal(joined["ids"][:, data.slots_of(field.name)], expected)
    dense = np.stack([np.full(7, inputs["dense"][0, 0]), inputs["dense"][:, 1]], 1)
    np.testing.assert_array_equal(joined["dense"], dense)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", cases_of(FAMILIES, [name for name in WITH_TEXT if name not in ("text_only", "numbert")])
)
def test_a_text_is_the_context_where_no_column_is_the_candidates(name):
    model, inputs = unchanged(name), batch_of(name)
    context = {key: inputs[key][:1] for key in ("tokens", "segments")}
    candidates = {key: values for key, values in inputs.items() if key not in context}
    expected = np.asarray(model({**inputs, **{k: np.repeat(v, 7, axis=0) for k, v in context.items()}}, training=False))
    np.testing.assert_allclose(np.asarray(model.candidate_logits(context, candidates)), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.slow
def test_one_candidate_is_a_row():
    for name in ("mlp", *WITH_ITEMS):
        data, inputs = with_items(name), {key: values[:1] for key, values in batch_of(name).items()}
        model = unchanged_with_items(name)
        found = np.asarray(model.candidate_logits(*divided(data, inputs)))
        np.testing.assert_allclose(found, np.asarray(model(inputs, training=False)), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_candidates_may_have_histories_of_their_own(name):
    data, inputs = with_items(name), batch_of(name)
    fields = [dataclasses.replace(one, role="item") if one.kind == "sequence" else one for one in data.fields]
    data = dataclasses.replace(data, fields=tuple(fields))
    model = randomised(name, data)
    context, candidates = divided(data, inputs)
    joined = join_candidates(data, context, candidates)
    found, expected = model.candidate_logits(context, candidates), model(joined, training=False)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", [name for name in WITH_HISTORY if model_class(name).shares_history])
def test_a_users_history_is_read_once(monkeypatch, name):
    read, histories = [], HistoryModel.histories

    def recorded(self, rows, ids):
        found = histories(self, rows, ids)
        read.extend(found)
        return found

    data, inputs = with_items(name), batch_of(name)
    model = unchanged_with_items(name)
    monkeypatch.setattr(HistoryModel, "histories", recorded)
    model.candidate_logits(*divided(data, inputs))
    assert {len(history.items) for history in read} == {1}


@pytest.mark.parametrize(
    "lengths",
    [pytest.param((4,), id="one"), pytest.param((5, 5, 5, 4), id="full"), pytest.param((0, 1, 5, 2), id="empty")],
)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("hidden_units", [(), (6, 3)])
def test_an_activation_unit_sums_one_history_or_those_of_which_few_or_many_places_are_empty(
    hidden_units, training, lengths
):
    random = np.random.default_rng(0)
    candidate, items = random.normal(size=(4, 3)), random.normal(size=(len(lengths), 5, 3))
    is_item = np.arange(5)[None] < np.array(lengths)[:, None]
    unit = ActivationUnit(hidden_units, "tanh")
    unit.build(candidate.shape)
    for weight in unit.weights:
        weight.assign(random.normal(size=weight.shape))

    def score(values):
        layers = [*unit.score.hidden, unit.score.logits]
        for number, layer in enumerate(layers, 1):
            values = values @ np.asarray(layer.kernel) + np.asarray(layer.bias)
            values = values if number == len(layers) else np.tanh(values)
        return values[0]

    expected = np.zeros((4, 3))
    for row, v in enumerate(candidate):
        own = row % len(lengths)
        for e in items[own][is_item[own]]:
            expected[row] += score(np.concatenate([v, e, v - e, v * e])) * e
    found = unit(candidate.astype("float32"), items.astype("float32"), is_item, training=training)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX computes all places")
@pytest.mark.parametrize(
    ("length", "training", "unused"),
    [(4, True, "_without_padding"), (3, True, "_by_candidate"), (4, False, "_by_candidate")],
)
def test_an_activation_unit_computes_empty_places_in_training_alone_and_where_they_are_few(
    length, training, unused, monkeypatch
):
    unit = ActivationUnit((3,))
    monkeypatch.setattr(unit, unused, None)
    candidate, items = np.ones((2, 3), "float32"), np.ones((2, 5, 3), "float32")
    assert unit(candidate, items, np.arange(5)[None].repeat(2, 0) < length, training=training).shape == (2, 3)
