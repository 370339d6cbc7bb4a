"""Finds histories that include the item of their own row if it was clicked, because they were built after the click."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.payload import plain


def held_items(histories: pa.Array, items: pa.Array, separator: str) -> dict[str, np.ndarray]:
    """Returns by position in the history whether it holds the row's own item, bool `[N]`.

    Args:
        histories: The items of each row in one text, binary `[N]`.
        items: The item of each row, binary `[N]`.
        separator: The separator between items.
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
    """Returns whether any element of each row is True, bool `[N]`; a row has at least one element."""
    held: np.ndarray = np.logical_or.reduceat(same, offsets[:-1]) if len(same) else np.zeros(len(offsets) - 1, bool)
    return held
