"""Bridge between parallel networks (EDCN)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor

KINDS = ("product", "sum", "concat", "attention")


@keras.saving.register_keras_serializable(package="ctrpipe")
class Bridge(keras.layers.Layer):
    """Joins the states of two parallel networks after a layer of each.

    "product": `x ∘ y`; "sum": `x + y`; "concat": `relu(W [x, y] + b)`; "attention": `a(x) ∘ x + a(y) ∘ y` with `a(v) =
    softmax(V relu(U v + c))`.

    Args:
        kind: str. One of the kinds above. Defaults to "product".

    Example:
        >>> x = keras.random.normal((2, 6))  # (batch_size, width)
        >>> keras.ops.shape(Bridge("concat")(x, x))
        (2, 6)

    Raises:
        ValueError: `kind` is unknown.

    References:
        Chen et al., "Enhancing Explicit and Implicit Feature Interactions via Information Sharing for Parallel Deep CTR
        Models", 2021, section 3.3.
    """

    def __init__(self, kind: str = "product", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind not in KINDS:
            raise ValueError(f"`bridge` should be one of {KINDS}. Received: {kind!r}")
        self.kind = kind

    def build(self, first_shape: Shape, second_shape: Shape | None = None) -> None:
        width, policy = first_shape[-1], self.dtype_policy
        if self.kind == "concat":
            self.join = keras.layers.Dense(width, "relu", dtype=policy, name="join")
            self.join.build((None, 2 * width))
        if self.kind == "attention":
            self.hidden = keras.layers.Dense(width, "relu", dtype=policy, name="hidden")
            self.score = keras.layers.Dense(width, use_bias=False, dtype=policy, name="score")
            self.hidden.build(first_shape)
            self.score.build(first_shape)

    def call(self, first: Tensor, second: Tensor) -> Tensor:
        """Maps (batch_size, width) twice to (batch_size, width)."""
        if self.kind == "product":
            return first * second
        if self.kind == "sum":
            return first + second
        if self.kind == "concat":
            return self.join(ops.concatenate([first, second], axis=1))
        return self._attended(first) + self._attended(second)

    def _attended(self, states: Tensor) -> Tensor:
        weights = ops.softmax(ops.cast(self.score(self.hidden(states)), "float32"), axis=1)
        return ops.cast(weights, states.dtype) * states

    def compute_output_shape(self, first_shape: Shape, second_shape: Shape) -> Shape:
        return first_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), kind=self.kind)
