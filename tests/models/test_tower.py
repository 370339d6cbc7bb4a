"""The normalisation and the dropout of the MLP, against numpy, and where a model has them."""

import dataclasses

import keras
import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.models import create
from ctrpipe.models.base.registry import model_class
from ctrpipe.models.layers.tower import Tower, has_batch_statistics
from ctrpipe.pipeline.config import Model, Training, load_config
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.tensorflow_learner import make_learner
from tests.models.small_models import SMALL, batch, feature_map, map_of
from tests.pipeline.test_training import MAP, write

EPSILON = 1e-5
CONFIG = {
    "name": "mine",
    "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
    "features": [{"columns": ["a"], "kind": "categorical"}],
}


def value(weight) -> np.ndarray:
    return np.asarray(weight, np.float64)


def randomised(**options) -> Tower:
    layer = Tower((5, 3), 2, **options)
    layer.build((None, 4))
    random = np.random.default_rng(2)
    for weight in layer.weights:
        weight.assign(random.uniform(0.2, 1.5, weight.shape) * random.choice([-1, 1], weight.shape))
    for norm in layer.norms:
        if hasattr(norm, "moving_variance"):
            norm.moving_variance.assign(np.abs(norm.moving_variance))
    return layer


def expected(layer: Tower, x: np.ndarray, kind: str, place: str, of_batch: bool) -> np.ndarray:
    """The layer's output in numpy; `of_batch` takes the statistics of these rows instead of the moving ones."""
    for dense, norm in zip(layer.hidden, layer.norms, strict=True):
        x = x @ value(dense.kernel) + (0 if dense.bias is None else value(dense.bias))
        if place == "after":
            x = np.maximum(x, 0)
        if kind == "layer":
            mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
        elif of_batch:
            mean, variance = x.mean(axis=0), x.var(axis=0)
        else:
            mean, variance = value(norm.moving_mean), value(norm.moving_variance)
        x = (x - mean) / np.sqrt(variance + EPSILON) * value(norm.gamma) + value(norm.beta)
        if place == "before":
            x = np.maximum(x, 0)
    return x @ value(layer.logits.kernel) + value(layer.logits.bias)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("kind", ["batch", "layer"])
def test_a_hidden_layer_is_normalised_before_or_after_its_activation(kind, place):
    layer, x = randomised(normalization=kind, place=place), np.random.default_rng(1).normal(1.0, 2.0, (9, 4))
    served = np.asarray(layer(x, training=False))
    np.testing.assert_allclose(served, expected(layer, x, kind, place, False), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(layer(x[3:4], training=False), served[3:4], rtol=1e-5, atol=1e-5)  # of no other row
    trained = expected(layer, x, kind, place, True)
    before = [value(weight) for weight in layer.non_trainable_variables]
    np.testing.assert_allclose(layer(x, training=True), trained, rtol=1e-3, atol=1e-3)
    assert np.abs(trained - served).max() > 0.01 or kind == "layer"
    if kind == "batch":
        first = x @ value(layer.hidden[0].kernel)
        first = first if place == "before" else np.maximum(first + value(layer.hidden[0].bias), 0)
        norm = layer.norms[0]
        np.testing.assert_allclose(norm.moving_mean, 0.9 * before[0] + 0.1 * first.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(norm.moving_variance, 0.9 * before[1] + 0.1 * first.var(axis=0), rtol=1e-4)


def test_batch_normalisation_takes_the_place_of_the_bias_before_it():
    assert [not dense.use_bias for dense in Tower((3,), normalization="batch").hidden] == [True]
    for options in ({"normalization": "layer"}, {"normalization": "batch", "place": "after"}, {}):
        assert all(dense.use_bias for dense in Tower((3,), **options).hidden)


def test_every_hidden_layer_has_its_own_dropout():
    keras.utils.set_random_seed(1)
    layer = Tower((2000, 1000), None, activation="softplus", dropout=(0.0, 0.75))
    x = np.ones((3, 4), np.float32)
    share = np.mean(np.asarray(layer(x, training=True)) == 0)
    assert share == pytest.approx(0.75, abs=0.03)
    assert [drop and drop.rate for drop in layer.drops] == [None, 0.75]
    assert not (np.asarray(layer(x, training=False)) == 0).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalization": "group"}, "normalization.*Received: 'group'"),
        ({"normalization": "batch", "place": "between"}, "normalization_place.*Received: 'between'"),
        ({"dropout": (0.1, 0.2, 0.3)}, r"one rate for each of the 2 hidden layers. Received: \[0.1, 0.2, 0.3\]"),
    ],
)
def test_impossible_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Tower((5, 3), **options)


@pytest.mark.parametrize("name", ["fm", "text_only", "esmm"])
def test_a_model_without_a_hidden_layer_refuses_normalization(name):
    with pytest.raises(ValueError, match=f"^{name}: there is no hidden layer that `normalization` could normalise"):
        create(name, map_of(name), **SMALL[name], normalization="layer")


def test_a_stage_without_a_hidden_layer_trains_before_a_model_with_normalization():
    options = {**SMALL["fnn"], "normalization": "batch", "normalization_place": "after"}
    later = {**type(create("fnn", map_of("fnn"), **options)).options(), **options}
    create("fm", map_of("fnn"), **model_class("fm").options_of_stage(later))
    assert model_class("features_only").options_of_stage(later)["normalization"] == "batch"


