"""Packs raw columns into tensors, in one TensorFlow Transform graph for training and serving."""

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import (
    MAX_EXPONENT,
    MISSING_SIGNIFICAND,
    SLOT_WEIGHTS,
    FeatureMap,
    NumberTask,
    first_ids,
)
from ctrpipe.transforms.features.derived.graph import derived_tensor
from ctrpipe.transforms.features.kinds.every import transform_of
from ctrpipe.transforms.features.kinds.kind import VocabularySize, constant, constants
from ctrpipe.transforms.features.kinds.numeric import clip, known_numbers
from ctrpipe.transforms.features.learned import NUMBERS, Learned, read_numbers
from ctrpipe.transforms.features.slots import dense_widths, fields_of
from ctrpipe.transforms.features.vocabularies import vocabulary_sizes
from ctrpipe.transforms.log.kinds.kind import WithVocabulary
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.log.spec import Feature, LogSpec
from ctrpipe.transforms.text.tokenize import text_map

# Name prefixes of the outputs that contain the columns of one side only.
CANDIDATE, CONTEXT = "candidate_", "context_"
# The smallest normal float32. Whether subnormal numbers are flushed to 0 depends on a thread's settings.
_SMALLEST = float(np.finfo(np.float32).smallest_normal)


def preprocessing_fn(inputs: dict[str, tf.Tensor], learned: Learned) -> dict[str, tf.Tensor]:
    """Packs raw columns. TensorFlow Transform traces this function for training and serving.

    Args:
        inputs: [N] tensors, float32 or string, and [N, length] tensors of vectors. A missing value is NaN or "".
        learned: The vocabularies and numbers learned from the training rows, and the description of the log.

    Returns:
        `label` float32 [N, tasks]. With fields, `ids` int64 [N, S]; with weighted fields, `slot_weights` float32 [N,
        W]. With dense features, `dense` float32 [N, D]. With a text, `tokens` and `segments` int64 [N, T]. With
        `raw_numbers`, `numbers` int64 [N, 2 M]. If the log has columns of the candidate, also `candidate_ids` and
        `context_ids`, which hold the slots of the candidate's columns and of the context's columns; likewise for
        `dense` and `numbers`.
    """
    outputs = _pack(inputs, learned)
    labels = [inputs[name] for name in learned.spec.label_columns]
    outputs["label"] = tf.stack(labels, axis=1)
    return outputs


def _pack(inputs: dict[str, tf.Tensor], learned: Learned) -> dict[str, tf.Tensor]:
    """Returns the outputs of `preprocessing_fn`, without the label."""
    spec, numbers, vocabularies = learned.spec, learned.numbers(), learned.write_vocabularies()
    limits = learned.limits()
    inputs = inputs | _derived(inputs, spec)
    side_of = _sides(spec)
    parts: list[tuple[str, dict[str, tf.Tensor]]] = []
    for side, feature, names in _features_by_side(spec, side_of):
        transform = transform_of(feature, spec)
        columns = [inputs[name] for name in names]
        if names[0] not in spec.derived:
            columns = transform.plain(columns)
        if feature.is_number or feature.vector_length:
            columns = clip(columns, [limits[name] for name in names])
        parts.append((side, transform.tensors(dict(zip(names, columns, strict=True)), numbers, vocabularies)))
    outputs: dict[str, tf.Tensor] = {
        name: part[name] for _, part in parts for name in ("tokens", "segments") if name in part
    }
    first = first_ids(_fields(spec, lambda column, _: vocabularies.sizes[column]))
    for prefix, sides in _outputs_by_side(spec).items():
        of_sides = [part for side, part in parts if side in sides]
        if local := [part["ids"] for part in of_sides if "ids" in part]:
            fields = [field for field in fields_of(spec) if side_of[field.column] in sides]
            offsets = [first[field.name] for field in fields for _ in range(field.slots)]
            outputs[f"{prefix}ids"] = _shared_ids(tf.concat(local, axis=1), offsets)
        if weights := [part[SLOT_WEIGHTS] for part in of_sides if SLOT_WEIGHTS in part]:
            outputs[f"{prefix}{SLOT_WEIGHTS}"] = tf.concat(weights, axis=1)
        if dense := [part["dense"] for part in of_sides if "dense" in part]:
            outputs[f"{prefix}dense"] = tf.concat(dense, axis=1)
        if written := [name for name in spec.written_columns if side_of[name] in sides]:
            known = known_numbers([inputs[name] for name in written], spec.missing_numbers)
            known = clip(known, [limits[name] for name in written])
            outputs[f"{prefix}numbers"] = written_numbers(tf.stack(known, axis=1))
    return outputs


