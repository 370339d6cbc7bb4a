"""Reads the tokenizer files of a checkpoint: vocab.txt, vocab.json with merges.txt, or tokenizer.json."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

from ctrpipe.common.errors import InputError

WORDS = "vocab.txt"
TOKENS, MERGES = "vocab.json", "merges.txt"
WHOLE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
_FOLDER = "give the folder of a checkpoint"
_OTHER = "it belongs to another tokenizer"
# Options of tokenizer_config.json, and their names in tokenizer.json.
_WORD_PIECE_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# The values that this project's tokenizers implement. A missing key means the same value.
_WORD_PIECE: dict[str, dict[str, Any]] = {
    "model": {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    "normalizer": {"clean_text": True},
}
_BYTE_PAIRS: dict[str, dict[str, Any]] = {
    "model": {
        "dropout": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "byte_fallback": False,
        "ignore_merges": False,
    },
    "pre_tokenizer": {"use_regex": True},
}


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The contents of a tokenizer's files.

    Attributes:
        path: The vocabulary file.
        vocabulary: Tokens in the order of their ids.
        merges: Pairs of tokens, in merge order; empty for WordPiece.
        options: Options by their name in tokenizer_config.json.
    """

    path: pathlib.Path
    vocabulary: list[str]
    merges: list[tuple[str, str]]
    options: dict[str, Any]

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Ids by token. A repeated token has its first id."""
        return {token: index for index, token in reversed(list(enumerate(self.vocabulary)))}

    def id_of(self, token: str) -> int:
        """Returns the id of a token. Raises InputError if the vocabulary lacks the token."""
        if token not in self.ids:
            raise InputError(f"{self.path}: has no {token}; {_OTHER}")
        return self.ids[token]

    def special(self, defaults: dict[str, tuple[str, str]]) -> dict[str, int]:
        """Returns the ids of special tokens, by name.

        Args:
            defaults: For each name, the token's key in tokenizer_config.json without `_token`, and its default.

        Raises:
            InputError: the vocabulary lacks a special token.
        """
        tokens = {name: self.options.get(f"{key}_token", usual) for name, (key, usual) in defaults.items()}
        return {
            name: self.id_of(token["content"] if isinstance(token, dict) else token) for name, token in tokens.items()
        }


def read_word_piece(folder: pathlib.Path) -> TokenizerFiles:
    """Reads BERT's tokenizer from vocab.txt, or from tokenizer.json if there is none.

    Options of tokenizer_config.json take precedence.

    Raises:
        InputError: a file is missing or invalid, or tokenizer.json is of another kind.
    """
    path, config = folder / WORDS, _read_json(folder / CONFIG)
    if path.exists() or not (folder / WHOLE).exists():
        lines = _read_lines(path)
        while lines and not lines[-1]:
            lines.pop()
        return TokenizerFiles(path, lines, [], config)
    path = folder / WHOLE
    types: dict[str, str | None] = {
        "model": "WordPiece",
        "normalizer": "BertNormalizer",
        "pre_tokenizer": "BertPreTokenizer",
    }
    whole = _read_whole(path, types, _WORD_PIECE)
    options = {name: whole["normalizer"].get(key) for name, key in _WORD_PIECE_OPTIONS.items()}
    given = {name: value for name, value in options.items() if value is not None}
    return TokenizerFiles(path, _by_id(path, _ids_with_added_tokens(path, whole)), [], {**given, **config})


def read_byte_pairs(folder: pathlib.Path) -> TokenizerFiles:
    """Reads RoBERTa's tokenizer from vocab.json and merges.txt, or from tokenizer.json if there are none.

    Options of tokenizer_config.json take precedence.

    Raises:
        InputError: a file is missing or invalid, the merges do not match the vocabulary, or tokenizer.json is of
            another kind.
    """
    path, merges_path, config = folder / TOKENS, folder / MERGES, _read_json(folder / CONFIG)
    if path.exists() or not (folder / WHOLE).exists():
        ids = _read_json(path)
        if not ids:
            raise InputError(f"{path}: cannot be read (missing or empty); {_FOLDER}")
        vocabulary = _by_id(path, ids)
        pairs = [line.split(" ") for line in _read_lines(merges_path) if line and not line.startswith("#version")]
    else:
        path = merges_path = folder / WHOLE
        types: dict[str, str | None] = {"model": "BPE", "normalizer": None, "pre_tokenizer": "ByteLevel"}
        whole = _read_whole(path, types, _BYTE_PAIRS)
        ids = _ids_with_added_tokens(path, whole)
        vocabulary = _by_id(path, ids)
        config = {"add_prefix_space": whole["pre_tokenizer"].get("add_prefix_space", False), **config}
        merges = whole["model"].get("merges", [])
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    if any(len(pair) != 2 or {*pair, "".join(pair)} - ids.keys() for pair in pairs) or not pairs:
        raise InputError(f"{merges_path}: does not merge tokens of {path.name}; {_OTHER}")
    return TokenizerFiles(path, vocabulary, [(first, second) for first, second in pairs], config)


def _read_whole(path: pathlib.Path, types: dict[str, str | None], needed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Reads tokenizer.json, and checks the types of its sections (None: must be absent) and its required values."""
    whole = _read_json(path)
    for part, wanted in types.items():
        section = whole.get(part) or {}
        kind = section.get("type")
        if kind != wanted:
            raise InputError(f"{path}: {part} is {kind}, not {wanted}; {_OTHER}")
        for key, value in needed.get(part, {}).items():
            # A missing key, null and an empty affix are equivalent.
            if section.get(key, value) != value and (section[key] or value):
                raise InputError(
                    f"{path}: {part}.{key} is {json.dumps(section[key])}, not {json.dumps(value)}; {_OTHER}"
                )
    return whole


def _ids_with_added_tokens(path: pathlib.Path, whole: dict[str, Any]) -> dict[str, int]:
    """Returns the ids of the model's vocabulary and of the added tokens. A token in both has its vocabulary id."""
    ids = whole["model"].get("vocab")
    if not isinstance(ids, dict) or not ids:
        raise InputError(f"{path}: has no model.vocab; {_FOLDER}")
    return {**{token["content"]: token["id"] for token in whole.get("added_tokens", [])}, **ids}


def _by_id(path: pathlib.Path, ids: dict[str, int]) -> list[str]:
    if set(ids.values()) != set(range(len(ids))):
        raise InputError(f"{path}: its ids are not 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=lambda token: ids[token])


def _read_lines(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_FOLDER}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8") from error


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object of a JSON file; {} if the file does not exist."""
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: is damaged ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: is damaged (it holds no object)")
    return values
