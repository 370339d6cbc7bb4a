"""A stack of factorized interaction layers (FinalNet)."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.factorized_interaction import FactorizedInteraction
from ctrpipe.models.layers.tower import make_norm, rates_of_layers


@keras.saving.register_keras_serializable(package="ctrpipe")
class FactorizedBlock(keras.layers.Layer):
    """Factorized interaction layers with normalisation, activation and dropout.

    `h_l = dropout(act(norm(FactorizedInteraction_l(h_{l-1}))))`.

    Args:
        hidden_units: sequence of int. Widths of the layers. Defaults to (64, 64, 64).
        activation: str. Activation. Defaults to "linear".
        dropout: float or sequence of float. Dropout rate after each layer. Defaults to 0.
        normalization: str. "batch", "layer" or "none". Defaults to "batch".
        residual: str. See FactorizedInteraction. Defaults to "concat".

    Example:
        >>> block = FactorizedBlock((8, 4), normalization="layer")
        >>> keras.ops.shape(block(keras.random.normal((2, 6))))  # (batch_size, last width)
        (2, 4)

    Raises:
        ValueError: there is no layer, or an option is invalid.

    References:
        Zhu et al., "FINAL: Factorized Interaction Layer for CTR Prediction", 2023, section 2.2.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 64, 64),
        activation: str = "linear",
        dropout: float | Sequence[float] = 0.0,
        normalization: str = "batch",
        residual: str = "concat",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not hidden_units:
            raise ValueError("`hidden_units` should have at least one width. Received: hidden_units=()")
        policy = self.dtype_policy
        self.hidden_units = tuple(hidden_units)
        self.activation = activation
        self.dropout = dropout if isinstance(dropout, int | float) else tuple(dropout)
        self.normalization = normalization
        self.residual = residual
        rates = rates_of_layers(self.dropout, self.hidden_units)
        self.hidden = [FactorizedInteraction(units, residual, dtype=policy) for units in self.hidden_units]
        self.norms = [make_norm(normalization, policy) for _ in rates] if normalization != "none" else []
        self.act = keras.layers.Activation(activation, dtype=policy)
        self.drops = [keras.layers.Dropout(rate, dtype=policy) if rate else None for rate in rates]

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        for index, layer in enumerate(self.hidden):
            layer.build((None, width))
            width = layer.units
            if self.norms:
                self.norms[index].build((None, width))
        self.act.build((None, width))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, width) to (batch_size, last width)."""
        for index, layer in enumerate(self.hidden):
            inputs = layer(inputs)
            if self.norms:
                inputs = self.norms[index](inputs, training=training)
            inputs = self.act(inputs)
            drop = self.drops[index]
            if drop is not None:
                inputs = drop(inputs, training=training)
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.hidden_units[-1])

    def get_config(self) -> dict[str, Any]:
        names = ("hidden_units", "activation", "dropout", "normalization", "residual")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
