"""A gate between 0 and 2, computed from a prior (PEPNet)."""

from typing import Any

import keras

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class GateNetwork(keras.layers.Layer):
    """Gate neural unit: `2 sigmoid(W_2 relu(W_1 x + b_1) + b_2)`.

    Args:
        outputs: int. Width of the gate.
        units: int. Width of the hidden layer. Defaults to 64.

    Example:
        >>> keras.ops.shape(GateNetwork(outputs=3)(keras.random.normal((2, 6))))  # (batch_size, outputs)
        (2, 3)

    Raises:
        ValueError: a size is not positive.

    References:
        Chang et al., "PEPNet: Parameter and Embedding Personalized Network for Infusing with Personalized Prior
        Information", 2023, equations 1 and 2.
    """

    def __init__(self, outputs: int, units: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(outputs=outputs, units=units)
        self.outputs = outputs
        self.units = units
        self.hidden = keras.layers.Dense(units, "relu", dtype=self.dtype_policy, name="hidden")
        self.gate = keras.layers.Dense(outputs, "sigmoid", dtype=self.dtype_policy, name="gate")

    def build(self, input_shape: Shape) -> None:
        self.hidden.build(input_shape)
        self.gate.build((None, self.units))

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, width) to (batch_size, outputs)."""
        return 2.0 * self.gate(self.hidden(inputs))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.outputs)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), outputs=self.outputs, units=self.units)
