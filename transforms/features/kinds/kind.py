"""The transform of a kind of features: its statistics, its part of the graph, its fields and its former rows."""

import abc
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.analyzers import LogSummary, Numbers
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.table_rows import NONE, Rows
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.kind import Kind, WithVocabulary
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.whole_numbers import WHOLE_NUMBER, WHOLE_PART

UNKNOWN, MISSING = 0, 1  # a field's local ids before its vocabulary; see ctrpipe.models.base.feature_map
PADDING = -1  # the local id of a slot without a value

LearnedNumbers = Mapping[str, npt.NDArray[np.float64]]
# Returns the number of values in a column's vocabulary.
VocabularySize = Callable[[str, WithVocabulary | Text], int]

KindT = TypeVar("KindT", bound=Kind)
VocabularyT = TypeVar("VocabularyT", bound=WithVocabulary)


@dataclasses.dataclass(frozen=True)
class LearnedField(Generic[KindT]):
    """The meaning of the ids of a field.

    Attributes:
        feature: The feature of the field's column.
        size: Number of ids, the reserved ones included.
        vocabulary: Values of the column's vocabulary in the order of their ids, binary; None without a vocabulary.
        numbers: The column's entry in `Learned.numbers`; empty if there is none.
    """

    feature: KindT
    size: int
    vocabulary: pa.Array | None
    numbers: npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class KindTransform(abc.ABC, Generic[KindT]):
    """The transform of one feature.

    Args:
        feature: The feature.
        spec: The description of the log.
    """

    feature: KindT
    spec: LogSpec

    def plain(self, columns: list[tf.Tensor]) -> list[tf.Tensor]:
        """Normalises columns [N] as LogReader does for a log, because requests do not pass through the reader."""
        if words := self.spec.missing_words(self.feature):
            texts = tf.stack(columns, axis=1)
            texts = tf.where(tf.strings.regex_full_match(texts, "|".join(map(re.escape, words))), "", texts)
            columns = tf.unstack(texts, axis=1)
        return columns

    def whole_numbers(self, values: tf.Tensor, column: str) -> tf.Tensor:
        """Returns a column with 123.0 replaced by 123, like LogReader (`whole_numbers`)."""
        if column not in self.spec.whole_number_columns:
            return values
        return tf.strings.regex_replace(values, WHOLE_NUMBER, WHOLE_PART, replace_global=False)

    @abc.abstractmethod
    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        """Returns the columns' part of the packed tensors, by the name of the tensor.

        The columns of a feature share their operations: the number of operations determines the latency of a request.

        Args:
            columns: Normalised columns [N] of the feature, in order; all of them, or those of one side.
            numbers: The result of `Learned.numbers`.
            vocabularies: Look-ups of the vocabularies.

        Returns:
            `ids`: ids within their field, int64 [N, slots]; PADDING for a slot without a value. `dense`: float32 [N,
            columns]. `tokens` and `segments`: int64 [N, T].
        """

    def vocabulary(self, column: str, summary: LogSummary) -> pa.LargeBinaryArray:
        """Returns the column's vocabulary in the order of its ids. For features with a vocabulary only."""
        raise NotImplementedError

    def numbers(self, measured: Numbers) -> npt.NDArray[np.float64]:
        """Returns the statistics of a column that the transform uses. For features that are measured only."""
        raise NotImplementedError

    def size(self, column: str, vocabulary_size: VocabularySize) -> int:
        """Returns the number of ids of a column with a vocabulary or hash, without the reserved ones."""
        raise NotImplementedError

    @abc.abstractmethod
    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        """Returns a field's settings, as `FeatureMap.from_sizes` takes them."""

    def former_rows(self, column: str, field: LearnedField[KindT], former: LearnedField[KindT]) -> Rows:
        """Returns the former local id of each local id of a field of the same kind; NONE if there is none.

        This default is for fields whose ids do not depend on the training rows.
        """
        alike = self.feature.meaning(column) == former.feature.meaning(column)
        return np.arange(field.size) if alike else np.full(field.size, NONE)


@dataclasses.dataclass(frozen=True)
class VocabularyTransform(KindTransform[VocabularyT]):
    """The transform of a kind whose values are in a vocabulary."""

    def vocabulary(self, column: str, summary: LogSummary) -> pa.LargeBinaryArray:
        return summary.vocabulary(column, self.feature.top_k, self.feature.min_count)

    def size(self, column: str, vocabulary_size: VocabularySize) -> int:
        return vocabulary_size(column, self.feature) + self.feature.oov_buckets - 1

    def local_ids(self, places: tf.Tensor, values: tf.Tensor, sizes: Sequence[int], unknown: int) -> tf.Tensor:
        """Returns local ids [N, C]: `unknown`, then the vocabulary, then any further out-of-vocabulary ids.

        Args:
            places: Indices of the values in their vocabularies, [N, C]; -1 if absent.
            values: The values, [N, C].
            sizes: The sizes of the vocabularies, C or one for all.
            unknown: The local id of the first out-of-vocabulary value.
        """
        local = tf.where(places < 0, constant(unknown), places + RESERVED_IDS)
        if self.feature.oov_buckets == 1:
            return local
        bucket = tf.strings.to_hash_bucket_fast(values, self.feature.oov_buckets)
        return tf.where((places < 0) & (bucket > 0), constants(sizes) + RESERVED_IDS + bucket - 1, local)

    def former_rows(self, column: str, field: LearnedField[VocabularyT], former: LearnedField[VocabularyT]) -> Rows:
        if field.vocabulary is None or former.vocabulary is None:  # the former column was hashed
            return np.full(field.size, NONE)
        known = places_among(field.vocabulary, former.vocabulary)
        # After the vocabulary come oov_buckets - 1 further out-of-vocabulary ids. A hash assigns values to them: with
        # another number of ids, each has other values.
        count, was = (len(of.vocabulary) + RESERVED_IDS for of in (field, former) if of.vocabulary is not None)
        further = np.arange(field.size - count)
        alike = len(further) == former.size - was
        parts = [np.arange(RESERVED_IDS), np.where(known == NONE, NONE, known + RESERVED_IDS)]
        return np.concatenate([*parts, further + was if alike else np.zeros_like(further)])


def places_among(values: pa.Array, among: pa.Array) -> Rows:
    """Returns the index of each value in `among`; NONE if it is absent."""
    places = pc.fill_null(pc.index_in(values, among), NONE)
    return np.asarray(places, dtype=np.int64)


def constant(value: int) -> tf.Tensor:
    """Returns an int64 scalar."""
    return tf.constant(value, tf.int64)


def constants(values: Iterable[int]) -> tf.Tensor:
    """Returns an int64 vector."""
    return tf.constant(list(values), tf.int64)
