"""Reads HuggingFace checkpoints of BERT and RoBERTa: the options and the weights of a text model."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.text_encoder import TextEncoder, activation_of

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_KINDS = ("bert", "roberta")
_OPTIONS = {
    "encoder_layers": "num_hidden_layers",
    "encoder_width": "hidden_size",
    "encoder_heads": "num_attention_heads",
    "encoder_ffn": "intermediate_size",
    "encoder_positions": "max_position_embeddings",
    "encoder_segments": "type_vocab_size",
    "encoder_activation": "hidden_act",
    "encoder_epsilon": "layer_norm_eps",
    "encoder_dropout": "hidden_dropout_prob",
}
Tensors = Callable[[str], np.ndarray]


def read_options(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the `encoder_...` options of a text model, from a checkpoint's config.json.

    Raises:
        ValueError: the folder has no configuration of a supported BERT or RoBERTa.
    """
    config = read_config(folder)
    options: dict[str, Any] = {}
    for option, key in _OPTIONS.items():
        if key not in config:
            raise ValueError(f"{folder / CONFIG}: has no {key}")
        options[option] = config[key]
    activation_of(options["encoder_activation"])
    options["encoder_first_position"] = padding_id(config) + 1 if config["model_type"] == "roberta" else 0
    return options


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Returns a checkpoint's config.json. Raises ValueError if it is absent, damaged or of another architecture."""
    path = folder / CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); give the folder of a checkpoint") from error
    except ValueError as error:
        raise ValueError(f"{path}: is damaged ({error})") from error
    kind = config.get("model_type")
    if kind not in _KINDS:
        raise ValueError(f"{path}: model_type should be one of {', '.join(_KINDS)}. Received: model_type={kind!r}")
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise ValueError(f"{path}: position_embedding_type should be 'absolute'. Received: {positions!r}")
    return config


def padding_id(config: dict[str, Any]) -> int:
    """Returns the id of the padding token."""
    return config.get("pad_token_id", 0) or 0


def load_weights(
    folder: pathlib.Path, encoder: TextEncoder, pooler: keras.layers.Dense | None = None, token_table: bool = True
) -> None:
    """Assigns the checkpoint's weights to a built encoder, and to a built pooler if the checkpoint has one.

    Args:
        folder: The checkpoint.
        encoder: The encoder. Its token table may have more rows than the checkpoint's; the additional rows keep their
            initial values.
        pooler: The dense layer on the first token, or None.
        token_table: Whether to load the token table; False if the text has another vocabulary.

    Raises:
        ValueError: a weight is absent or has another shape.
    """
    with _open(folder) as (names, tensor):
        prefix = next((p for p in ("", "bert.", "roberta.") if f"{p}embeddings.word_embeddings.weight" in names), None)
        if prefix is None:
            raise ValueError(f"{folder}: has no embeddings.word_embeddings.weight; is this a BERT or a RoBERTa?")

        def get(name: str) -> np.ndarray:
            for old in (name, name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(".bias", ".beta")):
                if prefix + old in names:
                    return tensor(prefix + old)
            raise ValueError(f"{folder}: has no weight {prefix + name}")

        _load_embeddings(folder, encoder, get, token_table)
        for index in range(encoder.layers):
            _load_layer(folder, encoder, index, get)
        if pooler is not None and f"{prefix}pooler.dense.weight" in names:
            _load_dense(folder, pooler, "pooler.dense", get)


def _load_embeddings(folder: pathlib.Path, encoder: TextEncoder, get: Tensors, token_table: bool) -> None:
    if token_table:
        _load_token_table(folder, encoder, get)
    _assign(folder, encoder.position_table, "embeddings.position_embeddings.weight", get)
    _assign(folder, encoder.segment_table, "embeddings.token_type_embeddings.weight", get)
    _load_norm(folder, encoder.norm, "embeddings.LayerNorm", get)


def _load_token_table(folder: pathlib.Path, encoder: TextEncoder, get: Tensors) -> None:
    rows = get("embeddings.word_embeddings.weight")
    table = np.array(encoder.token_table)
    if rows.shape[0] > table.shape[0] or rows.shape[1:] != table.shape[1:]:
        raise ValueError(f"{folder}: the token table is {rows.shape}, not {table.shape}; is it another vocabulary?")
    table[: len(rows)] = rows
    encoder.token_table.assign(table)


def _load_layer(folder: pathlib.Path, encoder: TextEncoder, index: int, get: Tensors) -> None:
    name = f"encoder.layer.{index}"
    attention, feed_forward = encoder.attention[index], encoder.feed_forward[index]
    parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
    kernel = np.concatenate([get(f"{part}.weight").T for part in parts], axis=1)
    bias = np.concatenate([get(f"{part}.bias") for part in parts])
    _set(folder, attention.qkv.kernel, kernel, f"{name}.attention.self")
    _set(folder, attention.qkv.bias, bias, f"{name}.attention.self")
    _load_dense(folder, attention.out, f"{name}.attention.output.dense", get)
    _load_norm(folder, attention.norm, f"{name}.attention.output.LayerNorm", get)
    _load_dense(folder, feed_forward.widen, f"{name}.intermediate.dense", get)
    _load_dense(folder, feed_forward.narrow, f"{name}.output.dense", get)
    _load_norm(folder, feed_forward.norm, f"{name}.output.LayerNorm", get)


def _load_dense(folder: pathlib.Path, layer: keras.layers.Dense, name: str, get: Tensors) -> None:
    _set(folder, layer.kernel, get(f"{name}.weight").T, f"{name}.weight")
    _assign(folder, layer.bias, f"{name}.bias", get)


def _load_norm(folder: pathlib.Path, layer: LayerNorm, name: str, get: Tensors) -> None:
    _assign(folder, layer.gamma, f"{name}.weight", get)
    _assign(folder, layer.beta, f"{name}.bias", get)


def _assign(folder: pathlib.Path, weight: Any, name: str, get: Tensors) -> None:
    _set(folder, weight, get(name), name)


def _set(folder: pathlib.Path, weight: Any, value: np.ndarray, name: str) -> None:
    if tuple(weight.shape) != value.shape:
        raise ValueError(f"{folder}: {name} is {value.shape}, not {tuple(weight.shape)} as {CONFIG} says")
    weight.assign(value)


@contextlib.contextmanager
def _open(folder: pathlib.Path) -> Iterator[tuple[set[str], Tensors]]:
    """Yields the names of a checkpoint's weights, and a function that reads a weight by name as float32."""
    import safetensors  # lazy: belongs to the extra `text`, which only checkpoints need

    with contextlib.ExitStack() as stack:
        owner: dict[str, Any] = {}
        for path in weight_files(folder):
            try:
                file = stack.enter_context(safetensors.safe_open(path, "numpy"))
            except (OSError, safetensors.SafetensorError) as error:
                raise ValueError(f"{path}: cannot be read ({error})") from error
            owner.update(dict.fromkeys(file.keys(), file))
        yield set(owner), lambda name: np.asarray(owner[name].get_tensor(name), np.float32)


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of a checkpoint's weights, one or several. Raises ValueError if there are none."""
    if (folder / _INDEX).exists():
        names = json.loads((folder / _INDEX).read_bytes())["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    if not (folder / WEIGHTS).exists():
        raise ValueError(f"{folder}: has no {WEIGHTS}; only weights of this format can be read")
    return [folder / WEIGHTS]
