"""Places of a history: its newest items, or those that a search found."""

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
    """Returns a history's items from the newest to the oldest, with zeros behind them, (batch_size, length, width).

    At a place counted from the newest item an item stands whatever the padding is, and whatever older ones there are.

    Args:
        items: (batch_size, length, width), the newest last and padding behind it.
        is_item: Whether there is an item, bool (batch_size, length). It is true of the same places afterwards.
    """
    count = ops.sum(ops.cast(is_item, "int32"), axis=1, keepdims=True)
    places = ops.maximum(count - 1 - ops.arange(items.shape[1], dtype="int32")[None], 0)
    return ops.where(is_item[:, :, None], take_places(items, places), 0)


def best_places(scores: Tensor, is_wanted: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the places of the highest scores, int32 (batch_size, k), and whether each of them is wanted.

    Args:
        scores: float32 (batch_size, length).
        is_wanted: Which places may be found, bool (batch_size, length). Where there are fewer than k, others stand
            behind them.
        count: k; the length, if that is less.
    """
    masked = ops.where(is_wanted, ops.stop_gradient(scores), -1e30)
    best, places = ops.top_k(masked, min(count, scores.shape[1]), sorted=True)
    return ops.cast(places, "int32"), best > -1e30
