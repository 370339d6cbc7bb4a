"""Helpers for the tests of both tokenizers."""

import json
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ctrpipe.serving.loader import Servable
from ctrpipe.transforms.text.tokenizer_files import CONFIG, MERGES, TOKENS, WHOLE, WORDS


def run_in_the_loader(tokenize: Callable[[tf.Tensor], tf.Tensor], texts: list[str], folder: pathlib.Path) -> np.ndarray:
    """The output of a graph of `tokenize`, string [N] -> [N, T], in TF Serving's loader."""
    module = tf.Module()
    signature = tf.function(
        lambda text: {"tokens": tokenize(text)}, input_signature=[tf.TensorSpec([None], tf.string, name="text")]
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": signature})
    servable = Servable(folder, threads=1)
    try:
        return servable.run("serving_default", {"text": np.array([text.encode() for text in texts], object)})["tokens"]
    finally:
        servable.close()


def make_whole(folder: pathlib.Path, listed: bool = True, **changes) -> pathlib.Path:
    """Puts a checkpoint's vocabulary and merges into tokenizer.json, as HuggingFace's tokenizers 0.22 writes it, and
    removes the files that held them.

    Args:
        folder: A checkpoint.
        listed: Whether a merge is a list of two tokens; before 0.20 it was one string.
        **changes: Other values of the parts, such as model={"dropout": 0.1}.
    """
    if (folder / WORDS).exists():
        tokens = (folder / WORDS).read_text().split("\n")[:-1]
        model = {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: index for index, token in enumerate(tokens)},
        }
        normalizer = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        }
        parts = {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}
    else:
        merges = [line.split(" ") for line in (folder / MERGES).read_text().split("\n")[1:-1]]
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": json.loads((folder / TOKENS).read_text()),
            "merges": merges if listed else [" ".join(pair) for pair in merges],
        }
        splits = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        parts = {"normalizer": None, "pre_tokenizer": splits, "model": model}
    whole = {"version": "1.0", "added_tokens": [], **parts}
    for part, values in changes.items():
        whole[part] = {**(whole[part] or {}), **values} if isinstance(values, dict) else values
    (folder / WHOLE).write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
    for name in (WORDS, TOKENS, MERGES, CONFIG):
        (folder / name).unlink(missing_ok=True)
    return folder
