"""Tokenizes text columns in a TensorFlow graph, and describes the resulting tokens for the model."""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import NUMBER_TOKENS
from ctrpipe.models.base.feature_map import Text as TextMap
from ctrpipe.models.text.checkpoint import CONFIG, read_config
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.text.byte_pairs import BytePairs
from ctrpipe.transforms.text.checkpoint import find_checkpoint
from ctrpipe.transforms.text.ragged import first_filled
from ctrpipe.transforms.text.word_piece import WordPiece, join_segments

SPECIAL = ("padding", "unknown", "classify", "separator", "mask")
# A text is cut before it is split, because tokens behind the output's length are not used but cost time and memory. The
# limit is far above the usual 5 bytes of a token, so that it leaves ordinary texts as they are.
BYTES_A_TOKEN = 32
# The same limit for a text that is a list of tokens, which may be of any length.
LISTED_A_TOKEN = 8
# Maximum padding of a token table to a hardware-friendly size. A larger difference means a different tokenizer.
_MAX_PADDING = 1024


LookUp = Callable[[tf.Tensor], tf.Tensor]


class Tokenizer(Protocol):
    """Splits texts into tokens.

    Attributes:
        special: Ids of the special tokens, by their name in SPECIAL.
        between: Number of separators between two segments.
        segments: Whether the two segments of a pair have the ids 0 and 1, instead of both 0.
    """

    special: dict[str, int]
    between: int
    segments: bool

    def tokens(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of texts, string [N] -> int32 [N, (tokens)], without special tokens."""


class TokenLists:
    """Splits texts at a separator and looks up the tokens in a vocabulary. Its ids follow the special tokens.

    Args:
        separator: Separator between tokens; empty tokens are dropped.
        places_of: Returns the indices of tokens, string [N], in a vocabulary; -1 for those that are not in it.
        most: Number of tokens of a text to read.
    """

    special = {name: index for index, name in enumerate(SPECIAL)}
    between = 1
    segments = True

    def __init__(self, separator: str, places_of: LookUp, most: int):
        self._separator = separator
        self._places_of = places_of
        self._most = most

    def tokens(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of texts, string [N] -> int32 [N, (tokens)], without special tokens."""
        split = first_filled(texts, self._separator, self._most)
        first = len(SPECIAL)
        places = self._places_of(split.flat_values)
        tokens = tf.where(places < 0, tf.constant(self.special["unknown"], tf.int64), places + first)
        return split.with_flat_values(tf.cast(tokens, tf.int32))


def tokenize(columns: Sequence[tf.Tensor], feature: Text, places_of: LookUp) -> tuple[tf.Tensor, tf.Tensor]:
    """Tokenizes one or two text columns, string [N] each, to tokens and segment ids, int32 [N, T] each.

    Only the beginning of a long text is read: BYTES_A_TOKEN bytes, or LISTED_A_TOKEN tokens of the vocabulary, per
    token of the output.

    Args:
        columns: The texts; "" is an empty segment.
        feature: The text feature of the configuration.
        places_of: Looks up tokens, for `tokens: vocabulary` (see TokenLists).

    Raises:
        InputError: the checkpoint cannot be read.
    """
    if feature.tokens == "vocabulary":
        tokenizer: Tokenizer = TokenLists(str(feature.separator), places_of, LISTED_A_TOKEN * feature.length)
    else:
        tokenizer, _ = read_tokenizer(feature.encoder)
        columns = [tf.strings.substr(column, 0, BYTES_A_TOKEN * feature.length) for column in columns]
    special = {name: tokenizer.special[name] for name in ("classify", "separator", "padding")}
    parts = [tokenizer.tokens(column) for column in columns]
    tokens, segments = join_segments(parts, feature.length, between=tokenizer.between, **special)
    return tokens, segments if tokenizer.segments else tf.zeros_like(segments)


def text_map(feature: Text, vocabulary_size: int | None = None) -> TextMap:
    """Returns the part of a feature map that describes the text.

    Args:
        feature: The text feature of the configuration.
        vocabulary_size: Number of tokens in the vocabulary file, for `tokens: vocabulary`.

    Raises:
        InputError: the checkpoint cannot be read.
    """
    if feature.tokens == "vocabulary":
        return _map(feature, len(SPECIAL) + (vocabulary_size or 0), TokenLists.special, ())
    tokenizer, size = read_tokenizer(feature.encoder)
    ids = {token: index for index, token in enumerate(tokenizer.vocabulary)}
    numbers = tuple(ids.get(str(number), -1) for number in range(NUMBER_TOKENS))
    return _map(feature, size, tokenizer.special, numbers)


def _map(feature: Text, size: int, special: dict[str, int], numbers: tuple[int, ...]) -> TextMap:
    ids = {f"{name}_id": token for name, token in special.items()}
    return TextMap(length=feature.length, vocabulary_size=size, **ids, number_ids=numbers)


def read_tokenizer(encoder: str) -> tuple[WordPiece | BytePairs, int]:
    """Returns the tokenizer of a checkpoint, and the number of rows of its token embedding table.

    Raises:
        InputError: the folder is not a BERT or RoBERTa checkpoint, or its tokenizer does not match its weights.
    """
    folder = find_checkpoint(encoder)
    if folder is None:
        raise InputError("features: text: encoder: random has no tokenizer; give a checkpoint or tokens: vocabulary")
    try:
        config = read_config(folder)
    except ValueError as error:
        raise InputError(str(error)) from error
    tokenizer = (WordPiece if config["model_type"] == "bert" else BytePairs)(folder)
    size, tokens = config.get("vocab_size"), len(tokenizer.vocabulary)
    if not isinstance(size, int) or not tokens <= size <= tokens + _MAX_PADDING:
        raise InputError(
            f"{folder / CONFIG}: vocab_size is {size}, but the tokenizer has {tokens} tokens; "
            "take both from the same checkpoint"
        )
    return tokenizer, size
