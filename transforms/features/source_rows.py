"""Maps the rows of the embedding tables of a warm start to the rows of the parent model's tables.

A row of an embedding table represents a vocabulary value, a hash bucket or a bucket of numbers. Vocabularies differ
between training runs: the row of a value may move, appear or disappear.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.models.base.feature_map import FeatureMap, Field
from ctrpipe.transforms.features.kinds.every import transform_of
from ctrpipe.transforms.features.kinds.kind import LearnedField, places_among
from ctrpipe.transforms.features.slots import fields_of
from ctrpipe.transforms.features.table_rows import NONE, Rows, SourceRows
from ctrpipe.transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class LearnedValues:
    """The meaning of the rows of a transform's tables.

    Attributes:
        spec: The description of the log.
        feature_map: The description of the packed tensors.
        vocabularies: Values of each vocabulary in the order of their ids, binary, by column.
        numbers: The result of `Learned.numbers`, by column.
    """

    spec: LogSpec
    feature_map: FeatureMap
    vocabularies: Mapping[str, pa.Array]
    numbers: Mapping[str, npt.NDArray[np.float64]]


def differences(today: LogSpec, former: LogSpec) -> list[str]:
    """Returns the differences between two logs' columns that matter to a model, one phrase each.

    Sizes of vocabularies and boundaries of buckets do not count as differences.
    """
    ours, theirs = (_meanings(spec) for spec in (today, former))
    new, gone = [name for name in ours if name not in theirs], [name for name in theirs if name not in ours]
    changed = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    said = (("new columns", new), ("columns that are gone", gone), ("columns of another transform", changed))
    differing = [f"{what}: {', '.join(names)}" for what, names in said if names]
    if not differing and list(ours) != list(theirs):
        differing.append("another order of the columns")
    if list(today.data.labels) != list(former.data.labels):
        differing.append(f"other labels: {', '.join(former.data.labels)}")
    return differing


def _meanings(spec: LogSpec) -> dict[str, tuple[object, ...]]:
    """Returns the settings that define each column's ids and numbers, without anything learned from training rows."""
    return {
        column: (*feature.meaning(column), spec.derived.get(column))
        for column, feature in spec.feature_by_column.items()
    }


def rows_of_ids(today: LearnedValues, former: LearnedValues) -> SourceRows:
    """Returns the source rows of a table of all ids, [total_ids]; padding maps to padding."""
    same, unknown = (np.full(today.feature_map.total_ids, NONE, np.int64) for _ in range(2))
    same[0] = unknown[0] = 0
    fields = {field.name: field for field in former.feature_map.fields}
    for field, column in _own_fields(today):
        other = fields.get(field.name)
        if other is None or other.kind != field.kind or other.shared_with:
            continue
        own, its = _learned(field, column, today), _learned(other, column, former)
        local = transform_of(today.spec.feature_by_column[column], today.spec).former_rows(column, own, its)
        place = slice(field.offset, field.offset + field.size)
        same[place] = np.where(local == NONE, NONE, local + other.offset)
        if (local != NONE).any():
            unknown[place] = other.unknown_id
    return SourceRows(same, unknown)


def rows_of_positions(today: FeatureMap, former: FeatureMap, ids: SourceRows) -> SourceRows:
    """Returns the source rows of a table with the ids of the role `position` only, field by field."""
    ours, theirs = _position_ids(today), _position_ids(former)
    places = np.full(former.total_ids + 1, NONE, np.int64)  # the last entry maps NONE to NONE
    places[theirs] = np.arange(len(theirs))
    return SourceRows(places[ids.same[ours]], places[ids.unknown[ours]])


def _position_ids(feature_map: FeatureMap) -> Rows:
    fields = [field for field in feature_map.fields if field.role == "position" for _ in range(field.slots)]
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(f.offset, f.offset + f.size) for f in fields)])


def rows_of_tokens(today: LearnedValues, former: LearnedValues) -> SourceRows | None:
    """Returns the source rows of a table of the text's tokens, [vocabulary_size]; None without common tokens."""
    ours, theirs = today.feature_map.text, former.feature_map.text
    text, other = today.spec.text, former.spec.text
    if ours is None or theirs is None or text is None or other is None or text.tokens != other.tokens:
        return None
    if ours.special_ids != theirs.special_ids:
        return None
    if text.tokens == "checkpoint":
        if ours.vocabulary_size != theirs.vocabulary_size or ours.number_ids != theirs.number_ids:
            return None
        same = np.arange(ours.vocabulary_size)
    else:
        values, before = today.vocabularies[text.columns[0]], former.vocabularies[other.columns[0]]
        special = len(ours.special_ids)
        known = places_among(values, before)
        same = np.concatenate([np.arange(special), np.where(known == NONE, NONE, known + special)])
    return SourceRows(same, np.full(len(same), theirs.unknown_id, np.int64))


def _learned(field: Field, column: str, values: LearnedValues) -> LearnedField[Any]:
    feature, numbers = values.spec.feature_by_column[column], values.numbers.get(column, np.zeros(0))
    return LearnedField(feature, field.size, values.vocabularies.get(column), numbers)


def _own_fields(values: LearnedValues) -> Iterator[tuple[Field, str]]:
    """Yields the fields with their own ids, each with its column."""
    columns = {field.name: field.column for field in fields_of(values.spec)}
    for field in values.feature_map.fields:
        if not field.shared_with:
            yield field, columns[field.name]
