"""A dense layer with products of its own outputs (FinalNet)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor

RESIDUALS = ("concat", "sum")


@keras.saving.register_keras_serializable(package="ctrpipe")
class FactorizedInteraction(keras.layers.Layer):
    """A dense layer that multiplies one half of its outputs by the other.

    `[h_2; h_1] = W x + b`, `output = [h_2, h_1 ∘ h_2]` ("concat") or `h_2 + h_1 ∘ h_2` ("sum").

    Args:
        units: int. Width of the output; even for "concat". Defaults to 64.
        residual: str. "concat" or "sum". Defaults to "concat".

    Example:
        >>> keras.ops.shape(FactorizedInteraction(units=4)(keras.random.normal((2, 6))))  # (batch_size, units)
        (2, 4)

    Raises:
        ValueError: `units` is not positive, or odd for "concat", or `residual` is unknown.

    References:
        Zhu et al., "FINAL: Factorized Interaction Layer for CTR Prediction", 2023, equations 4 and 5.
    """

    def __init__(self, units: int = 64, residual: str = "concat", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(units=units)
        if residual not in RESIDUALS:
            raise ValueError(f"`residual` should be one of {RESIDUALS}. Received: {residual!r}")
        if residual == "concat" and units % 2:
            raise ValueError(f"`hidden_units` should be even for residual='concat'. Received: {units}")
        self.units = units
        self.residual = residual
        width = units if residual == "concat" else 2 * units
        self.dense = keras.layers.Dense(width, dtype=self.dtype_policy, name="dense")

    def build(self, input_shape: Shape) -> None:
        self.dense.build(input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, width) to (batch_size, units)."""
        second, first = ops.split(self.dense(inputs), 2, axis=-1)
        products = first * second
        return ops.concatenate([second, products], axis=-1) if self.residual == "concat" else second + products

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), units=self.units, residual=self.residual)
