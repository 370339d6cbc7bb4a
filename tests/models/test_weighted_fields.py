"""Fields whose slots have weights: every model reads the weighted sum, as if the table had the weighted rows."""

import dataclasses

import numpy as np
import pytest

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.candidates import join_candidates
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, Field
from ctrpipe.models.base.row_parts import logits_by_parts, row_parts
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from tests.models.small_models import KINDS, SMALL, WITH_ITEMS, WITH_TEXT, batch_of, cases_of, filled, map_of

ROWS = 6
READS_LISTS = [name for name in SMALL if name not in WITH_TEXT or name in ("bert4ctr", "features_only")]


def data_of(name: str) -> FeatureMap:
    """The small data of a model with a weighted field of three slots, and one of a single slot."""
    data = map_of(name)
    fields = [field for field in data.fields if field.kind != "multivalent"]
    offset = data.total_ids - sum(field.size for field in data.fields if field.kind == "multivalent")
    fields += [Field("m", "multivalent", 6, offset, 3, weighted=True)]
    fields += [
        Field("one", "multivalent", 4, offset + 6, 1, role="item" if name in WITH_ITEMS else "feature", weighted=True)
    ]
    return dataclasses.replace(data, fields=tuple(fields))


def rows_of(name: str) -> dict[str, np.ndarray]:
    data, random = data_of(name), np.random.default_rng(3)
    inputs = batch_of(name, ROWS)
    kept = sum(field.slots for field in map_of(name).fields if field.kind != "multivalent")
    own = [random.integers(field.offset, field.offset + field.size, (ROWS, field.slots)) for field in data.fields[-2:]]
    own[0][1, 2:], own[0][2, 1:] = 0, 0
    ids = np.concatenate([inputs["ids"][:, :kept], *own], axis=1).astype(np.int32)
    weights = random.normal(size=(ROWS, 4)).astype(np.float32)
    weights[:, :3] *= own[0] > 0
    return {**inputs, "ids": ids, SLOT_WEIGHTS: weights}


@pytest.mark.parametrize("name", cases_of(KINDS, READS_LISTS))
def test_a_model_reads_weighted_rows(name):
    """The reference is the model without weights, given the rows of the tables times the weights."""
    data, inputs = data_of(name), rows_of(name)
    model = filled(name, data, inputs)
    found = np.asarray(model(inputs, training=False))
    plain = dataclasses.replace(data, fields=tuple(dataclasses.replace(field, weighted=False) for field in data.fields))
    ones = {key: values for key, values in inputs.items() if key != SLOT_WEIGHTS}
    reference = filled(name, plain, ones)
    factors = np.ones((ROWS, data.total_slots, 1), np.float32)
    factors[:, -4:, 0] = inputs[SLOT_WEIGHTS]
    parts = {key: np.asarray(part) for key, part in row_parts(reference, ones).items()}
    tables = {table.name for table in reference.tables()}
    parts = {key: part * factors if key in tables else part for key, part in parts.items()}
    expected = np.asarray(logits_by_parts(reference, ones, parts))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert np.abs(found - np.asarray(reference(ones, training=False))).max() > 1e-3
    assert model(empty_row(data)).shape == (1, len(data.tasks))


@pytest.mark.parametrize("name", ["deepfm", "din", "two_tower", "starspace"])
def test_candidates_have_weights_of_their_own(name):
    data, inputs = data_of(name), rows_of(name)
    if name == "deepfm":
        fields = [dataclasses.replace(one, role="item") if one.name == "one" else one for one in data.fields]
        data = dataclasses.replace(data, fields=tuple(fields))
    model = filled(name, data, inputs)
    items = {field.name for field in data.item_fields}
    assert "one" in items and "m" not in items
    of_item = np.array([field.name in items for field in data.fields for _ in range(field.slots)])
    context = {"ids": inputs["ids"][:1, ~of_item], SLOT_WEIGHTS: inputs[SLOT_WEIGHTS][:1, :3]}
    context["dense"] = inputs["dense"][:1]
    candidates = {"ids": inputs["ids"][:, of_item], SLOT_WEIGHTS: inputs[SLOT_WEIGHTS][:, 3:]}
    joined = {key: np.asarray(values) for key, values in join_candidates(data, context, candidates).items()}
    np.testing.assert_array_equal(joined[SLOT_WEIGHTS][:, 3], inputs[SLOT_WEIGHTS][:, 3])
    assert (joined[SLOT_WEIGHTS][:, :3] == inputs[SLOT_WEIGHTS][0, :3]).all()
    found = np.asarray(model.candidate_logits(context, candidates))
    np.testing.assert_allclose(found, np.asarray(model(joined, training=False)), rtol=2e-6, atol=2e-6)
    assert np.ptp(found) > 1e-4


def test_the_weighted_sum_of_a_field_is_that_of_numpy():
    data = FeatureMap.from_sizes([("a", "categorical", 3), ("t", "multivalent", 4, 2, "feature", "sum", "", "", True)])
    layer = FieldEmbedding(data, 3)
    ids, weights = np.array([[1, 6, 8], [2, 9, 0]], np.int32), np.array([[0.5, -2], [3, 7]], np.float32)
    found = np.asarray(layer(ids, weights=weights))
    table = np.asarray(layer.table)
    expected = [[table[1], 0.5 * table[6] - 2 * table[8]], [table[2], 3 * table[9]]]  # id 0 is padding
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_is_no_weighted_field_is_refused():
    with pytest.raises(ValueError, match="weighted needs kind='multivalent'"):
        Field("a", "categorical", 5, 1, weighted=True)
    data = dataclasses.replace(data_of("bert4ctr"), numbers=())
    with pytest.raises(ValueError, match=r"Weights of values cannot be written.*\['m', 'one'\]"):
        create("numbert", data, **SMALL["numbert"])
