"""RoBERTa's tokenizer (GPT-2's byte-level BPE) as TensorFlow graph operations."""

import pathlib

import numpy as np
import tensorflow as tf

from ctrpipe.transforms.text.ragged import without_empty
from ctrpipe.transforms.text.tokenizer_files import TokenizerFiles, read_byte_pairs

# Longer words are merged in parts, because each byte of the longest word may require a pass over all words.
LONGEST_WORD = 512  # bytes

# Unicode white space; \s of RE2 matches only ASCII white space.
_SPACE = r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
# GPT-2's pattern without its lookahead (see `words`).
_WORD = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^{_SPACE}\p{{L}}\p{{N}}]+|[{_SPACE}]+"
_SPECIAL = {
    "padding": ("pad", "<pad>"),
    "unknown": ("unk", "<unk>"),
    "classify": ("cls", "<s>"),
    "separator": ("sep", "</s>"),
    "mask": ("mask", "<mask>"),
}
_CUT = b"\xff"  # never occurs in UTF-8
_NEVER = np.iinfo(np.int32).max  # rank of a pair that is never merged


class BytePairs:
    """RoBERTa's byte-level BPE tokenizer, loaded from a HuggingFace checkpoint.

    A literal <s> or <mask> in a text is not a special token. Token ids equal those of HuggingFace, except for words
    longer than LONGEST_WORD bytes.

    Args:
        folder: Folder of the checkpoint, with vocab.json and merges.txt or with tokenizer.json; tokenizer_config.json
            is optional.

    Raises:
        InputError: a file is missing or invalid, or the vocabulary lacks a special token or a token of the merges.
    """

    between = 2
    segments = False

    def __init__(self, folder: pathlib.Path):
        files = read_byte_pairs(folder)
        self.vocabulary = files.vocabulary
        self._add_space = bool(files.options.get("add_prefix_space", False))
        self.special = files.special(_SPECIAL)
        self._bytes = np.array([files.id_of(character) for character in byte_characters()], np.int32)
        self._keys, self._ranks, self._merged = _merges(files)
        self._size = len(files.vocabulary)

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts, string [N], into the words to apply BPE to, string [N, (words)].

        In GPT-2's pattern, the last white space before a word belongs to the word: `\\s+(?!\\S)`. RE2 has no lookahead,
        so texts are first split before that white space.
        """
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        if self._add_space:
            texts = tf.strings.regex_replace(texts, f"^([^{_SPACE}])", r" \1")
        cut = tf.constant(rb"\1" + _CUT + rb"\2")
        texts = tf.strings.regex_replace(texts, tf.constant(f"([{_SPACE}])([{_SPACE}][^{_SPACE}])"), cut)
        parts = tf.strings.split(texts, _CUT)
        # regex_split of tensorflow_text is not used: it truncates a text at its first zero byte.
        ended = tf.strings.regex_replace(parts.flat_values, tf.constant(f"({_WORD})"), tf.constant(rb"\1" + _CUT))
        return _flat(without_empty(tf.strings.split(ended, _CUT)), parts)

    def tokens(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of texts, string [N] -> int32 [N, (tokens)], without special tokens."""
        words = self.words(texts)
        distinct, indices = tf.unique(words.flat_values)
        tokens = tf.gather(self._merge(distinct), indices)
        return _flat(tokens, words)

    def _merge(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Applies BPE to words, string [W] -> int32 [W, (tokens)]."""
        lengths = tf.strings.length(words)
        characters = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        word = tf.repeat(tf.range(tf.size(words)), lengths)
        start = tf.repeat(tf.cumsum(lengths, exclusive=True), lengths)
        index = (tf.range(tf.size(word)) - start) // LONGEST_WORD
        # The piece index of each byte. A piece is a word, or a part of a word that is too long.
        _, piece = tf.unique(tf.cast(word, tf.int64) * (1 << 32) + tf.cast(index, tf.int64))
        tokens = tf.gather(tf.constant(self._bytes), characters)
        state = (tf.constant(True), tokens, piece, word)
        shapes = (tf.TensorShape([]), *[tf.TensorShape([None])] * 3)
        _, tokens, _, word = tf.while_loop(lambda more, *_: more, self._merge_once, state, shapes)
        return tf.RaggedTensor.from_value_rowids(tokens, tf.cast(word, tf.int64), tf.size(words, tf.int64))

    def _merge_once(self, _: tf.Tensor, tokens: tf.Tensor, piece: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Merges the lowest-ranked pair of every piece; returns whether any pair was merged, then the new state."""
        keys, ranks, merged = tf.constant(self._keys), tf.constant(self._ranks), tf.constant(self._merged)
        key = tf.cast(tokens, tf.int64) * self._size + tf.cast(tf.roll(tokens, -1, 0), tf.int64)
        index = tf.minimum(tf.searchsorted(keys, key), len(self._keys) - 1)
        is_pair = tf.equal(tf.gather(keys, index), key) & tf.equal(piece, tf.concat([piece[1:], [-1]], 0))
        rank = tf.where(is_pair, tf.gather(ranks, index), _NEVER)
        lowest = is_pair & tf.equal(rank, tf.gather(tf.math.segment_min(rank, piece), piece))
        taken = lowest & tf.equal(_index_in_run(lowest) % 2, 1)  # in a run such as a a a, only the first pair
        tokens = tf.where(taken, tf.gather(merged, index), tokens)
        kept = ~tf.roll(taken & is_pair, 1, 0)
        state = [tf.boolean_mask(values, kept) for values in (tokens, piece, word)]
        return tf.reduce_any(taken), *state


def _index_in_run(flags: tf.Tensor) -> tf.Tensor:
    """Returns 1, 2, 3, ... along each run of set flags."""
    before = tf.concat([[-1], tf.cast(tf.where(~flags)[:, 0], tf.int32)], 0)
    return tf.range(tf.size(flags)) - tf.gather(before, tf.cumsum(tf.cast(~flags, tf.int32)))


def _flat(inner: tf.RaggedTensor, outer: tf.RaggedTensor) -> tf.RaggedTensor:
    """Concatenates the rows of `inner`, one per value of `outer`, into one row per row of `outer`."""
    return tf.RaggedTensor.from_nested_row_splits(inner.flat_values, [outer.row_splits, inner.row_splits]).merge_dims(
        1, 2
    )


def byte_characters() -> list[str]:
    """Returns GPT-2's character for each byte: the byte itself if printable, otherwise a character from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]


def _merges(files: TokenizerFiles) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the merge table as three arrays, sorted by pair.

    Returns:
        Pairs as first * vocabulary size + second, int64; their ranks and merged tokens, int32.
    """
    ids = files.ids
    # A repeated pair gets its last rank, as in HuggingFace tokenizers.
    rank = {ids[a] * len(ids) + ids[b]: (index, ids[a + b]) for index, (a, b) in enumerate(files.merges)}
    keys = sorted(rank)
    ranks, merged = zip(*(rank[key] for key in keys), strict=True)
    return np.array(keys, np.int64), np.array(ranks, np.int32), np.array(merged, np.int32)
