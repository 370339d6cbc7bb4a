"""The multilayer perceptron at the end of most models."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class Tower(keras.layers.Layer):
    """A multilayer perceptron: dense layers with an activation and dropout, then one linear layer.

    `h_l = dropout(act(W_l h_{l-1} + b_l))`, `output = W h_L + b`.

    Args:
        hidden_units: sequence of int. Widths of the hidden layers.
        outputs: int. Width of the linear layer (logits); None to end with the last hidden layer. Defaults to 1.
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on every kernel. Defaults to 0.

    Example:
        >>> inputs = keras.random.normal((2, 10))  # (batch_size, width)
        >>> keras.ops.shape(Tower((8, 4), outputs=1)(inputs))
        (2, 1)

    Raises:
        ValueError: there are neither hidden layers nor outputs.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        outputs: int | None = 1,
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not hidden_units and outputs is None:
            raise ValueError("`hidden_units` should not be empty if there are no logits. Received: hidden_units=()")
        self.hidden_units = tuple(hidden_units)
        self.outputs = outputs
        self.activation = activation
        self.dropout = dropout
        self.l2 = l2

        def dense(units: int, kind: str | None) -> keras.layers.Dense:
            # Keras's L2(λ) is λ‖W‖².
            regularizer = keras.regularizers.L2(l2 / 2) if l2 else None
            return keras.layers.Dense(units, kind, kernel_regularizer=regularizer, dtype=self.dtype_policy)

        self.hidden = [dense(units, activation) for units in self.hidden_units]
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy) if dropout else None
        self.logits = None if outputs is None else dense(outputs, None)

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        for layer in self.hidden:
            layer.build((None, width))
            width = layer.units
        if self.logits is not None:
            self.logits.build((None, width))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, width) to (batch_size, outputs); without `outputs`, to the last hidden layer's width."""
        for layer in self.hidden:
            inputs = layer(inputs)
            if self.drop:
                inputs = self.drop(inputs, training=training)
        return inputs if self.logits is None else self.logits(inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.hidden_units[-1] if self.outputs is None else self.outputs)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        names = ("hidden_units", "outputs", "activation", "dropout", "l2")
        config.update({name: getattr(self, name) for name in names})
        return config
