"""Detects histories with several values per item in the first rows of a log.

Nested lists of Parquet, ORC, Avro and JSON show the values of each item, so their number need not be configured.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.files import first_bytes, input_errors, stored_head
from ctrpipe.transforms.log.first_bytes import is_json_array, is_json_lines
from ctrpipe.transforms.log.formats.columnar import first_columns
from ctrpipe.transforms.log.formats.json_array import first_objects
from ctrpipe.transforms.log.formats.registry import columnar_of
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.sequence import MOST_VALUES, ItemSequence
from ctrpipe.transforms.log.nested import leaves
from ctrpipe.transforms.log.values import is_list

_ROWS = 2_000
_BYTES = 1 << 21  # of JSON
_SIGNS = (";", ",", "|", "\x1e", "\x1f")  # separators that are tried


@dataclasses.dataclass(frozen=True)
class ItemsFound:
    """The sequence settings that were detected in a log.

    Attributes:
        features: The features, with the detected `within` and `values_per_item`.
        told: A line about each changed feature.
    """

    features: list[Any]
    told: list[str]


def with_items_found(features: Sequence[Any], path: str, encoding: str) -> ItemsFound:
    """Returns the features with the detected settings of histories with several values per item.

    If a file cannot be read, the features stay unchanged; the reader of the whole file reports the error.
    """
    asked = [feature for feature in features if _is_asked(feature)]
    if not asked:
        return ItemsFound(list(features), [])
    try:
        lists = _first_lists(path, {column for feature in asked for column in feature.columns}, encoding)
    except (InputError, pa.ArrowException, ValueError):
        return ItemsFound(list(features), [])
    updated = [_with_items(feature, lists) if feature in asked else feature for feature in features]
    changed = [after for before, after in zip(features, updated, strict=True) if after is not before]
    return ItemsFound(updated, [_told(feature) for feature in changed])


def _is_asked(feature: Kind) -> bool:
    return isinstance(feature, ItemSequence) and feature.within is None


def _told(feature: ItemSequence) -> str:
    columns = excerpt(", ".join(feature.values_per_item))
    return (
        f"{columns}: the items have several values each, as the first {_ROWS:,} rows show; read with separator: "
        f"{feature.separator!r}, within: {feature.within!r}, values_per_item: {feature.values_per_item}"
    )


def _with_items(feature: ItemSequence, lists: Mapping[str, list[Any]]) -> ItemSequence:
    """Returns a feature with the settings that its columns' lists show, or the feature itself."""
    elements = {column: lists[column] for column in feature.columns if column in lists}
    are_nested = any(isinstance(element, list) for values in elements.values() for element in values)
    within = _free_sign(elements.values(), feature.separator) if are_nested else feature.separator
    if within is None:
        return feature
    most = {column: _most_values(values, within) for column, values in elements.items()}
    several = {column: min(count, MOST_VALUES) for column, count in most.items() if count > 1}
    if not several or any(feature.owner_of(column) != column for column in several):
        return feature
    separator = feature.separator if are_nested else _free_sign(elements.values(), within)
    if separator is None:
        return feature
    changes = {"separator": separator, "within": within, "values_per_item": several}
    return feature.model_copy(update=changes)


def _most_values(elements: Iterable[object], within: str) -> int:
    """Returns the largest number of values of an item."""
    counts = (len(each) if isinstance(each, list) else str(each).count(within) + 1 for each in elements)
    return max(counts, default=1)


def _free_sign(columns: Iterable[list[Any]], other: str) -> str | None:
    """Returns a character that occurs in no element and is not `other`; None if there is none."""
    elements = [each for values in columns for each in values]
    texts = [str(text) for each in elements for text in (each if isinstance(each, list) else [each])]
    free = (sign for sign in _SIGNS if sign not in other and other not in sign)
    return next((sign for sign in free if not any(sign in text for text in texts)), None)


def _first_lists(path: str, columns: set[str], encoding: str) -> dict[str, list[Any]]:
    """Returns the elements of the lists in a file's first rows, by column; empty for delimited text."""
    with input_errors(path):
        kind = columnar_of(stored_head(path))
    if kind:
        named = first_columns(kind, path, _ROWS)
        arrays = {name: named[name]() for name in columns if name in named}
        rows = {name: values.to_pylist() for name, values in arrays.items() if is_list(values.type)}
    else:
        objects = _first_objects(path, encoding)
        rows = {name: [row.get(name) for row in objects] for name in columns}
    return {
        name: [each for values in of_rows if isinstance(values, list) for each in values if each is not None]
        for name, of_rows in rows.items()
        if any(isinstance(values, list) for values in of_rows)
    }


def _first_objects(path: str, encoding: str) -> list[dict[str, Any]]:
    text = first_bytes(path, _BYTES, encoding)
    if is_json_array(text):
        objects = first_objects(path, text)[:_ROWS]
    elif is_json_lines(text):
        objects = text.split(b"\n", _ROWS)[:-1]
    else:
        return []
    parsed = []
    for each in objects:
        try:
            row = json.loads(each)
        except (ValueError, RecursionError):
            continue
        parsed += [dict(leaves(row))] if isinstance(row, dict) else []
    return parsed
