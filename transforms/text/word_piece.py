"""BERT's WordPiece tokenizer as TensorFlow graph operations."""

import pathlib

import tensorflow as tf

from ctrpipe.transforms.text.ragged import without_empty
from ctrpipe.transforms.text.tokenizer_files import read_word_piece

_LONGEST_WORD = 100  # characters; a longer word becomes the unknown token
_SPECIAL = {
    "padding": ("pad", "[PAD]"),
    "unknown": ("unk", "[UNK]"),
    "classify": ("cls", "[CLS]"),
    "separator": ("sep", "[SEP]"),
    "mask": ("mask", "[MASK]"),
}

# Unicode classes as in BERT's basic tokenizer.
_SPACE = r"[\t\n\r\p{Z}]"
_CONTROL = r"[\p{C}\x{FFFD}]"
_MARK = r"\p{Mn}"
_PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
_IDEOGRAPH = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)


class WordPiece:
    """BERT's WordPiece tokenizer, with the options of tokenizer_config.json or tokenizer.json.

    A literal [SEP] or [MASK] in a text is not a special token.

    Args:
        folder: Folder of the checkpoint, with vocab.txt or tokenizer.json; tokenizer_config.json is optional.

    Raises:
        InputError: a file is missing or invalid, or the vocabulary lacks a special token.
    """

    between = 1
    segments = True

    def __init__(self, folder: pathlib.Path):
        import tensorflow_text  # lazy: takes 0.3 s, and a run without a text does not need it

        files = read_word_piece(folder)
        self.vocabulary = files.vocabulary
        self._lower = bool(files.options.get("do_lower_case", True))
        accents = files.options.get("strip_accents")
        self._strip_accents = self._lower if accents is None else bool(accents)
        self._split_ideographs = bool(files.options.get("tokenize_chinese_chars", True))
        self.special = files.special(_SPECIAL)
        unknown = self.vocabulary[self.special["unknown"]]
        self._unknown = unknown
        self._normalize = tensorflow_text.normalize_utf8
        self._word_piece = tensorflow_text.FastWordpieceTokenizer(
            self.vocabulary,
            suffix_indicator="##",
            max_bytes_per_word=4 * _LONGEST_WORD + len(unknown),
            unknown_token=unknown,
            no_pretokenization=True,
        )

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts, string [N], into words and punctuation, string [N, (words)]."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        texts = tf.strings.regex_replace(texts, _SPACE, " ")
        texts = tf.strings.regex_replace(texts, _CONTROL, "")
        if self._split_ideographs:
            texts = tf.strings.regex_replace(texts, f"({_IDEOGRAPH})", r" \1 ")
        if self._strip_accents:
            texts = tf.strings.regex_replace(self._normalize(texts, "NFD"), _MARK, "")
        if self._lower:
            # BERT lowercases characters one by one, so a capital sigma at the end of a word becomes σ, not ς.
            texts = tf.strings.lower(tf.strings.regex_replace(texts, "Σ", "σ"), encoding="utf-8")
        texts = tf.strings.regex_replace(texts, f"({_PUNCTUATION})", r" \1 ")
        texts = tf.strings.regex_replace(texts, f"[^ ]{{{_LONGEST_WORD + 1},}}", self._unknown)
        return tf.strings.split(texts, " ")

    def tokens(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of texts, string [N] -> int32 [N, (tokens)], without special tokens."""
        return tf.cast(self._word_piece.tokenize(without_empty(self.words(texts))).merge_dims(1, 2), tf.int32)


def join_segments(
    segments: list[tf.RaggedTensor], length: int, classify: int, separator: int, padding: int, between: int = 1
) -> tuple[tf.Tensor, tf.Tensor]:
    """Builds [CLS] a [SEP] or [CLS] a [SEP] b [SEP], truncated and padded to `length`.

    The longer of two segments is truncated first, as in HuggingFace's `longest_first`. If both are longer than half of
    the available length, each keeps half.

    Args:
        segments: One or two segments, int32 [N, (tokens)] each.
        length: Output length T, including special tokens.
        classify, separator, padding: Ids of the special tokens.
        between: Number of separators between two segments: 1 for BERT, 2 for RoBERTa.

    Returns:
        Tokens and segment ids, int32 [N, T] each.
    """
    sizes = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
    room = length - 2 - (between if len(segments) == 2 else 0)
    if len(segments) == 1:
        kept = [tf.minimum(sizes[0], room)]
    else:
        kept = _longest_first(sizes[0], sizes[1], room)
    # Computed by position: concatenating ragged tensors would take ten times as many operations.
    places = tf.range(length)[None, :]
    tokens = tf.where(tf.equal(places, 0), classify, padding)
    kinds = tf.zeros_like(tokens)
    start = tf.constant(1)
    for index, (segment, size) in enumerate(zip(segments, kept, strict=True)):
        own = places - tf.reshape(start, [-1, 1])
        is_token = (own >= 0) & (own < size[:, None])
        ends = between if index + 1 < len(segments) else 1
        is_segment = (own >= 0) & (own < size[:, None] + ends)
        values = tf.concat([segment.flat_values, [padding]], axis=0)  # in case there are no tokens
        first = tf.cast(segment.row_starts(), tf.int32)[:, None]
        taken = tf.gather(values, tf.where(is_token, first + own, 0))
        tokens = tf.where(is_segment, tf.where(is_token, taken, separator), tokens)
        kinds = tf.where(is_segment, index, kinds)
        start += size + ends
    return tokens, kinds


def _longest_first(first: tf.Tensor, second: tf.Tensor, room: int) -> list[tf.Tensor]:
    shorter, swapped = tf.minimum(first, second), first > second
    longer = tf.minimum(tf.maximum(first, second), tf.maximum(shorter, room - shorter))
    too_long = shorter + longer > room
    shorter = tf.where(too_long, tf.cast(room // 2, shorter.dtype), shorter)
    longer = tf.where(too_long, tf.cast(room - room // 2, longer.dtype), longer)
    return [tf.where(swapped, longer, shorter), tf.where(swapped, shorter, longer)]
