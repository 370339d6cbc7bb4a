"""A block whose input is multiplied by a mask computed from all features (MaskNet)."""

from typing import Any

import keras

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm

EPSILON = 1e-5


@keras.saving.register_keras_serializable(package="ctrpipe")
class MaskBlock(keras.layers.Layer):
    """Multiplies its input by an instance-guided mask, then a dense layer with layer normalisation.

    `output = act(LayerNorm(W (mask ∘ h)))` with `mask = W_2 relu(W_1 x + b_1) + b_2`.

    Args:
        units: int. Width of the output. Defaults to 64.
        reduction: float. Width of the mask's hidden layer, divided by the width of h. Defaults to 1.
        activation: str. Activation of the output. Defaults to "relu".
        normalises: bool. Whether there is a layer normalisation. Defaults to True.
        dropout: float. Dropout rate of the output. Defaults to 0.

    Example:
        >>> features, states = keras.random.normal((2, 6)), keras.random.normal((2, 5))  # (batch_size, width)
        >>> keras.ops.shape(MaskBlock(units=3)(features, states))
        (2, 3)

    Raises:
        ValueError: `units` or `reduction` is not positive.

    References:
        Wang et al., "MaskNet: Introducing Feature-Wise Multiplication to CTR Ranking Models by Instance-Guided Mask",
        2021, equations 5 to 9.
    """

    def __init__(
        self,
        units: int = 64,
        reduction: float = 1.0,
        activation: str = "relu",
        normalises: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(units=units)
        if not reduction > 0:
            raise ValueError(f"`reduction` should be positive. Received: reduction={reduction}")
        policy = self.dtype_policy
        self.units = units
        self.reduction = reduction
        self.activation = activation
        self.normalises = normalises
        self.dropout = dropout
        self.hidden = keras.layers.Dense(units, use_bias=False, dtype=policy, name="hidden")
        self.norm = LayerNorm(epsilon=EPSILON, dtype=policy, name="norm") if normalises else None
        self.act = keras.layers.Activation(activation, dtype=policy)
        self.drop = keras.layers.Dropout(dropout, dtype=policy) if dropout else None

    def build(self, features_shape: Shape, states_shape: Shape | None = None) -> None:
        assert states_shape is not None
        width, policy = states_shape[-1], self.dtype_policy
        self.widen = keras.layers.Dense(max(1, int(width * self.reduction)), "relu", dtype=policy, name="widen")
        self.mask = keras.layers.Dense(width, dtype=policy, name="mask")
        self.widen.build(features_shape)
        self.mask.build((None, self.widen.units))
        self.hidden.build(states_shape)
        if self.norm is not None:
            self.norm.build((None, self.units))
        self.act.build((None, self.units))

    def call(self, features: Tensor, states: Tensor, training: bool | None = None) -> Tensor:
        """Maps the features x, (batch_size, width), and h, (batch_size, own width), to (batch_size, units)."""
        outputs = self.hidden(self.mask(self.widen(features)) * states)
        if self.norm is not None:
            outputs = self.norm(outputs)
        outputs = self.act(outputs)
        return self.drop(outputs, training=training) if self.drop else outputs

    def compute_output_shape(self, features_shape: Shape, states_shape: Shape) -> Shape:
        return (features_shape[0], self.units)

    def get_config(self) -> dict[str, Any]:
        names = ("units", "reduction", "activation", "normalises", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
