"""Numbers of `transform: embed`: AutoDis and periodic functions against loops, and the models that take them."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.models import FeatureMap, create
from ctrpipe.models.layers.number_embedding import NumberEmbedding
from ctrpipe.pipeline.config import check_config
from ctrpipe.transforms.features.kinds.every import transform_of
from ctrpipe.transforms.features.preprocessing import layout
from ctrpipe.transforms.features.vocabularies import Vocabularies
from tests.models.small_models import SMALL, batch_of, filled, map_of

NUMBERS = np.array([[0.0, 0.25, 1.0], [0.5, -1.0, 0.125], [-1.0, 0.75, 0.0]], np.float32)


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def weighted(way: str) -> NumberEmbedding:
    layer = NumberEmbedding(4, way, bins=3, scale=0.5)
    layer.build(NUMBERS.shape)
    random = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(random.normal(size=weight.shape))
    return layer


def periodic(layer: NumberEmbedding, feature: int, x: float) -> np.ndarray:
    """Gorishniy 2022, equation 8, then a linear layer and a ReLU of the number's own."""
    angles = [2 * math.pi * c * x for c in value(layer.frequencies)[feature]]
    waves = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    return np.maximum(np.array(waves) @ value(layer.kernel)[feature] + value(layer.bias)[feature], 0)


def autodis(layer: NumberEmbedding, feature: int, x: float) -> np.ndarray:
    """Guo 2021, equations 5 to 8: scores with a skip connection, a softmax with a temperature, a weighted mean."""
    hidden = [w * x if w * x > 0 else 0.01 * w * x for w in value(layer.first)[feature]]
    scores = np.array(hidden) @ value(layer.second)[feature] + 0.1 * np.array(hidden)
    shares = np.exp(scores / 0.5) / np.exp(scores / 0.5).sum()
    return sum(share * vector for share, vector in zip(shares, value(layer.vectors)[feature], strict=True))


@pytest.mark.parametrize("reference", [periodic, autodis])
def test_each_number_has_a_vector_by_its_equations_and_a_missing_one_its_own(reference):
    layer = weighted(reference.__name__)
    found = np.asarray(layer(NUMBERS))
    assert found.shape == layer.compute_output_shape(NUMBERS.shape) == (3, 3, 4)
    for row, column in np.ndindex(NUMBERS.shape):
        x = float(NUMBERS[row, column])
        expected = value(layer.missing)[column] if x < 0 else reference(layer, column, x)
        np.testing.assert_allclose(found[row, column], expected, rtol=2e-5, atol=2e-6)
    copy = NumberEmbedding.from_config(layer.get_config())
    copy.build(NUMBERS.shape)
    for mine, theirs in zip(copy.weights, layer.weights, strict=True):
        mine.assign(theirs)
    np.testing.assert_array_equal(np.asarray(copy(NUMBERS)), found)


@pytest.mark.parametrize("way", ["periodic", "autodis"])
def test_every_weight_learns_and_bfloat16_keeps_a_numbers_place(way):
    layer = weighted(way)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(layer(NUMBERS)))
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_weights])
    assert all(gradient is not None and np.abs(gradient).max() > 0 for gradient in gradients)
    low = NumberEmbedding(4, way, bins=3, scale=0.5, dtype="mixed_bfloat16")
    low.build(NUMBERS.shape)
    for mine, theirs in zip(low.weights, layer.weights, strict=True):
        mine.assign(theirs)
    found = low(NUMBERS)
    assert found.dtype == "bfloat16" and all(weight.dtype == "float32" for weight in low.weights)
    np.testing.assert_allclose(tf.cast(found, "float32"), layer(NUMBERS), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"way": "buckets"}, "number_embedding"), ({"bins": 0}, "number_bins=0"), ({"scale": 0.0}, "number_scale=0.0")],
)
def test_impossible_options_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        NumberEmbedding(4, **options)


def embedding(name: str, embedded=("z",)) -> FeatureMap:
    return dataclasses.replace(map_of(name), embedded=embedded)


