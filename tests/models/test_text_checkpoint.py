"""Checkpoints of HuggingFace (golden values: benchmarks/peers/huggingface_golden.py)."""

import json
import pathlib

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ctrpipe.models.layers.text_encoder import TextEncoder
from ctrpipe.models.text.checkpoint import load_weights, padding_id, read_config, read_options
from tests.text_checkpoint import write_checkpoint

GOLDEN = pathlib.Path(__file__).parent / "golden"


def encoder_of(folder: pathlib.Path, more_tokens: int = 0) -> tuple[TextEncoder, keras.layers.Dense]:
    config, options = read_config(folder), read_options(folder)
    named = {key.removeprefix("encoder_"): value for key, value in options.items()}
    named["ffn_dim"] = named.pop("ffn")
    encoder = TextEncoder(config["vocab_size"] + more_tokens, padding_id=padding_id(config), **named)
    encoder(np.ones((1, 3), np.int32))
    pooler = keras.layers.Dense(named["width"], activation="tanh")
    pooler.build((None, named["width"]))
    return encoder, pooler


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_states_of_every_layer_are_huggingfaces(kind, tmp_path):
    folder, golden = write_checkpoint(tmp_path, kind), np.load(GOLDEN / f"{kind}.npz")
    encoder, pooler = encoder_of(folder)
    load_weights(folder, encoder, pooler)
    states = encoder(golden["tokens"], golden["segments"])
    assert len(states) == len(golden["states"]) == 3
    words = golden["tokens"] != encoder.padding_id
    for found, expected in zip(states, golden["states"], strict=True):
        np.testing.assert_allclose(np.asarray(found)[words], expected[words], atol=1e-4)
        assert np.ptp(expected[words]) > 3
    np.testing.assert_allclose(pooler(states[-1][:, 0]), golden["pooled"], atol=1e-4)


def test_new_tokens_keep_their_initial_rows(tmp_path):
    folder = write_checkpoint(tmp_path)
    encoder, _ = encoder_of(folder, more_tokens=2)
    before = np.array(encoder.token_table)
    load_weights(folder, encoder)
    after, words = np.array(encoder.token_table), load_file(folder / "model.safetensors")
    np.testing.assert_array_equal(after[-2:], before[-2:])
    np.testing.assert_array_equal(after[:-2], words["embeddings.word_embeddings.weight"])


def test_prefixes_old_names_halves_and_several_files_are_read(tmp_path):
    plain, other = write_checkpoint(tmp_path / "plain"), write_checkpoint(tmp_path / "other")
    weights = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in load_file(plain / "model.safetensors").items()
    }
    weights["bert.pooler.dense.bias"] = weights["bert.pooler.dense.bias"].astype(np.float16)
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, chosen in parts.items():
        save_file({name: weights[name] for name in chosen}, other / file)
    index = {"weight_map": {name: file for file, chosen in parts.items() for name in chosen}}
    (other / "model.safetensors.index.json").write_text(json.dumps(index))
    (other / "model.safetensors").unlink()
    (first, first_pooler), (second, second_pooler) = encoder_of(plain), encoder_of(other)
    load_weights(plain, first, first_pooler)
    load_weights(other, second, second_pooler)
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(first_pooler.bias, second_pooler.bias, atol=1e-3)


def changed(folder: pathlib.Path, **changes) -> pathlib.Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type should be one of bert, roberta. Received: model_type='gpt2'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type should be 'absolute'"),
        ({"hidden_act": "mish"}, "activation='mish'"),
    ],
)
def test_another_architecture_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read_options(changed(write_checkpoint(tmp_path), **changes))


def test_absent_and_damaged_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="config.json: cannot be read"):
        read_options(tmp_path)
    folder = write_checkpoint(tmp_path)
    encoder, _ = encoder_of(folder)
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"has no weight encoder.layer.1.output.dense.bias"):
        load_weights(folder, encoder)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="model.safetensors: cannot be read"):
        load_weights(folder, encoder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has no model.safetensors"):
        load_weights(folder, encoder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json: is damaged"):
        read_options(folder)


def test_weights_that_do_not_fit_the_configuration_are_named(tmp_path):
    folder = write_checkpoint(tmp_path)
    encoder, _ = encoder_of(changed(folder, intermediate_size=32))
    with pytest.raises(
        ValueError, match=r"intermediate.dense.weight is \(32, 64\), not \(32, 32\) as config.json says"
    ):
        load_weights(folder, encoder)
    small = write_checkpoint(tmp_path / "small", words=())
    encoder, _ = encoder_of(changed(small, vocab_size=50))
    with pytest.raises(ValueError, match="is it another vocabulary"):
        load_weights(small, encoder)