def _sides(spec: LogSpec) -> dict[str, str]:
    """Returns the side of each column: CANDIDATE or CONTEXT."""
    of_candidate = set(spec.candidate_columns)
    made = {name for name, derived in spec.derived.items() if of_candidate & derived.sources().keys()}
    return {
        name: CANDIDATE if name in of_candidate | made else CONTEXT for name in [*spec.feature_columns, *spec.derived]
    }


def _features_by_side(spec: LogSpec, side_of: Mapping[str, str]) -> list[tuple[str, Feature, list[str]]]:
    """Returns the features in order, each with its side and columns. A feature with columns of both sides is listed
    twice.
    """
    return [
        (side, feature, list(columns))
        for feature in spec.features
        for (side, _), columns in itertools.groupby(feature.columns, lambda name: (side_of[name], name in spec.derived))
    ]


def _derived(inputs: Mapping[str, tf.Tensor], spec: LogSpec) -> dict[str, tf.Tensor]:
    """Returns the derived columns of raw columns."""
    whole = spec.whole_number_columns
    columns: dict[str, tf.Tensor] = {}
    for name, derived in spec.derived.items():
        plain: dict[str, tf.Tensor] = {}
        for source in derived.sources():
            [plain[source]] = transform_of(spec.inputs[source], spec).plain([inputs[source]])
        columns[name] = derived_tensor(derived, plain, whole_keys=list(plain)[-1] in whole)
    return columns


def _outputs_by_side(spec: LogSpec) -> dict[str, tuple[str, ...]]:
    """Maps the name prefix of each group of outputs to the sides whose columns it contains."""
    both: dict[str, tuple[str, ...]] = {"": (CONTEXT, CANDIDATE)}
    return both | {CONTEXT: (CONTEXT,), CANDIDATE: (CANDIDATE,)} if spec.candidate_columns else both


def _shared_ids(local: tf.Tensor, offsets: Sequence[int]) -> tf.Tensor:
    """Adds each slot's offset to ids within their field: returns ids in the id space of all fields, int64 [N, S]."""
    return tf.where(local < 0, constant(0), local + constants(offsets))


