"""The compressed interaction network of xDeepFM."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="ctrpipe")
class CIN(keras.layers.Layer):
    """X^k_h = act(Σ_ij W^{k,h}_ij (X^{k-1}_i ∘ X^0_j)); the output is each map summed over the width, all layers.

    The weight of layer k has the shape (H_{k-1}, m, H_k), as the paper counts it, whatever the width of an embedding.
    The first layer's products are symmetric in i and j: it folds W_ij + W_ji and computes each pair once.

    Args:
        maps: H_k, the number of feature maps of each layer.
        split_half: Pools only the first half of each layer's maps but the last's, and passes only the second half on
            (the authors' code); otherwise all maps do both (the paper).
        activation: Activation of the maps; the paper finds the identity best.
        rank: L of W^{k,h} = U Vᵀ with U (H_{k-1}, L) and V (m, L), or None for full weights (equation 9).
        l2: λ of λ/2·‖W‖² on the weights (equation 17).

    References:
        Lian et al., "xDeepFM", 2018, equations 6 to 9.
    """

    def __init__(
        self,
        maps: Sequence[int] = (200, 200, 200),
        split_half: bool = False,
        activation: str = "linear",
        rank: int | None = None,
        l2: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not maps or min(maps) < 1:
            raise ValueError(f"`maps` should be positive numbers, one a layer. Received: maps={maps}")
        if split_half and any(count % 2 for count in maps[:-1]):
            raise ValueError(f"`maps` should be even before the last layer with split_half. Received: maps={maps}")
        if rank is not None and rank < 1:
            raise ValueError(f"`rank` should be positive or None. Received: rank={rank}")
        self.maps = tuple(maps)
        self.split_half = split_half
        self.activation = activation
        self.rank = rank
        self.l2 = l2
        self._act = keras.activations.get(activation)

    @property
    def output_maps(self) -> int:
        """Width of the output."""
        return sum(self.maps) if not self.split_half else sum(count // 2 for count in self.maps[:-1]) + self.maps[-1]

    def build(self, input_shape):
        fields, before = input_shape[1], input_shape[1]
        self.weights_of_layers = []
        for index, count in enumerate(self.maps):
            if self.rank is None:
                # Glorot's by the number of products and maps; Keras would take two axes for a receptive field.
                scale = (2 / (before * fields + count)) ** 0.5
                shapes = {"kernel": (before, fields, count)}
            else:
                scale = (1 / (before * fields * self.rank)) ** 0.25
                shapes = {"u": (before, count, self.rank), "v": (fields, count, self.rank)}
            self.weights_of_layers.append(
                [self._add_weight(f"{name}_{index}", shape, scale) for name, shape in shapes.items()]
            )
            before = count // 2 if self.split_half else count

    def _add_weight(self, name: str, shape: tuple[int, ...], scale: float):
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=keras.initializers.RandomNormal(stddev=scale),
            regularizer=keras.regularizers.L2(self.l2 / 2) if self.l2 else None,
        )

    def call(self, inputs, return_maps=False):
        """(batch_size, fields, dim) -> (batch_size, output_maps).

        With return_maps also the maps of every layer, (batch_size, H_k, dim) each.
        """
        fields, dim = inputs.shape[1], inputs.shape[2]
        # Fields first: products and GEMMs then run along the long axis of batch and width.
        x0 = ops.reshape(ops.transpose(inputs, (1, 0, 2)), (fields, -1))
        x, pools, all_maps = x0, [], []
        for index, weight in enumerate(self.weights_of_layers):
            maps = self._act(self._layer(index, weight, x, x0))
            all_maps.append(maps)
            last = index == len(self.maps) - 1
            half = self.maps[index] // 2 if self.split_half and not last else 0
            pooled, x = (maps[:half], maps[half:]) if half else (maps, maps)
            pools.append(ops.sum(ops.reshape(pooled, (pooled.shape[0], -1, dim)), axis=2))
        outputs = ops.transpose(ops.concatenate(pools, axis=0))
        if not return_maps:
            return outputs
        unpacked = [ops.transpose(ops.reshape(maps, (maps.shape[0], -1, dim)), (1, 0, 2)) for maps in all_maps]
        return outputs, unpacked

    def _layer(self, index, weight, x, x0):
        weight = [ops.cast(part, x0.dtype) for part in weight]
        if self.rank is not None:
            return _factorised(x, x0, *weight)
        if index == 0:
            return _symmetric(x0, weight[0])
        return _compress(x, x0, weight[0])

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.output_maps)

    def get_config(self):
        config = super().get_config()
        config.update(maps=self.maps, split_half=self.split_half, activation=self.activation, rank=self.rank)
        config.update(l2=self.l2)
        return config


def _compress(x, x0, kernel):
    """x (h, n), x0 (m, n), kernel (h, m, maps) -> (maps, n): one GEMM over all products.

    The products, by far the largest tensor of the model, are computed again in the backward pass instead of kept.
    """
    shape = (x.shape[0] * x0.shape[0], kernel.shape[2])

    def products(x, x0):
        return ops.reshape(ops.expand_dims(x, 1) * ops.expand_dims(x0, 0), (shape[0], -1))

    @ops.custom_gradient
    def compress(x, x0, kernel):
        flat = ops.reshape(kernel, shape)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            kernel_gradient = ops.matmul(products(x, x0), ops.transpose(upstream))
            by_product = ops.reshape(ops.matmul(flat, upstream), (x.shape[0], x0.shape[0], -1))
            x_gradient = ops.sum(by_product * ops.expand_dims(x0, 0), axis=1)
            x0_gradient = ops.sum(by_product * ops.expand_dims(x, 1), axis=0)
            return x_gradient, x0_gradient, ops.reshape(kernel_gradient, kernel.shape)

        return ops.matmul(ops.transpose(flat), products(x, x0)), gradient

    return compress(x, x0, kernel)


def _symmetric(x0, kernel):
    """_compress(x0, x0, kernel), every pair of fields computed once."""
    fields = x0.shape[0]
    first, second = (index.astype(np.int32) for index in np.triu_indices(fields))
    folded = kernel + ops.transpose(kernel, (1, 0, 2))
    flat = ops.reshape(folded, (fields * fields, -1))
    flat = ops.take(flat, first * fields + second, axis=0)
    once = np.where(first == second, 0.5, 1.0).reshape(-1, 1)
    flat = flat * ops.cast(once, flat.dtype)
    products = ops.take(x0, first, axis=0) * ops.take(x0, second, axis=0)
    return ops.matmul(ops.transpose(flat), products)


def _factorised(x, x0, u, v):
    """x (h, n), u (h, maps, rank), v (m, maps, rank) -> (maps, n), without any product of two fields."""
    maps, rank = u.shape[1], u.shape[2]
    left = ops.matmul(ops.transpose(ops.reshape(u, (-1, maps * rank))), x)
    right = ops.matmul(ops.transpose(ops.reshape(v, (-1, maps * rank))), x0)
    return ops.sum(ops.reshape(left * right, (maps, rank, -1)), axis=1)
