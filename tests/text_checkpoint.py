"""A tiny checkpoint of BERT or RoBERTa with random weights, in HuggingFace's files: for tests and the demo."""

import json
import pathlib
import string

import numpy as np
from safetensors.numpy import save_file

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_ROBERTA_PADDING = 1


def write_checkpoint(
    folder: pathlib.Path,
    kind: str = "bert",
    words: tuple[str, ...] = (),
    layers: int = 2,
    width: int = 32,
    heads: int = 4,
    ffn: int = 64,
    positions: int = 128,
    activation: str = "gelu",
    seed: int = 1,
) -> pathlib.Path:
    """Writes config.json, model.safetensors, tokenizer_config.json and vocab.txt, or vocab.json and merges.txt.

    Args:
        folder: Made where it does not exist.
        kind: bert or roberta.
        words: Words of the vocabulary, beside the letters (of RoBERTa the bytes), signs and the numbers 0 to 99.
        layers, width, heads, ffn, positions, activation: The encoder's sizes.
        seed: Of the weights.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    is_bert = kind == "bert"
    merges = [] if is_bert else _merges(words)
    if is_bert:
        vocabulary = list(dict.fromkeys([*SPECIAL, *_pieces(), *words]))
    else:
        vocabulary = [*_ROBERTA_SPECIAL, *_signs(), *("".join(pair) for pair in merges), "<mask>"]
    config = {
        "architectures": ["BertModel" if is_bert else "RobertaModel"],
        "model_type": kind,
        "vocab_size": len(vocabulary),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "hidden_act": activation,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": positions,
        "type_vocab_size": 2 if is_bert else 1,
        "layer_norm_eps": 1e-12 if is_bert else 1e-5,
        "pad_token_id": 0 if is_bert else _ROBERTA_PADDING,
        "position_embedding_type": "absolute",
        "initializer_range": 0.02,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer = {"tokenizer_class": "BertTokenizer" if is_bert else "RobertaTokenizer", "model_max_length": positions}
    if is_bert:
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        tokenizer["do_lower_case"] = True
    else:
        ids = {token: index for index, token in enumerate(vocabulary)}
        (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        tokenizer["model_max_length"] = positions - _ROBERTA_PADDING - 1
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    save_file(_weights(config, seed), folder / "model.safetensors", {"format": "pt"})
    return folder


def _pieces() -> list[str]:
    characters = string.ascii_lowercase + string.digits + string.punctuation
    return [*characters, *(f"##{c}" for c in string.ascii_lowercase + string.digits), *map(str, range(100))]


def _signs() -> list[str]:
    """GPT-2's sign for each byte, printable ones first."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(256 - len(printable))]


def _merges(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs that make the numbers 0 to 99 and, with and without a space before them, the words of printable ASCII."""
    space = chr(256 + ord(" "))
    plain = [word for word in words if word.isascii() and word.isalnum()]
    found: dict[tuple[str, str], None] = {}
    for word in [*map(str, range(10, 100)), *plain, *(space + word for word in plain)]:
        for end in range(1, len(word)):
            found[word[:end], word[end]] = None
    return list(found)


def _weights(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Large enough that every part of the encoder shows in its states."""
    random = np.random.default_rng(seed)
    width, ffn = config["hidden_size"], config["intermediate_size"]

    def normal(*shape: int) -> np.ndarray:
        return random.normal(scale=0.2, size=shape).astype(np.float32)

    found: dict[str, np.ndarray] = {}

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = 1 + normal(width), normal(width)

    def dense(name: str, inputs: int, outputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = normal(outputs, inputs), normal(outputs)

    rows = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    for name, size in rows.items():
        found[f"embeddings.{name}_embeddings.weight"] = normal(config[size], width)
    norm("embeddings.LayerNorm")
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{part}", width, width)
        dense(f"{layer}.attention.output.dense", width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", width, ffn)
        dense(f"{layer}.output.dense", ffn, width)
        norm(f"{layer}.output.LayerNorm")
    dense("pooler.dense", width, width)
    return found