def written_numbers(values: tf.Tensor) -> tf.Tensor:
    """Returns the significand and exponent of each number, for [N, M] numbers. int64 [N, 2 M].

    35 is (35, 1) and -0.1234 is (-123, -1), as in BERT4CTR, section 3.2.1. The significand is rounded to three
    significant digits, ties to the even digit, without trailing zeros. Missing and infinite numbers are
    (MISSING_SIGNIFICAND, 0). Numbers with an absolute value below 1.18e-38 are (0, 0).
    """
    known = tf.math.is_finite(values)
    wide = tf.cast(tf.where(known, values, 0.0), tf.float64)
    size = tf.where(tf.abs(wide) < _SMALLEST, _wide(0.0), tf.abs(wide))
    powers = tf.constant([float(f"1e{power}") for power in range(-MAX_EXPONENT, MAX_EXPONENT + 3)], tf.float64)

    def power_of_ten(exponent: tf.Tensor) -> tf.Tensor:
        return tf.gather(powers, exponent + MAX_EXPONENT)

    place = tf.searchsorted(powers, tf.reshape(size, [-1]), "right", out_type=tf.int64)
    exponent = tf.where(size > 0, tf.reshape(place, tf.shape(size)) - 1 - MAX_EXPONENT, constant(0))
    # Powers of ten up to 10^22 are exact in float64, which preserves ties.
    scaled = size * power_of_ten(tf.maximum(2 - exponent, 0)) / power_of_ten(tf.maximum(exponent - 2, 0))
    rounded = tf.cast(tf.round(scaled), tf.int64)
    exponent += tf.cast(rounded >= 1000, tf.int64)  # 999.6 is (1, 3)
    for _ in range(3):
        rounded = tf.where(tf.equal(rounded % 10, 0), rounded // 10, rounded)
    significand = tf.where(wide < 0, -rounded, rounded)
    pairs = [tf.where(known, significand, constant(MISSING_SIGNIFICAND)), exponent]
    return tf.reshape(tf.stack(pairs, axis=2), [-1, 2 * values.shape[1]])


def _wide(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float64)


def feature_map(spec: LogSpec, transform: tft.TFTransformOutput) -> FeatureMap:
    """Returns the feature map of a finished transform.

    Raises:
        InputError: a vocabulary is empty, or the fields need more ids in total than int32 has.
    """
    sizes = vocabulary_sizes(transform, spec)

    def size_of(column: str, feature: WithVocabulary | Text) -> int:
        if not sizes[column]:
            raise InputError(
                f"features: the vocabulary of {column} has no entry: no value occurs {feature.min_count} times in the "
                "training rows; lower min_count or remove the column"
            )
        return sizes[column]

    return dataclasses.replace(layout(spec, size_of), number_tasks=_number_tasks(spec, transform))


def _number_tasks(spec: LogSpec, transform: tft.TFTransformOutput) -> tuple[NumberTask, ...]:
    """Returns the regression tasks, with the statistics of their labels in the training rows."""
    labels = spec.data.number_tasks.items()
    if not labels:
        return ()
    numbers = read_numbers(pathlib.Path(transform.transform_savedmodel_dir).parent / NUMBERS)
    of_tasks = [(task, label.predicts, numbers[label.column].tolist()) for task, label in labels]
    return tuple(NumberTask(task, predicts, center, scale) for task, predicts, (center, scale) in of_tasks)


def layout(spec: LogSpec, vocabulary_size: VocabularySize) -> FeatureMap:
    """Returns the feature map of a log whose vocabularies have the sizes `vocabulary_size(column, feature)`.

    Raises:
        InputError: the fields need more ids in total than int32 has, or the text's checkpoint cannot be read.
    """
    fields, dense, numbers, text = (
        _fields(spec, vocabulary_size),
        dense_widths(spec),
        tuple(spec.written_columns),
        None,
    )
    if spec.text:
        learnt = spec.text.tokens == "vocabulary"
        text = text_map(spec.text, vocabulary_size(spec.text.columns[0], spec.text) if learnt else None)
    try:
        numbers_alone = all(spec.feature_by_column[name].is_number for name in dense)
        widths = () if numbers_alone else tuple(dense.values())
        described = FeatureMap.from_sizes(fields, tuple(dense), tuple(spec.data.labels), text, numbers, widths)
        of_item = tuple(name for name in dense if name in spec.item_columns or _is_made_item(spec, name))
        embedded = tuple(name for name in dense if spec.feature_by_column[name].is_embedded)
        rate = spec.data.negative_sampling
        return dataclasses.replace(described, negative_sampling=rate, item_dense=of_item, embedded=embedded)
    except ValueError as error:
        raise InputError(f"features: {error}; lower top_k or raise min_count") from error


def _is_made_item(spec: LogSpec, name: str) -> bool:
    return name in spec.derived and spec.feature_by_column[name].is_item


def _fields(spec: LogSpec, vocabulary_size: VocabularySize) -> list[tuple[Any, ...]]:
    """Returns the settings of all fields in the order of their slots, as `FeatureMap.from_sizes` takes them."""
    features = spec.feature_by_column
    return [transform_of(features[place.column], spec).field(place, vocabulary_size) for place in fields_of(spec)]
