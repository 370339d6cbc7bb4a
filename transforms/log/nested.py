"""Fields of nested values: `ad.campaign` names the field `campaign` of the column `ad`.

A column whose own name contains dots takes precedence over a field of that name. A field of the objects in a list is
the list of their values: for `items: [{id: 1}, {id: 2}]`, the column `items.id` is the list 1, 2.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.payload import plain

DOT = "."
ABSENT = object()  # what `field_of` returns for a field that an object lacks


# Objects of JSON -----------------------------------------------------------------------------------------------------


def field_of(values: object, name: str) -> Any:
    """Returns a field of an object; None if an object on the path is null or lacks the field, ABSENT if there is no
    path.
    """
    if isinstance(values, list):
        fields = [field_of(value, name) for value in values if value is not None]
        if all(each is ABSENT for each in fields):
            return None if not fields else ABSENT
        return [None if each is ABSENT else each for each in fields]
    if not isinstance(values, dict):
        return ABSENT
    if name in values:
        return values[name]
    place = name.find(DOT)
    while place > 0:
        inner = values.get(name[:place], ABSENT)
        if inner is None:
            return None
        if inner is not ABSENT and (field := field_of(inner, name[place + 1 :])) is not ABSENT:
            return field
        place = name.find(DOT, place + 1)
    return ABSENT


def values_named(values: object, name: str) -> Iterator[Any]:
    """Yields the values of an object that a name names, without those in lists: its own key's first."""
    if not isinstance(values, dict):
        return
    if name in values:
        yield values[name]
    place = name.find(DOT)
    while place > 0:
        yield from values_named(values.get(name[:place]), name[place + 1 :])
        place = name.find(DOT, place + 1)


def no_object_on_path(values: object, name: str) -> tuple[str, Any] | None:
    """Returns the path and the value of a text, a number or a truth value that lies where a field needs an object.

    None if there is none: the objects on the path are there, null, an empty text, or lack the field.
    """
    if values is None or values == "":
        return None
    if isinstance(values, list):
        return next(filter(None, (no_object_on_path(value, name) for value in values)), None)
    if not isinstance(values, dict):
        return "", values
    place = name.find(DOT)
    while place > 0:
        if below := no_object_on_path(values.get(name[:place]), name[place + 1 :]):
            return DOT.join(filter(None, (name[:place], below[0]))), below[1]
        place = name.find(DOT, place + 1)
    return None


def leaves(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the names and values of an object's fields, with the fields of nested objects in place of the objects."""
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{name}{DOT}")
        elif isinstance(value, list) and any(isinstance(element, dict) for element in value):
            inner = dict.fromkeys(leaf for element in value if isinstance(element, dict) for leaf, _ in leaves(element))
            for leaf in inner:
                yield f"{name}{DOT}{leaf}", field_of(value, leaf)
        else:
            yield name, value


# Arrow ---------------------------------------------------------------------------------------------------------------


def leaf_names(fields: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    """Yields the names of columns, with the fields of structs, and of lists of structs, in place of the columns."""
    for field in fields:
        name, inner = f"{before}{field.name}", _struct_of(field.type)
        if inner is not None and inner.num_fields:
            yield from leaf_names(inner, f"{name}{DOT}")
        else:
            yield name


def root_of(schema: pa.Schema, name: str) -> str | None:
    """Returns the column of a file that contains the values of a name; None if there is none."""
    if name in schema.names:
        return name
    place = name.find(DOT)
    while place > 0:
        root = name[:place]
        if schema.names.count(root) == 1 and _has(schema.field(root).type, name[place + 1 :]):
            return root
        place = name.find(DOT, place + 1)
    return None


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Returns the values of a column, or of a field of a column, in the plainest type.

    Raises:
        KeyError: there is no such column.
    """
    root = root_of(batch.schema, name)
    if root is None:
        raise KeyError(name)
    values = plain(batch.column(root))
    return values if root == name else _field(values, name[len(root) + 1 :])


def _struct_of(kind: pa.DataType) -> pa.StructType | None:
    """Returns the struct type of a column of structs or of lists of them; None for any other column."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_map(kind):
        return None
    while _is_list(kind):
        kind = kind.value_type
    return kind if pa.types.is_struct(kind) else None


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    return any(is_kind(kind) for is_kind in tests)


def _has(kind: pa.DataType, name: str) -> bool:
    inner = _struct_of(kind)
    if inner is None:
        return False
    return _place(inner, name) is not None


def _place(kind: pa.StructType, name: str) -> int | None:
    """Returns the index of the field that a name names or lies in; None if there is none."""
    for place, field in enumerate(kind):
        inside = name.startswith(f"{field.name}{DOT}") and _has(field.type, name[len(field.name) + 1 :])
        if field.name == name or inside:
            return place
    return None


def _field(values: pa.Array, name: str) -> pa.Array:
    """Returns a field of structs, or of the structs in lists; null where a struct is null."""
    if _is_list(values.type):
        return _in_lists(values, name)
    place = _place(values.type, name)
    assert place is not None
    inner = plain(pc.struct_field(values, [place]))  # unlike Array.field, null where the struct is
    rest = name[len(values.type[place].name) + 1 :]
    return _field(inner, rest) if rest else inner


def _in_lists(values: pa.Array, name: str) -> pa.Array:
    """Replaces the structs in lists by one of their fields. A null list becomes an empty list."""
    inner = _field(plain(pc.list_flatten(values)), name)
    sizes = np.bincount(pc.list_parent_indices(values).to_numpy(), minlength=len(values))
    ends = np.append(0, np.cumsum(sizes))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner)
