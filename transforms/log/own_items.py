"""Finds histories that hold the item of their own row where it was clicked: they were made after the click."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.payload import plain


def held_items(histories: pa.Array, items: pa.Array, separator: str) -> dict[str, np.ndarray]:
    """Returns where in the history of its own row an item is: bool `[N]` by the place.

    Args:
        histories: The items of each row in one text, binary `[N]`.
        items: The item of each row, binary `[N]`.
        separator: What stands between two items.
    """
    texts, own = (plain(values).cast(pa.binary()) for values in (histories, items))
    filled = pc.fill_null(texts, b"")
    elements = pc.split_pattern(filled, separator.encode())
    offsets = elements.offsets.to_numpy()
    flat = elements.flatten()
    known = np.asarray(pc.fill_null(pc.not_equal(filled, b""), False)) & np.asarray(own.is_valid())
    same = np.asarray(pc.fill_null(pc.equal(flat, own.take(pc.list_parent_indices(elements))), False))
    first, last = same[offsets[:-1]] & known, same[offsets[1:] - 1] & known
    return {"last element": last, "first element": first, "one of its elements": _any(same, offsets) & known}


def _any(same: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns whether one of the elements of each row is the same, bool `[N]`; a row has one element at least."""
    held: np.ndarray = np.logical_or.reduceat(same, offsets[:-1]) if len(same) else np.zeros(len(offsets) - 1, bool)
    return held
