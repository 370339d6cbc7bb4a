"""Lists whose elements have weights, such as `sports:0.5|news:0.1`.

A checked value is the text of the list, with whole-number names normalised; the served graph parses the same text. The
weight of an element follows its last separator; an element without one has the weight 1.
"""

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.payload import decoded, plain
from ctrpipe.transforms.log.values import TextNumbers, as_binary, is_list, to_floats
from ctrpipe.transforms.log.whole_numbers import WHOLE_NUMBER, WHOLE_PART
from ctrpipe.transforms.log.words import NUMBER_PATTERN

LARGEST = 1e6  # weight; a larger one makes an arithmetic overflow
_TEXT = "(?s)"  # the point is any character, a line break too
_INFINITE = r"[+-]?(?i:inf(?:inity)?)"


def weight_pattern(separator: str, infinite: bool = True) -> str:
    """Returns the RE2 pattern of an element with a weight. Its groups are the name and the weight.

    Args:
        separator: The separator between name and weight.
        infinite: Whether a weight may be infinite, as in a request. In a log, it makes its row malformed.
    """
    weight = rf"{NUMBER_PATTERN}|{_INFINITE}" if infinite else NUMBER_PATTERN
    return rf"{_TEXT}^(.*){re.escape(separator)}({weight})$"


def without_weights(elements: pa.Array, separator: str) -> pa.Array:
    """Returns the names of binary elements."""
    return pc.replace_substring_regex(elements, weight_pattern(separator), r"\1")


def weights_of(lists: pa.Array, between: str, before: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights of all elements, float64 [E], and the index of each element's list, int64 [E].

    Args:
        lists: The lists of the payload, binary or dictionary-encoded.
        between, before: The separators between two elements, and between an element and its weight.
    """
    split = pc.split_pattern(decoded(lists).cast(pa.binary()).fill_null(b""), between)
    elements, places = pc.list_flatten(split), pc.list_parent_indices(split).to_numpy()
    is_weighted = pc.match_substring_regex(elements, weight_pattern(before))
    texts = pc.replace_substring_regex(elements, weight_pattern(before), r"\2")
    texts = pc.if_else(is_weighted, texts, pa.scalar(b"1", texts.type)).cast(pa.string())
    weights = np.clip(texts.cast(pa.float64()).to_numpy(zero_copy_only=False), -LARGEST, LARGEST)
    is_element = np.asarray(pc.greater(pc.binary_length(elements), 0))
    return weights[is_element], places[is_element]


def names_alone(texts: Iterable[str], between: str, before: str) -> list[str]:
    """Returns lists without the weights of their elements.

    Args:
        texts: The lists.
        between, before: The separators between two elements, and between an element and its weight.
    """
    pattern = re.compile(weight_pattern(before), re.ASCII)
    return [between.join(pattern.sub(r"\1", element) for element in text.split(between)) for text in texts]


def is_pairs(kind: pa.DataType) -> bool:
    """Returns whether a column has maps, or lists of structs with two fields."""
    if pa.types.is_map(kind):
        return True
    return is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2


def pairs_as_lists(values: pa.Array, separator: str, name: str, path: str) -> pa.Array:
    """Converts maps from elements to weights, or lists of such pairs, to lists of weighted elements.

    Args:
        values: Maps, or lists of structs of an element and its weight; see `is_pairs`.
        separator: The separator between an element and its weight.
        name, path: The column and its file, for error messages.

    Raises:
        InputError: the elements or the weights are not single values, or the first of two fields is the weight.
    """
    if pa.types.is_map(values.type):
        columns, offsets = (values.keys, values.items), values.offsets
    else:
        first, second = values.type.value_type
        if _is_fraction(first.type) and not _is_fraction(second.type):
            raise InputError(
                f"{path}: column {name} of type {values.type}: the element comes before its weight, and {first.name} "
                f"comes before {second.name}; write them the other way round"
            )
        pairs = pc.list_flatten(values)
        columns = pairs.field(0), pairs.field(1)
        lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.cumsum(np.append(0, lengths)), pa.int32())
    texts = [as_binary(plain(column), name, path).fill_null(b"") for column in columns]
    # A missing map has no element.
    return pa.ListArray.from_arrays(offsets, pc.binary_join_element_wise(*texts, separator.encode()))


def _is_fraction(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.scale > 0))


def to_weighted(
    values: pa.Array,
    name: str,
    faults: dict[int, str],
    separators: tuple[str, str],
    is_whole: bool,
    infinite: bool = False,
) -> pa.Array:
    """Returns binary lists with normalised names; adds rows with a weight that is not a finite number to `faults`.

    Args:
        values: The lists.
        name: The column.
        faults: The reasons of malformed rows.
        separators: The separators between two elements, and between an element and its weight.
        is_whole: Whether the name 123.0 equals 123.
        infinite: Whether a weight may be infinite, as in rows to score.
    """
    between, before = separators
    lists = pc.split_pattern(values.fill_null(b""), between)
    elements = lists.values
    parents = pc.list_parent_indices(lists).to_numpy()
    weighs = pc.match_substring(elements, before).to_numpy(zero_copy_only=False)
    pattern = weight_pattern(before, infinite)
    is_good = pc.match_substring_regex(elements, pattern).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(weighs & ~is_good).tolist():
        shown = excerpt(elements[place].as_py())
        faults.setdefault(int(parents[place]), f"{name}: '{shown}' has no finite number as its weight after '{before}'")
    good = pa.array(np.flatnonzero(is_good))
    weights = pc.replace_substring_regex(elements.take(good), pattern, r"\2")
    wrong: dict[int, str] = {}
    to_floats(weights, name, wrong, TextNumbers(infinite=infinite))
    for place, fault in wrong.items():
        faults.setdefault(int(parents[good[place].as_py()]), fault)
    if is_whole:
        plain = pc.replace_substring_regex(elements, WHOLE_NUMBER, WHOLE_PART)
        weighted = rf"{WHOLE_NUMBER.removesuffix('$')}({re.escape(before)}(?:{NUMBER_PATTERN}|{_INFINITE}))$"
        elements = pc.replace_substring_regex(plain, weighted, rf"{WHOLE_PART}\3")
    joined = pc.binary_join(pa.ListArray.from_arrays(lists.offsets, elements), between.encode())
    empty = pc.equal(pc.binary_length(joined), 0)
    return pc.replace_with_mask(joined, empty, pa.scalar(None, joined.type))
