"""The multilayer perceptron at the end of most models, with its normalisation."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm

NORMALIZATIONS = ("none", "batch", "layer")
PLACES = ("before", "after")  # of the activation
# PyTorch's numbers, with which the published settings were found. Keras's 0.99 needs hundreds of steps to forget the
# initial statistics.
MOMENTUM, EPSILON = 0.9, 1e-5


@keras.saving.register_keras_serializable(package="ctrpipe")
class Tower(keras.layers.Layer):
    """A multilayer perceptron: dense layers with normalisation, activation and dropout, then one linear layer.

    `h_l = dropout(act(norm(W_l h_{l-1} + b_l)))`, `output = W h_L + b`. Before batch normalisation there is no `b_l`,
    because the normalisation has a shift of its own.

    Batch normalisation uses the mean and the variance of a training batch, over all devices of the training. Outside
    training it uses their moving averages, so a row's output does not depend on the other rows.

    Args:
        hidden_units: sequence of int. Widths of the hidden layers.
        outputs: int. Width of the linear layer (logits); None to end with the last hidden layer. Defaults to 1.
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer, or one rate for each.
            Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on every kernel. Defaults to 0.
        normalization: str. "batch", "layer" or "none": normalisation of each hidden layer. Defaults to "none".
        place: str. Whether the normalisation comes "before" or "after" the activation. Defaults to "before".

    Example:
        >>> inputs = keras.random.normal((2, 10))  # (batch_size, width)
        >>> keras.ops.shape(Tower((8, 4), outputs=1)(inputs))
        (2, 1)

    Raises:
        ValueError: there are neither hidden layers nor outputs, `normalization` or `place` is unknown, or the number of
            dropout rates differs from the number of hidden layers.
    """

    def __init__(
        self,
        hidden_units: Sequence[int],
        outputs: int | None = 1,
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        normalization: str = "none",
        place: str = "before",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not hidden_units and outputs is None:
            raise ValueError("`hidden_units` should not be empty if there are no logits. Received: hidden_units=()")
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"`normalization` should be one of {NORMALIZATIONS}. Received: {normalization!r}")
        if place not in PLACES:
            raise ValueError(f"`normalization_place` should be one of {PLACES}. Received: {place!r}")
        self.hidden_units = tuple(hidden_units)
        self.outputs = outputs
        self.activation = activation
        self.dropout = dropout if isinstance(dropout, int | float) else tuple(dropout)
        self.l2 = l2
        self.normalization = normalization
        self.place = place
        rates = rates_of_layers(self.dropout, self.hidden_units)
        policy = self.dtype_policy

        def dense(units: int, kind: str | None, use_bias: bool = True) -> keras.layers.Dense:
            # Keras's L2(λ) is λ‖W‖².
            regularizer = keras.regularizers.L2(l2 / 2) if l2 else None
            return keras.layers.Dense(units, kind, use_bias, kernel_regularizer=regularizer, dtype=policy)

        between = normalization != "none" and place == "before"
        # Batch normalisation would subtract the bias again; without a gradient, Adam would move it by noise alone.
        has_bias = not (between and normalization == "batch")
        self.hidden = [dense(units, None if between else activation, has_bias) for units in self.hidden_units]
        self.norms = [] if normalization == "none" else [make_norm(normalization, policy) for _ in rates]
        self.activate = keras.layers.Activation(activation, dtype=policy) if between and self.hidden else None
        # One layer for each rate: its generator draws another mask at each call.
        drops = {rate: keras.layers.Dropout(rate, dtype=policy) for rate in dict.fromkeys(rates) if rate}
        self.drops = [drops.get(rate) for rate in rates]
        self.logits = None if outputs is None else dense(outputs, None)

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        for index, layer in enumerate(self.hidden):
            layer.build((None, width))
            width = layer.units
            if self.norms:
                self.norms[index].build((None, width))
        if self.activate is not None:
            self.activate.build((None, width))
        if self.logits is not None:
            self.logits.build((None, width))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, width) to (batch_size, outputs); without `outputs`, to the last hidden layer's width."""
        for index, layer in enumerate(self.hidden):
            inputs = layer(inputs)
            if self.norms:
                inputs = self.norms[index](inputs, training=training)
            if self.activate is not None:
                inputs = self.activate(inputs)
            drop = self.drops[index]
            if drop is not None:
                inputs = drop(inputs, training=training)
        return inputs if self.logits is None else self.logits(inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.hidden_units[-1] if self.outputs is None else self.outputs)

    def get_config(self) -> dict[str, Any]:
        names = ("hidden_units", "outputs", "activation", "dropout", "l2", "normalization", "place")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})


def rates_of_layers(dropout: float | Sequence[float], hidden_units: Sequence[int]) -> list[float]:
    """Returns the dropout rate of each hidden layer.

    Raises:
        ValueError: the number of rates differs from the number of hidden layers.
    """
    if isinstance(dropout, int | float):
        return [dropout] * len(hidden_units)
    if len(dropout) != len(hidden_units):
        raise ValueError(
            f"`dropout` should have one rate for each of the {len(hidden_units)} hidden layers. Received: "
            f"{list(dropout)}"
        )
    return list(dropout)


def make_norm(kind: str, policy: Any) -> keras.layers.Layer:
    """Returns a layer that normalises (batch_size, width).

    Args:
        kind: "batch" or "layer".
        policy: Its dtype policy.

    Raises:
        ValueError: `kind` is unknown.
    """
    if kind not in NORMALIZATIONS[1:]:
        raise ValueError(f"`normalization` should be one of {NORMALIZATIONS}. Received: {kind!r}")
    if kind == "layer":
        return LayerNorm(epsilon=EPSILON, dtype=policy)
    # Sums the statistics over the devices of a strategy, which only TensorFlow has; JAX computes with whole batches.
    of_devices = keras.backend.backend() == "tensorflow"
    return keras.layers.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON, synchronized=of_devices, dtype=policy)


def has_batch_statistics(model: keras.Model) -> bool:
    """Returns whether a model normalises with the statistics of a training batch."""
    return any(isinstance(layer, keras.layers.BatchNormalization) for layer in model._flatten_layers())
