"""Computes derived columns in the transform graph, for training and serving alike."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ctrpipe.transforms.log.derived.cross import BETWEEN, Cross
from ctrpipe.transforms.log.derived.derived import Derived
from ctrpipe.transforms.log.derived.expression import Expression
from ctrpipe.transforms.log.derived.formulas import evaluate, parse
from ctrpipe.transforms.log.derived.lookup import Lookup
from ctrpipe.transforms.log.derived.vector import VectorOf
from ctrpipe.transforms.log.derived.weighted import BEFORE, WeightedLists
from ctrpipe.transforms.log.weighted import LARGEST, weight_pattern
from ctrpipe.transforms.log.whole_numbers import WHOLE_NUMBER, WHOLE_PART

_NAN = np.float32("nan")


def derived_tensor(derived: Derived, columns: Mapping[str, tf.Tensor], whole_keys: bool = True) -> tf.Tensor:
    """Returns a derived column, [N] or [N, length]; "" or NaN where it is missing.

    Args:
        derived: The column.
        columns: Its sources as `KindTransform.plain` leaves them, [N] each. Some may be [1]: one context for the
            candidates of a request.
        whole_keys: Whether the key 123.0 of a map is the same as 123.
    """
    sources = _of_one_length([columns[name] for name in derived.sources()])
    match derived:
        case Cross():
            known = tf.reduce_all(tf.stack([tf.not_equal(column, "") for column in sources]), axis=0)
            return tf.where(known, tf.strings.join(sources, BETWEEN), "")
        case Expression():
            formula = parse(derived.of)
            wide = [tf.cast(column, tf.float64) for column in sources]
            result = evaluate(formula, dict(zip(formula.columns, wide, strict=True)), _TensorOperations())
            numbers = tf.cast(tf.broadcast_to(result, tf.shape(wide[0])), tf.float32)
            return tf.where(tf.math.is_finite(numbers), numbers, _NAN)
        case Lookup():
            keys, maps = sources
            return _looked_up(derived, keys, maps, whole_keys)
        case VectorOf():
            vectors = tf.stack(sources, axis=1)
            known = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
            return tf.where(known, vectors, _NAN)
        case WeightedLists():
            values, weights = sources
            return _weighted(derived, values, weights)
    raise AssertionError(derived)


def _of_one_length(columns: list[tf.Tensor]) -> list[tf.Tensor]:
    if len(columns) == 1:
        return columns
    shape = tf.shape(columns[0])
    for column in columns[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(column))
    return [tf.broadcast_to(column, shape) for column in columns]


def _weighted(made: WeightedLists, values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    names, numbers = (tf.strings.split(column, made.separator) for column in (values, weights))
    rows = names.value_rowids()
    place = tf.range(tf.shape(rows, tf.int64)[0]) - tf.gather(names.row_starts(), rows)
    # After the last weight comes a 1, for values without one.
    flat = tf.concat([numbers.flat_values, ["1"]], axis=0)
    has_weight = place < tf.gather(numbers.row_lengths(), rows)
    index = tf.where(has_weight, tf.gather(numbers.row_starts(), rows) + place, tf.shape(flat, tf.int64)[0] - 1)
    pairs = names.with_flat_values(tf.strings.join([names.flat_values, tf.gather(flat, index)], BEFORE))
    return tf.where(tf.equal(values, ""), "", tf.strings.reduce_join(pairs, axis=1, separator=made.separator))


def _looked_up(lookup: Lookup, keys: tf.Tensor, maps: tf.Tensor, whole_keys: bool) -> tf.Tensor:
    entries = tf.strings.split(maps, lookup.separator)
    elements, rows = entries.flat_values, entries.value_rowids()
    pattern = weight_pattern(lookup.weights)
    names = tf.strings.regex_replace(elements, pattern, r"\1", replace_global=False)
    if whole_keys:
        names = tf.strings.regex_replace(names, WHOLE_NUMBER, WHOLE_PART, replace_global=False)
    wanted = tf.gather(keys, rows)
    is_match = tf.equal(names, wanted) & tf.not_equal(wanted, "") & tf.strings.regex_full_match(elements, pattern)
    places = tf.where(is_match)[:, 0]
    count, total = tf.shape(maps, tf.int64)[0], tf.shape(elements, tf.int64)[0]
    first = tf.math.unsorted_segment_min(
        places, tf.gather(rows, places), count
    )  # of a row without one, int64's largest
    texts = tf.strings.regex_replace(tf.gather(elements, places), pattern, r"\2", replace_global=False)
    # One element more, so that rows without an entry have a place.
    numbers = tf.tensor_scatter_nd_update(
        tf.fill([total + 1], _NAN),
        places[:, None],
        tf.cast(tf.clip_by_value(tf.strings.to_number(texts, tf.float64), -LARGEST, LARGEST), tf.float32),
    )
    return tf.gather(numbers, tf.minimum(first, total))


class _TensorOperations:
    """The operations of a formula on tensors; see `formulas.Operations`."""

    _NAMES = {"power": "pow", "negative": "negative"}

    def apply(self, name: str, *values: Any) -> Any:
        operation = getattr(tf.math, self._NAMES.get(name, name))
        return operation(*(tf.convert_to_tensor(value, tf.float64) for value in values))

    def where(self, condition: Any, first: Any, second: Any) -> Any:
        return tf.where(condition, *(tf.convert_to_tensor(value, tf.float64) for value in (first, second)))

    def is_missing(self, value: Any) -> Any:
        return tf.math.is_nan(tf.convert_to_tensor(value, tf.float64))
