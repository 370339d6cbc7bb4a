"""Selects places of a history: from the newest item on, or by the highest scores."""

from keras import ops

from ctrpipe.models.base.tensors import Tensor
from ctrpipe.models.layers.one_history import is_shared


def take_places(items: Tensor, places: Tensor) -> Tensor:
    """Returns the items at some places of each row: (batch_size, length, width) to (batch_size, k, width).

    Args:
        items: (batch_size, length, width), or (1, length, width) for all rows.
        places: int32 (batch_size, k), from 0 to length - 1.
    """
    if is_shared(places, items):
        return ops.take(items[0], places, axis=0)
    length, width = items.shape[1:]
    starts = ops.arange(ops.shape(items)[0], dtype="int32")[:, None] * length
    rows = ops.take(ops.reshape(items, (-1, width)), starts + places, axis=0)
    return ops.reshape(rows, (-1, places.shape[1], width))


def newest_first(items: Tensor, is_item: Tensor) -> Tensor:
    """Returns a history's items from the newest to the oldest, followed by zeros, (batch_size, length, width).

    The place of an item depends neither on padding nor on older items.

    Args:
        items: (batch_size, length, width), the newest item last, followed by padding.
        is_item: False for padding, bool (batch_size, length). It is also the mask of the result.
    """
    count = ops.sum(ops.cast(is_item, "int32"), axis=1, keepdims=True)
    places = ops.maximum(count - 1 - ops.arange(items.shape[1], dtype="int32")[None], 0)
    return ops.where(is_item[:, :, None], take_places(items, places), 0)


def best_places(scores: Tensor, is_wanted: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the places of the highest scores, int32 (batch_size, k), and whether each place is wanted.

    Args:
        scores: float32 (batch_size, length).
        is_wanted: Which places may be selected, bool (batch_size, length). If there are fewer than k, unwanted places
            follow them.
        count: Number k of places; reduced to the length if that is smaller.
    """
    masked = ops.where(is_wanted, ops.stop_gradient(scores), -1e30)
    best, places = ops.top_k(masked, min(count, scores.shape[1]), sorted=True)
    return ops.cast(places, "int32"), best > -1e30
