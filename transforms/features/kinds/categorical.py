"""Single values in the transform: look-ups in vocabularies, and hashes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.analyzers import LogSummary
from ctrpipe.transforms.features.kinds.kind import (
    MISSING,
    UNKNOWN,
    KindTransform,
    LearnedField,
    LearnedNumbers,
    VocabularySize,
    VocabularyTransform,
    constant,
)
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.table_rows import Rows
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.pretrained_table import read_table


@dataclasses.dataclass(frozen=True)
class CategoricalTransform(VocabularyTransform[Categorical]):
    """The transform of single values."""

    def plain(self, columns: list[tf.Tensor]) -> list[tf.Tensor]:
        columns = KindTransform.plain(self, columns)
        if not self.feature.whole_numbers:
            return columns
        columns = tf.unstack(self.whole_numbers(tf.stack(columns, axis=1), self.feature.columns[0]), axis=1)
        return columns

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        ids = self.look_up(columns, vocabularies)
        if self.feature.frozen is None:
            return {"ids": ids}
        vectors = [self._vectors(column, values, vocabularies) for column, values in columns.items()]
        return {"ids": ids, "dense": tf.concat(vectors, axis=1)}

    def _vectors(self, column: str, values: tf.Tensor, vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the pretrained vectors of a column's values, [N]; 0 for a value without one. float32 [N, length]."""
        assert self.feature.frozen is not None
        table = read_table(self.feature.frozen, column in self.spec.whole_number_columns)
        places = vocabularies.places_among(f"keys_of_{column}", table.keys.to_pylist(), values)
        vectors = tf.gather(tf.constant(table.vectors), tf.maximum(places, 0))
        return tf.where(places[:, None] < 0, 0.0, vectors)

    def vocabulary(self, column: str, summary: LogSummary) -> pa.LargeBinaryArray:
        """Returns the values of the training rows, followed by the other keys of a table that is fine-tuned."""
        values = super().vocabulary(column, summary)
        if self.feature.tuned is None:
            return values
        keys = read_table(self.feature.tuned, column in self.spec.whole_number_columns).keys.cast(pa.large_binary())
        return pa.concat_arrays([values, keys.filter(pc.invert(pc.is_in(keys, value_set=values)))])

    def look_up(self, columns: Mapping[str, tf.Tensor], vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the local ids of the columns' values, [N] each; "" is missing. int64 [N, columns]."""
        values = tf.stack(list(columns.values()), axis=1)
        if self.feature.transform == "hash":
            local = tf.strings.to_hash_bucket_fast(values, int(self.feature.buckets or 0)) + RESERVED_IDS
        else:
            places = vocabularies.places(list(columns), list(columns.values()))
            sizes = [vocabularies.sizes[column] for column in columns]
            local = self.local_ids(places, values, sizes, MISSING if self.feature.missing_rate else UNKNOWN)
        return tf.where(tf.equal(values, ""), constant(MISSING), local)

    def look_up_tokens(self, column: str, tokens: tf.Tensor, vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the local ids of tokens in the column's vocabulary, [N, slots]; "" is missing."""
        return tf.reshape(self.look_up({column: tf.reshape(tokens, [-1])}, vocabularies), [-1, tokens.shape[1]])

    def size(self, column: str, vocabulary_size: VocabularySize) -> int:
        if self.feature.transform == "hash":
            return int(self.feature.buckets or 0)
        return VocabularyTransform.size(self, column, vocabulary_size)

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        size = self.size(place.column, vocabulary_size)
        return (place.name, "categorical", size, place.slots, self.feature.role)

    def former_rows(self, column: str, field: LearnedField[Categorical], former: LearnedField[Categorical]) -> Rows:
        of = KindTransform if self.feature.transform == "hash" else VocabularyTransform
        return of.former_rows(self, column, field, former)