@pytest.mark.parametrize("name", ["deepfm", "mlp", "final_mlp", "pepnet", "mmoe"])
def test_a_models_rows_have_numbers_in_their_order(name):
    """x stays a multiple of one vector, and z, which is embedded, has the layer's row, in models of both kinds."""
    inputs = batch_of(name)
    inputs["dense"] = np.abs(inputs["dense"]) % 1
    inputs["dense"][2, 1] = -1
    model = filled(name, embedding(name), inputs)
    rows = np.asarray(model.rows(inputs))
    np.testing.assert_allclose(rows[:, -2], inputs["dense"][:, :1] * value(model.dense_table.vectors), rtol=1e-5)
    np.testing.assert_allclose(rows[:, -1:], model.number_table(inputs["dense"][:, 1:]), rtol=1e-5, atol=1e-6)
    logits = np.asarray(model(inputs, training=False))
    moved = {**inputs, "dense": inputs["dense"] + np.array([0, 0.3], np.float32) * (inputs["dense"][:, 1:] >= 0)}
    changed = np.abs(np.asarray(model(moved, training=False)) - logits).max(axis=1)
    assert changed[2] == 0 and np.delete(changed, 2).min() > 1e-5


def test_all_numbers_may_be_embedded_and_a_linear_model_reads_their_ranks():
    inputs = batch_of("dcn_v2")
    model = create("dcn_v2", embedding("dcn_v2", ("x", "z")), **SMALL["dcn_v2"], number_embedding="autodis")
    assert np.asarray(model(inputs)).shape == (7, 1) and model.dense_table is None
    assert model.number_table.way == "autodis"
    linear = create("lr", embedding("lr"), **SMALL["lr"])
    assert np.asarray(linear(inputs)).shape == (7, 1) and linear.number_table is None


@pytest.mark.parametrize("name", ["dlrm", "din", "hiformer", "two_tower", "starspace"])
def test_a_model_that_makes_no_embeddings_of_numbers_says_so(name):
    with pytest.raises(
        ValueError, match="makes no embeddings of numbers, as `transform: embed` of z asks; take another"
    ):
        create(name, embedding(name), **SMALL[name])


@pytest.mark.parametrize(("key", "given"), [("number_embedding", "autodis"), ("number_bins", 8), ("number_scale", 0.1)])
def test_options_of_numbers_are_refused_where_none_is_embedded(key, given):
    with pytest.raises(ValueError, match=f"^dcn_v2: {key} is for numbers that it embeds, and there are none"):
        create("dcn_v2", embedding("dcn_v2", ()), **SMALL["dcn_v2"], **{key: given})
    create("dcn_v2", embedding("dcn_v2"), **SMALL["dcn_v2"], **{key: given})
    inner = {"name": "mlp", "hidden_units": [3], key: given}
    with pytest.raises(ValueError, match=f"interaction: {key} belongs to the shared embeddings"):
        create("mmoe", map_of("mmoe"), **{**SMALL["mmoe"], "interaction": inner})


# The transform -------------------------------------------------------------------------------------------------------


def test_a_feature_of_embed_is_a_rank_and_its_map_says_so():
    values = {
        "name": "numbers",
        "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
        "features": [
            {"columns": ["age"], "kind": "numeric", "transform": "standardize"},
            {"columns": ["price"], "kind": "numeric", "transform": "embed"},
            {"columns": ["shop"], "kind": "categorical"},
        ],
        "model": {"name": "deepfm"},
    }
    spec = check_config(values, (), "numbers.yaml").log_spec
    described = layout(spec, lambda column, feature: 3)
    assert described.dense == ("age", "price") and described.embedded == ("price",)
    assert FeatureMap.from_json(described.to_json()) == described
    with pytest.raises(ValueError, match="`embedded` should name numbers of `dense`"):
        dataclasses.replace(described, embedded=("shop",))
    transform = transform_of(spec.feature_by_column["price"], spec)
    given = tf.constant([10.0, math.nan, 40.0, 25.0, 1e9, -5.0])
    learned = {"price": np.array([10.0, 20.0, 30.0, 40.0])}
    found = transform.tensors({"price": given}, learned, Vocabularies({}, {}, {}, None))
    np.testing.assert_allclose(found["dense"][:, 0], [0, -1, 1, 0.5, 1, 0], atol=1e-6)
