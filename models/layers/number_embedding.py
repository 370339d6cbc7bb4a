"""Nonlinear embeddings of numbers: AutoDis, and periodic functions."""

import math
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor

WAYS = ("periodic", "autodis")
SLOPE, SKIP = 0.01, 0.1  # of AutoDis: the leaky ReLU's slope, and α, the part of its input that a projection keeps


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumberEmbedding(keras.layers.Layer):
    """Embeds each number by a small network of its own.

    `periodic`: `e = relu(W v + b)`, `v = [sin(2π c_1 x) ... sin(2π c_k x), cos(2π c_1 x) ... cos(2π c_k x)]`, with
    learned frequencies c, initialised from a normal distribution with standard deviation `scale`.

    `autodis`: a mixture of `bins` learned vectors, `e = Σ_h p_h m_h`, `p = softmax(z / scale)`, `z = W h + α h`, `h =
    leaky_relu(w x)`, with α = 0.1.

    A negative number is missing, and has its own vector. The layer computes in float32, because an 8-bit number is too
    coarse, and returns the layer's compute type.

    Args:
        dim: int. Width of a vector.
        way: str. "periodic" or "autodis". Defaults to "periodic".
        bins: int. Number k of frequencies, or of vectors that AutoDis mixes. Defaults to 16.
        scale: float. Standard deviation of the initial frequencies, or the temperature of AutoDis. Defaults to 1.
        stddev: float. Standard deviation of the initial vectors. Defaults to 0.001.

    Example:
        >>> numbers = keras.random.uniform((2, 5))  # (batch_size, numbers)
        >>> keras.ops.shape(NumberEmbedding(dim=8)(numbers))  # (batch_size, numbers, dim)
        (2, 5, 8)

    Raises:
        ValueError: `way` is unknown, or `dim`, `bins` or `scale` is not positive.

    References:
        Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", 2022, equations 8 and 9,
        with a linear layer and ReLU of each number (PLR).
        Guo et al., "An Embedding Learning Framework for Numerical Features in CTR Prediction", 2021, equations 5 to 8.
    """

    def __init__(
        self,
        dim: int,
        way: str = "periodic",
        bins: int = 16,
        scale: float = 1.0,
        stddev: float = 0.001,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        require_positive(dim=dim, number_bins=bins)
        if not scale > 0:
            raise ValueError(f"`number_scale` should be positive. Received: number_scale={scale}")
        if way not in WAYS:
            raise ValueError(f"`number_embedding` should be one of {WAYS}. Received: {way!r}")
        self.dim = dim
        self.way = way
        self.bins = bins
        self.scale = scale
        self.stddev = stddev

    def build(self, input_shape: Shape) -> None:
        count, bins = input_shape[1], self.bins
        vectors = keras.initializers.RandomNormal(stddev=self.stddev)

        def uniform(inputs: int) -> keras.initializers.Initializer:
            return keras.initializers.RandomUniform(-1 / math.sqrt(inputs), 1 / math.sqrt(inputs))

        self.missing = self.add_weight(name="missing", shape=(count, self.dim), initializer=vectors)
        if self.way == "periodic":
            self.frequencies = self.add_weight(
                name="frequencies",
                shape=(count, bins),
                initializer=keras.initializers.RandomNormal(stddev=self.scale),
            )
            self.kernel = self.add_weight(
                name="kernel", shape=(count, 2 * bins, self.dim), initializer=uniform(2 * bins)
            )
            self.bias = self.add_weight(name="bias", shape=(count, self.dim), initializer=uniform(2 * bins))
        else:
            self.first = self.add_weight(name="first", shape=(count, bins), initializer=uniform(1))
            self.second = self.add_weight(name="second", shape=(count, bins, bins), initializer=uniform(bins))
            self.vectors = self.add_weight(name="vectors", shape=(count, bins, self.dim), initializer=vectors)

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, numbers) to (batch_size, numbers, dim)."""
        numbers = ops.expand_dims(ops.cast(inputs, "float32"), -1)
        rows = self._periodic(numbers) if self.way == "periodic" else self._mixed(numbers)
        return ops.cast(ops.where(numbers < 0, _wide(self.missing), rows), self.compute_dtype)

    def _periodic(self, numbers: Tensor) -> Tensor:
        angles = 2 * math.pi * _wide(self.frequencies) * numbers
        waves = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.relu(ops.einsum("nfk,fkd->nfd", waves, _wide(self.kernel)) + _wide(self.bias))

    def _mixed(self, numbers: Tensor) -> Tensor:
        hidden = ops.leaky_relu(_wide(self.first) * numbers, SLOPE)
        scores = ops.einsum("nfh,fhk->nfk", hidden, _wide(self.second)) + SKIP * hidden
        return ops.einsum("nfk,fkd->nfd", ops.softmax(scores / self.scale, axis=-1), _wide(self.vectors))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1], self.dim)

    def get_config(self) -> dict[str, Any]:
        return dict(
            super().get_config(), dim=self.dim, way=self.way, bins=self.bins, scale=self.scale, stddev=self.stddev
        )


def _wide(weight: keras.Variable) -> Tensor:
    return ops.cast(ops.convert_to_tensor(weight), "float32")
