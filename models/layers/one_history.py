"""Sums over the items of a history, which may be one per row or shared by all candidates."""

from keras import ops

from ctrpipe.models.base.tensors import Tensor


def is_shared(candidate: Tensor, items: Tensor) -> bool:
    """Returns whether many candidates share one history.

    Args:
        candidate: (batch_size, ...).
        items: (batch_size, ...), or (1, ...) for all candidates.
    """
    return bool(items.shape[0] == 1 and candidate.shape[0] != 1)


def inner_products(candidate: Tensor, items: Tensor) -> Tensor:
    """Returns the inner products of a candidate and each item of its history, (batch_size, length).

    Args:
        candidate: (batch_size, width).
        items: (batch_size, length, width), or (1, length, width) for all candidates.
    """
    if is_shared(candidate, items):
        return ops.matmul(candidate, ops.transpose(items[0]))
    return ops.sum(candidate[:, None] * items, axis=2)


def weighted_sum(weights: Tensor, items: Tensor) -> Tensor:
    """Returns the weighted sum of a history's items, (batch_size, width).

    Args:
        weights: (batch_size, length).
        items: (batch_size, length, width), or (1, length, width) for all rows.
    """
    if is_shared(weights, items):
        return ops.matmul(weights, items[0])
    return ops.sum(weights[:, :, None] * items, axis=1)
