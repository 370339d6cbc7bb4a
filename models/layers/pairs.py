"""The pairs of fields i < j, in the order (0, 1), (0, 2), ..., (1, 2), ..."""

from collections.abc import Callable

import numpy as np
from keras import ops

from ctrpipe.models.base.tensors import Tensor


def pair_indices(fields: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and the second field of every pair, int32 (fields * (fields - 1) / 2,) each."""
    first, second = np.triu_indices(fields, k=1)
    return first.astype(np.int32), second.astype(np.int32)


def upper_triangle(matrix: Tensor) -> Tensor:
    """Returns the entries above the diagonal: (batch_size, fields, fields) to (batch_size, pairs).

    The gradient is a gather; the gradient of `ops.take` is a scatter, several times slower on a CPU.
    """
    fields = matrix.shape[1]
    first, second = pair_indices(fields)
    chosen = first * fields + second
    # The index of each entry's gradient; entries that are not chosen point to an appended zero.
    origin = np.full(fields * fields, len(chosen), np.int32)
    origin[chosen] = np.arange(len(chosen))

    @ops.custom_gradient
    def choose(values: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        def gradient(*arguments: Tensor, upstream: Tensor = None) -> Tensor:
            upstream = arguments[0] if upstream is None else upstream
            padded = ops.pad(upstream, ((0, 0), (0, 1)))
            return ops.take(padded, origin, axis=1)

        return ops.take(values, chosen, axis=1), gradient

    return choose(ops.reshape(matrix, (-1, fields * fields)))
