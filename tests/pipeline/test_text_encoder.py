"""A checkpoint in a model that is about to be trained, and training on tokens with either backend."""

import json
import pathlib

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.network import build_network
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.text.tokenize import text_map
from tests.text_checkpoint import write_checkpoint

LENGTH, ROWS = 8, 256
SMALL = {"embedding_dim": 4, "hidden_units": [8]}
MODELS = {
    "text_only": {},
    "numbert": {},
    "bert4ctr": {**SMALL, "token_dim": 8, "token_ffn": 8, "attention_dim": 4},
    "cascading_wide_deep": SMALL,
}


@pytest.fixture(scope="module", params=["bert", "roberta"])
def folder(request, tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp(request.param)
    return write_checkpoint(path, request.param, layers=1, width=16, ffn=24, heads=2, positions=64)


def text_of(folder: pathlib.Path, **changes) -> Text:
    values = {"kind": "text", "columns": ["a"], "length": LENGTH, "encoder": str(folder), **changes}
    return Text.model_validate(values)


def map_of(text: Text, words: int | None = None) -> FeatureMap:
    fields = [("f", "categorical", 5, 1, "feature"), ("g", "categorical", 3, 1, "feature")]
    return FeatureMap.from_sizes(fields, text=text_map(text, words))


def encoder_of(network):
    return network.encoder if hasattr(network, "encoder") else network.text.encoder


def state(network) -> dict[str, np.ndarray]:
    encoder = encoder_of(network)
    return {
        "embeddings.word_embeddings.weight": np.array(encoder.token_table),
        "embeddings.position_embeddings.weight": np.array(encoder.position_table),
        "encoder.layer.0.intermediate.dense.weight": np.array(encoder.feed_forward[0].widen.kernel).T,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_shape_and_the_weights_of_the_checkpoint(name, folder):
    text = text_of(folder)
    model = with_encoder(Model(name=name, **MODELS[name]), text)
    wanted = load_file(folder / "model.safetensors")
    for key, found in state(build_network(model, map_of(text), seed=1)).items():
        np.testing.assert_array_equal(found[: len(wanted[key])], wanted[key], err_msg=key)
    first = model.of_stage("text_only", {key: value for key, value in model.hyperparameters.items() if "enc" in key})
    for key, found in state(build_network(first, map_of(text), seed=2)).items():
        np.testing.assert_array_equal(found, wanted[key], err_msg=key)


def test_a_random_encoder_has_the_shape_alone(folder):
    text = text_of(folder)
    model = with_encoder(Model(name="text_only", encoder="random"), text)
    wanted = load_file(folder / "model.safetensors")
    for key, found in state(build_network(model, map_of(text), seed=1)).items():
        assert found.shape == wanted[key].shape and abs(found - wanted[key]).mean() > 0.05


def test_words_of_the_log_keep_their_initial_rows(folder):
    text = text_of(folder, tokens="vocabulary", separator="|")
    model = with_encoder(Model(name="text_only"), text)
    wanted = load_file(folder / "model.safetensors")
    found = state(build_network(model, map_of(text, 20), seed=1))
    words = found.pop("embeddings.word_embeddings.weight")
    assert words.shape == (25, 16) and words.std() < 0.03
    for key, values in found.items():
        np.testing.assert_array_equal(values, wanted[key], err_msg=key)


def test_what_is_given_stands_and_a_model_of_features_is_left_alone(folder):
    text = text_of(folder)
    assert with_encoder(Model(name="lr"), text) == Model(name="lr")
    options = with_encoder(Model(name="text_only", encoder_dropout=0.5), text).hyperparameters
    assert (options["encoder_dropout"], options["encoder_width"]) == (0.5, 16)
    random = text_of(folder, encoder="random", tokens="vocabulary", separator=" ")
    assert with_encoder(Model(name="text_only", encoder_width=12), random).hyperparameters == {"encoder_width": 12}


def test_mistakes_are_one_line(tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint", positions=16)
    with pytest.raises(InputError, match="model: text_only needs a text; add a feature of kind text"):
        with_encoder(Model(name="text_only"), None)
    with pytest.raises(InputError, match="length is 17, but the encoder has positions for 16 tokens"):
        with_encoder(Model(name="text_only"), text_of(folder, length=17))
    text = text_of(folder)
    deeper = with_encoder(Model(name="text_only", encoder_layers=3), text)
    with pytest.raises(InputError, match="has no weight encoder.layer.2"):
        build_network(deeper, map_of(text), seed=1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "quick"}))
    with pytest.raises(InputError, match="Received: activation='quick'"):
        with_encoder(Model(name="text_only"), text)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has no model.safetensors"):
        with_encoder(Model(name="text_only"), text)


def write_clicks_by_word(folder: pathlib.Path, features) -> np.ndarray:
    """Packed rows for training and validation, and their tokens. Rows with one certain word are clicks."""
    random = np.random.default_rng(1)
    tokens = random.integers(5, features.text.vocabulary_size, (ROWS, LENGTH)).astype(np.int32)
    word = random.random(ROWS) < 0.5
    tokens[:, 1] = np.where(word, 7, 8)
    tokens[:, 0] = features.text.classify_id
    rows = {
        "ids": np.tile(np.array([[1, 8]], np.int32), (ROWS, 1)),
        "tokens": tokens,
        "segments": np.zeros_like(tokens),
        "label": word[:, None].astype(np.float32),
    }
    for name, part in (("train", slice(0, 192)), ("validation", slice(192, None))):
        with PackedWriter(folder / f"{name}.parquet") as writer:
            writer.write({key: values[part] for key, values in rows.items()})
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_the_encoder_learns_at_a_rate_of_its_own(backend, tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint", layers=1, width=16, ffn=24, heads=2, positions=64)
    text = text_of(folder)
    features = map_of(text)
    write_clicks_by_word(tmp_path, features)
    model = with_encoder(Model(name="text_only", encoder_dropout=0.0), text)
    files = [[str(tmp_path / f"{name}.parquet")] for name in ("train", "validation")]

    def after_one_step(rate: float) -> list[tuple[bool, np.ndarray]]:
        once = Training(backend=backend, batch_size=256, epochs=1, learning_rate=0.01, encoder_rate=rate)
        network = train(TrainingJob(model, once, features, *files, 1), tmp_path / str(rate)).model
        weights = network.trainable_variables
        return [(weight.path.split("/")[1] in ("encoder", "pooler"), np.array(weight)) for weight in weights]

    whole, quarter, none = (after_one_step(rate) for rate in (1.0, 0.25, 0.0))
    assert (
        sum(slow and np.abs(moved - kept).max() > 0.009 for (slow, moved), (_, kept) in zip(whole, none, strict=True))
        > 10
    )
    for (slow, moved), (_, partly), (_, kept) in zip(whole, quarter, none, strict=True):
        np.testing.assert_allclose(partly, kept + 0.25 * (moved - kept) if slow else moved, atol=1e-6)
        if not slow:
            np.testing.assert_allclose(kept, moved, atol=1e-6)
    assert not all(slow for slow, _ in whole)
    words = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert any(kept.shape == words.shape and (kept == words).all() for slow, kept in none if slow)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_a_model_of_the_text_learns_from_packed_tokens(backend, tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint", layers=1, width=16, ffn=24, heads=2, positions=64)
    text = text_of(folder)
    features = map_of(text)
    tokens = write_clicks_by_word(tmp_path, features)
    training = Training(backend=backend, batch_size=32, epochs=6, learning_rate=0.01, monitor="auc", patience=6)
    model = with_encoder(Model(name="text_only", encoder_dropout=0.0), text)
    files = [[str(tmp_path / f"{name}.parquet")] for name in ("train", "validation")]
    result = train(TrainingJob(model, training, features, *files, 1), tmp_path / "work")
    assert max(step["validation_auc"] for step in result.history["evaluations"]) > 0.95
    assert keras.backend.backend() == "tensorflow"
    # The token at a place that no row has is as the checkpoint has it: training started from there.
    unused = sorted(set(range(5, features.text.vocabulary_size)) - set(tokens.flatten().tolist()))
    wanted = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    found = np.array(result.model.encoder.token_table)
    untouched = [features.text.mask_id, features.text.unknown_id, *unused]
    np.testing.assert_allclose(found[untouched], wanted[untouched], atol=1e-6)
    assert abs(found[7] - wanted[7]).max() > 1e-3
