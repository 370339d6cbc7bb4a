"""A gated recurrent unit with an update gate scaled by attention (AUGRU of DIEN)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class AttentionalGRU(keras.layers.Layer):
    """A GRU over a history whose update gate is scaled by the attention to each item.

    `u = σ(W_u x + U_u h + b_u)`, `r = σ(W_r x + U_r h + b_r)`, `c = tanh(W_c x + r ∘ U_c h + b_c)`,
    `h' = (1 - a u) ∘ h + a u ∘ c`, from h = 0. With the attention a = 1 this is a GRU. With a = 0, as for padding, an
    item leaves the state unchanged.

    Args:
        units: int. Width of the state.

    Example:
        >>> items, attention = keras.random.normal((2, 5, 4)), keras.ops.ones((2, 5))
        >>> keras.ops.shape(AttentionalGRU(3)(items, attention))  # the state after each item
        (2, 5, 3)

    Raises:
        ValueError: `units` is not positive.

    References:
        Zhou et al., "Deep Interest Evolution Network for Click-Through Rate Prediction", 2019, sections "Interest
        Extractor Layer" and "Interest Evolving Layer".
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(units=units)
        self.units = units

    def build(self, items_shape: Shape, attention_shape: Shape | None = None) -> None:
        self.kernel = self.add_weight(name="kernel", shape=(items_shape[-1], 3 * self.units))
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=(self.units, 3 * self.units),
            initializer=keras.initializers.Orthogonal(),
        )
        self.bias = self.add_weight(name="bias", shape=(3 * self.units,), initializer="zeros")

    def call(self, items: Tensor, attention: Tensor) -> Tensor:
        """Maps (batch_size, length, width), float (batch_size, length) to (batch_size, length, units).

        The last axis of the weights holds the parts of u, r and c. All items are projected at once, before the loop.
        """
        length, units = items.shape[1], self.units
        kernel = ops.cast(self.recurrent_kernel, items.dtype)
        projected = ops.matmul(items, ops.cast(self.kernel, items.dtype)) + ops.cast(self.bias, items.dtype)
        weights = ops.cast(attention, items.dtype)
        state = ops.zeros_like(projected[:, 0, :units])
        states = []
        for place in range(length):  # a Python loop: XLA cannot compile the gradient of Keras's scan
            past = ops.matmul(state, kernel)
            gates = ops.sigmoid(projected[:, place, : 2 * units] + past[:, : 2 * units])
            update = weights[:, place, None] * gates[:, :units]
            new = ops.tanh(projected[:, place, 2 * units :] + gates[:, units:] * past[:, 2 * units :])
            state = (1 - update) * state + update * new
            states.append(state)
        return ops.stack(states, axis=1)

    def compute_output_shape(self, items_shape: Shape, attention_shape: Shape) -> Shape:
        return (items_shape[0], items_shape[1], self.units)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), units=self.units)
