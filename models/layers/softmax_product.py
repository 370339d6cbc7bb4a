"""Softmax-weighted mean of values, with a gradient that reads the weights less often."""

from collections.abc import Callable

from keras import ops

from ctrpipe.models.base.tensors import Tensor


def softmax_product(scores: Tensor, values: Tensor) -> Tensor:
    """Returns `softmax(scores) values`, (..., n, width), in the values' type; the softmax is computed in float32.

    With weights A and output O = A V, the gradient of the scores is `A * (G Vᵀ - rowsum(G * O))` for an upstream
    gradient G. Automatic differentiation computes the equal rowsum(A * (G Vᵀ)) from two arrays of A's size, by far the
    largest arrays of an attention over many fields. G and O have the width of the values.

    Args:
        scores: (..., n, m).
        values: (..., m, width).

    References:
        Dao, Fu, Ermon, Rudra and Ré, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
        2022, appendix B.2.
    """
    last = len(scores.shape) - 1
    axes = (*range(last - 1), last, last - 1)

    @ops.custom_gradient
    def product(scores: Tensor, values: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, Tensor]]]:
        weights = ops.softmax(ops.cast(scores, "float32"), axis=-1)
        small = ops.cast(weights, values.dtype)
        mixed = ops.matmul(small, values)

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            upstream = arguments[0] if upstream is None else upstream
            mean = ops.sum(upstream * mixed, axis=-1, keepdims=True)
            difference = ops.matmul(upstream, ops.transpose(values, axes)) - mean
            by_scores = ops.cast(weights * ops.cast(difference, "float32"), scores.dtype)
            return by_scores, ops.matmul(ops.transpose(small, axes), upstream)

        return mixed, gradient

    return product(scores, values)
