"""Computes derived columns of checked rows, for the statistics of the training rows.

Works on Arrow arrays and does not import TensorFlow. For packed rows and requests, the graph computes the values (see
`graph`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.derived.cross import BETWEEN, Cross
from ctrpipe.transforms.log.derived.derived import Derived
from ctrpipe.transforms.log.derived.expression import Expression
from ctrpipe.transforms.log.derived.formulas import NumpyOperations, evaluate, parse
from ctrpipe.transforms.log.derived.lookup import Lookup
from ctrpipe.transforms.log.derived.vector import VectorOf
from ctrpipe.transforms.log.derived.weighted import BEFORE, WeightedLists
from ctrpipe.transforms.log.payload import decoded
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import from_array
from ctrpipe.transforms.log.weighted import LARGEST, weight_pattern


def with_derived(rows: Mapping[str, pa.Array], columns: Sequence[str], spec: LogSpec) -> dict[str, pa.Array]:
    """Returns the given columns of rows, and computes the derived ones.

    Args:
        rows: The sources of all columns, as the payload has them; see `sources_of`.
        columns: The columns.
        spec: The description of the log.
    """
    return {name: derived_array(spec.derived[name], rows) if name in spec.derived else rows[name] for name in columns}


def sources_of(columns: Sequence[str], spec: LogSpec) -> list[str]:
    """Returns the log's columns that the given columns are computed from, each once."""
    made = (list(spec.derived[name].sources()) if name in spec.derived else [name] for name in columns)
    return list(dict.fromkeys(source for sources in made for source in sources))


def derived_array(derived: Derived, rows: Mapping[str, pa.Array]) -> pa.Array:
    """Returns a derived column, typed like a checked one: binary, float32 or a vector; null where it is missing."""
    columns = [rows[name] for name in derived.sources()]
    match derived:
        case Cross():
            texts = [decoded(column).cast(pa.binary()) for column in columns]
            return pc.binary_join_element_wise(*texts, BETWEEN.encode())
        case Expression():
            numbers = [_floats(column).astype(np.float64) for column in columns]
            formula = parse(derived.of)
            with np.errstate(all="ignore"):
                result = evaluate(formula, dict(zip(formula.columns, numbers, strict=True)), NumpyOperations())
                known = np.broadcast_to(result, len(columns[0])).astype(np.float32)
            return pa.array(known, mask=~np.isfinite(known))
        case Lookup():
            return _looked_up(derived, *columns)
        case VectorOf():
            vectors = np.stack([_floats(column) for column in columns], axis=1)
            return from_array(vectors, np.isfinite(vectors).all(axis=1))
        case WeightedLists():
            return _weighted(derived, *columns)
    raise AssertionError(derived)


def _floats(column: pa.Array) -> np.ndarray:
    floats: np.ndarray = column.fill_null(float("nan")).to_numpy(zero_copy_only=False).astype(np.float32)
    return floats


def _weighted(made: WeightedLists, values: pa.Array, weights: pa.Array) -> pa.Array:
    values, weights = (decoded(column).cast(pa.binary()) for column in (values, weights))
    names, numbers = (pc.split_pattern(column.fill_null(b""), made.separator) for column in (values, weights))
    pairs = pc.binary_join_element_wise(pc.list_flatten(names), pc.list_flatten(numbers), BEFORE.encode())
    joined = pc.binary_join(pa.ListArray.from_arrays(_offsets(names), pairs), made.separator.encode())
    return pc.replace_with_mask(joined, values.is_null(), pa.scalar(None, joined.type))


def _offsets(lists: pa.Array) -> pa.Array:
    return pa.array(np.append(0, np.cumsum(pc.list_value_length(lists).to_numpy())), pa.int32())


def _looked_up(lookup: Lookup, keys: pa.Array, maps: pa.Array) -> pa.Array:
    keys, maps = (decoded(column).cast(pa.binary()) for column in (keys, maps))
    lists = pc.split_pattern(maps.fill_null(b""), lookup.separator)
    parents = pc.list_parent_indices(lists).to_numpy()
    elements, pattern = pc.list_flatten(lists), weight_pattern(lookup.weights)
    names = pc.replace_substring_regex(elements, pattern, r"\1")
    is_entry = pc.match_substring_regex(elements, pattern)
    is_match = pc.and_(pc.equal(names, keys.take(pa.array(parents))), is_entry).fill_null(False)
    places = np.flatnonzero(is_match.to_numpy(zero_copy_only=False))
    rows, first = np.unique(parents[places], return_index=True)
    texts = pc.replace_substring_regex(elements.take(pa.array(places[first])), pattern, r"\2")
    looked_up = texts.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    numbers = np.full(len(keys), np.nan, np.float32)
    numbers[rows] = np.clip(looked_up, -LARGEST, LARGEST)
    return pa.array(numbers, mask=np.isnan(numbers))
