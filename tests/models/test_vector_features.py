"""Dense features that are vectors: one token for models that embed them, plain numbers for all others."""

import dataclasses

import numpy as np
import pytest

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.base.candidates import join_candidates
from ctrpipe.models.base.feature_map import FeatureMap as Map
from ctrpipe.models.layers.dense_embedding import DenseEmbedding
from tests.models.small_models import SMALL, WITH_TEXT, batch_of, cases_of, filled, map_of

WIDTHS = (1, 4, 1, 1, 3)
NAMES = ("x", "v", "y", "z", "w")
SINGLE = tuple(f"{name}{place}" for name, width in zip(NAMES, WIDTHS, strict=True) for place in range(width))


def with_dense(name: str, dense, widths=(), item=()) -> FeatureMap:
    data = map_of(name)
    numbers = data.numbers if name in WITH_TEXT and not dense else ()
    return dataclasses.replace(data, dense=dense, dense_widths=widths, item_dense=item, numbers=numbers)


def rows_of(name: str, rows=6) -> dict[str, np.ndarray]:
    inputs = {key: values for key, values in batch_of(name, rows).items() if key != "numbers"}
    return {**inputs, "dense": np.random.default_rng(2).normal(size=(rows, sum(WIDTHS))).astype(np.float32)}


def projected(values: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """A vector's rows of a weight, summed with its elements: the weight of a number that is 1."""
    ends = np.cumsum(WIDTHS)
    parts = [
        values[first:stop] if stop - first == 1 else (inputs[first:stop] @ values[first:stop])[None]
        for first, stop in zip(ends - WIDTHS, ends, strict=True)
    ]
    return np.concatenate(parts)


IN_MAKE_TEST = ("deepfm", "hiformer", "ple", "bert4ctr")  # crosses, tokens, tasks, a text


@pytest.mark.parametrize("name", cases_of(IN_MAKE_TEST, [name for name in SMALL if "numbert" not in name]))
def test_a_vector_is_one_embedding_or_its_plain_numbers(name):
    """A model that does not embed dense features treats a vector as single numbers.

    A model that embeds them treats a row's vector as the number 1 with the vector's projection as its embedding.
    """
    inputs = rows_of(name)
    model = filled(name, with_dense(name, NAMES, WIDTHS), inputs)
    found = np.asarray(model(inputs, training=False))
    inner = getattr(model, "downstream", model)
    if not inner.embeds_dense:
        single = filled(name, with_dense(name, SINGLE), inputs)
        assert [weight.shape for weight in single.variables] == [weight.shape for weight in model.variables]
        np.testing.assert_allclose(found, np.asarray(single(inputs, training=False)), rtol=1e-6, atol=1e-6)
        return
    table = next(layer for layer in model._flatten_layers() if isinstance(layer, DenseEmbedding))
    if inner is not model:  # the text's score follows the dense features
        assert table.widths == (*WIDTHS, 1) and np.ptp(found) > 1e-3
        return
    assert table(inputs["dense"]).shape[1] == table.compute_output_shape((6, 10))[1] == 5
    ones = with_dense(name, NAMES)
    for row in range(6):
        one = {key: values[row : row + 1] for key, values in inputs.items()}
        values = np.where(np.array(WIDTHS) == 1, inputs["dense"][row, np.cumsum(WIDTHS) - 1], 1.0)
        reference = create(name, ones, **SMALL[name])
        single = {**one, "dense": values[None].astype(np.float32)}
        reference(single)
        for mine, theirs in zip(reference.variables, model.variables, strict=True):
            given = np.asarray(theirs)
            mine.assign(given if mine.shape == theirs.shape else projected(given, inputs["dense"][row]))
        np.testing.assert_allclose(
            np.asarray(model(one, training=False)), np.asarray(reference(single, training=False)), rtol=2e-5, atol=2e-5
        )


@pytest.mark.parametrize("name", ["deepfm", "dlrm", "two_tower", "starspace"])
def test_candidates_have_vectors_of_their_own(name):
    data = with_dense(name, NAMES, WIDTHS, ("v", "z"))
    fields = [dataclasses.replace(one, role="item") if one.name in ("f1", "kind") else one for one in data.fields]
    data = dataclasses.replace(data, fields=tuple(fields))
    inputs = rows_of(name)
    model = filled(name, data, inputs)
    items = {field.name for field in data.item_fields}
    of_item = np.array([field.name in items for field in data.fields for _ in range(field.slots)])
    of_dense = np.array([column in ("v", "z") for column in data.dense_columns])
    context = {"ids": inputs["ids"][:1, ~of_item], "dense": inputs["dense"][:1, ~of_dense]}
    candidates = {"ids": inputs["ids"][:, of_item], "dense": inputs["dense"][:, of_dense]}
    joined = {key: np.asarray(values) for key, values in join_candidates(data, context, candidates).items()}
    expected = np.where(of_dense, inputs["dense"], inputs["dense"][:1])
    np.testing.assert_array_equal(joined["dense"], expected)
    found = np.asarray(model.candidate_logits(context, candidates))
    np.testing.assert_allclose(found, np.asarray(model(joined, training=False)), rtol=2e-6, atol=2e-6)
    assert np.ptp(found) > 1e-3


def test_numbert_writes_no_vector():
    with pytest.raises(ValueError, match=r"A vector cannot be written as a number.*\['v', 'w'\]"):
        create("numbert", with_dense("numbert", NAMES, WIDTHS), **SMALL["numbert"])


def test_the_map_of_dense_features_survives_json_and_refuses_other_widths():
    data = Map.from_sizes([("site", "categorical", 3)], NAMES)
    assert data.dense_width == 5 and data.widths == dict.fromkeys(NAMES, 1) and data.dense_columns == NAMES
    data = dataclasses.replace(data, dense_widths=WIDTHS)
    assert Map.from_json(data.to_json()) == data and data.dense_width == 10
    assert data.dense_columns == ("x", "v", "v", "v", "v", "y", "z", "w", "w", "w")
    for widths in ((1, 2), (1, 4, 1, 1, 0)):
        with pytest.raises(ValueError, match="dense_widths should have a width for each"):
            dataclasses.replace(data, dense_widths=widths)


def test_a_vector_alone_is_its_projection():
    layer, inputs = DenseEmbedding(2, widths=(3,)), np.array([[1, 2, 3], [0, -1, 4]], np.float32)
    found = np.asarray(layer(inputs))
    np.testing.assert_allclose(found[:, 0], inputs @ np.asarray(layer.vectors), rtol=1e-5, atol=1e-7)