def test_an_expert_without_a_hidden_layer_refuses_normalization_too():
    data = dataclasses.replace(feature_map(), tasks=("a", "b"))
    with pytest.raises(ValueError, match="interaction: cin: there is no hidden layer"):
        create("mmoe", data, embedding_dim=4, interaction={"name": "cin", "maps": [4], "normalization": "batch"})
    options = {"interaction": {"name": "mlp", "hidden_units": [6], "normalization": "batch"}}
    model = create("esmm", data, embedding_dim=4, **options)
    assert has_batch_statistics(model) and all(inner.tower.norms for inner in model.interactions)


@pytest.mark.parametrize("name", ["transformer", "bst", "sequence_transformer", "afm"])
def test_a_model_whose_dropout_is_not_the_mlps_alone_takes_one_rate(name):
    with pytest.raises(ValueError, match=r"`dropout` should be one rate.* Received: \[0.1\]"):
        create(name, map_of(name), **SMALL[name], dropout=[0.1])


def test_a_list_of_rates_is_checked_like_any_hyperparameter():
    model = create("mlp", feature_map(), **SMALL["mlp"], dropout=[0.1, 0.3])
    assert [drop.rate for drop in model.tower.drops] == [0.1, 0.3]
    with pytest.raises(ValueError, match="mlp: dropout should be like its default"):
        create("mlp", feature_map(), **SMALL["mlp"], dropout=["much", 0.3])
    with pytest.raises(ValueError, match="l2 should be like its default"):
        create("mlp", feature_map(), **SMALL["mlp"], l2=[0.1, 0.3])


def test_a_batch_of_one_row_is_one_line(tmp_path):
    with pytest.raises(InputError, match="training.batch_size: 1 with model.normalization: batch"):
        load_config({**CONFIG, "training": {"batch_size": 1}, "model": {"name": "mlp", "normalization": "batch"}})
    with pytest.raises(InputError, match="training.batch_size: 1 with model.normalization: batch"):
        load_config({**CONFIG, "training": {"batch_size": 1}, "model": {"name": "final_net"}})  # its default
    load_config({**CONFIG, "training": {"batch_size": 1}, "model": {"name": "mlp", "normalization": "layer"}})
    beside = {**CONFIG, "training": {"batch_size": 1}, "model": {"name": "mlp"}}
    load_config({**beside, "evaluation": {"baseline": {"name": "mlp"}}})
    with pytest.raises(InputError, match="training.batch_size: 1 with evaluation.baseline.normalization: batch"):
        load_config({**beside, "evaluation": {"baseline": {"name": "mlp", "normalization": "batch"}}})
    files = [write(tmp_path / "train", 9, 1)]
    network = create("mlp", feature_map(), **SMALL["mlp"], normalization="batch")
    network(batch())
    for size, fits in ((8, True), (2, False), (4, True), (9, True)):
        job = TrainingJob(Model(name="mlp"), Training(batch_size=size), MAP, files, [], 1)
        if fits:
            job.check_batches(network)
        else:
            with pytest.raises(InputError, match="batch_size: 2 leaves a batch of one of the 9 rows"):
                job.check_batches(network)


def learner(**changes):
    options = {**SMALL["deepfm"], "normalization": "batch"}
    return make_learner(
        Model(name="deepfm", **options), Training(distribution="one_device", **changes), map_of("fm"), 1
    )


def statistics(trained) -> list[np.ndarray]:
    return [np.asarray(each) for each in trained.network.non_trainable_variables]


def test_a_training_moves_the_statistics_and_a_skipped_step_does_not():
    labels = np.random.default_rng(0).integers(0, 2, (16, 1)).astype(np.float32)
    data = [(batch(16), labels)]
    plain, scaled = learner(), learner(precision="mixed_float16")
    before = statistics(plain)
    plain.fit(data)
    assert all(np.abs(now - old).max() > 1e-3 for now, old in zip(statistics(plain), before, strict=True))
    whole = scaled.state()
    scale = next(index for index, array in enumerate(whole) if array.shape == () and array == 2.0**15)
    whole[scale] = np.float32(3e38)
    scaled.load_state(whole)
    scaled.fit(data)  # its gradients overflow
    for now, old in zip(statistics(scaled), before, strict=True):
        np.testing.assert_array_equal(now, old)
    whole[scale] = np.float32(1024.0)
    scaled.load_state(whole)
    scaled.fit(data)
    assert all(np.abs(now - old).max() > 1e-3 for now, old in zip(statistics(scaled), before, strict=True))


@pytest.mark.parametrize(("dropout", "generators"), [(0.0, 0), (0.5, 1), ((0.5, 0.5), 1), ((0.5, 0.25), 2)])
def test_layers_of_one_rate_share_a_generator(dropout, generators):
    """A different number of generators would change the draws of all later layers, and each seed's results."""
    tower = Tower((4, 3), dropout=dropout)
    drops = {id(layer) for layer in tower._flatten_layers() if isinstance(layer, keras.layers.Dropout)}
    assert len(drops) == generators
    if generators == 1:
        [drop] = [layer for layer in tower._flatten_layers() if isinstance(layer, keras.layers.Dropout)]
        ones = keras.ops.ones((8, 64))
        masks = [keras.ops.convert_to_numpy(drop(ones, training=True)) for _ in range(2)]
        assert (masks[0] != masks[1]).any()
