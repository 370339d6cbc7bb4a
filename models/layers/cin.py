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
        products = fields * max(fields, *self.maps)
        self._block_rows = max(1, _block_bytes() // (4 * products * input_shape[2]))
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
        # Blocks of a few rows, fields first: a block's products stay in a cache, GEMMs run along batch and width.
        batch = ops.shape(inputs)[0]
        blocks = batch // self._block_rows + 1
        rows = (batch + blocks - 1) // blocks
        x0 = ops.pad(inputs, ((0, blocks * rows - batch), (0, 0), (0, 0)))
        x0 = ops.transpose(ops.reshape(x0, (blocks, rows, fields, dim)), (0, 2, 1, 3))
        x0 = ops.reshape(x0, (blocks, fields, rows * dim))
        x, pools, all_maps = x0, [], []
        for index, weight in enumerate(self.weights_of_layers):
            maps = self._act(self._layer(index, weight, x, x0))
            all_maps.append(maps)
            last = index == len(self.maps) - 1
            half = self.maps[index] // 2 if self.split_half and not last else 0
            pooled, x = (maps[:, :half], maps[:, half:]) if half else (maps, maps)
            pools.append(ops.sum(ops.reshape(pooled, (blocks, pooled.shape[1], rows, dim)), axis=3))
        outputs = _rows_first(ops.concatenate(pools, axis=1))[:batch]
        if not return_maps:
            return outputs
        unpacked = [_rows_first(ops.reshape(maps, (blocks, maps.shape[1], rows, dim)))[:batch] for maps in all_maps]
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


def _block_bytes() -> int:
    """What the products of a block may take: a share of a CPU's cache, or enough to fill an accelerator."""
    on_cpu = all(device.startswith("cpu") for device in keras.distribution.list_devices())
    return (4 if on_cpu else 512) * 2**20


def _rows_first(blocks):
    """(blocks, maps, rows, ...) -> (blocks * rows, maps, ...)."""
    axes = (0, 2, 1, *range(3, len(blocks.shape)))
    return ops.reshape(ops.transpose(blocks, axes), (-1, blocks.shape[1], *blocks.shape[3:]))


def _compress(x, x0, kernel):
    """x (blocks, h, n), x0 (blocks, m, n), kernel (h, m, maps) -> (blocks, maps, n): one GEMM a block.

    The products, by far the largest tensor of the model, exist for one block at a time, and are computed again in the
    backward pass instead of kept.
    """
    before, fields, maps = kernel.shape

    def products(x, x0):
        return ops.reshape(ops.expand_dims(x, 1) * ops.expand_dims(x0, 0), (before * fields, -1))

    @ops.custom_gradient
    def compress(x, x0, kernel):
        flat = ops.reshape(kernel, (before * fields, maps))
        flat_transposed = ops.transpose(flat)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream

            def by_factor(block):
                x, x0, upstream = block
                by_product = ops.reshape(ops.matmul(flat, upstream), (before, fields, -1))
                by_x = ops.sum(by_product * ops.expand_dims(x0, 0), axis=1)
                return by_x, ops.sum(by_product * ops.expand_dims(x, 1), axis=0)

            def by_kernel(block, total):
                return total + ops.matmul(products(x[block], x0[block]), ops.transpose(upstream[block]))

            x_gradient, x0_gradient = ops.map(by_factor, (x, x0, upstream))
            kernel_gradient = ops.fori_loop(0, ops.shape(x)[0], by_kernel, ops.zeros_like(flat))
            return x_gradient, x0_gradient, ops.reshape(kernel_gradient, kernel.shape)

        return ops.map(lambda block: ops.matmul(flat_transposed, products(*block)), (x, x0)), gradient

    return compress(x, x0, kernel)


def _symmetric(x0, kernel):
    """_compress(x0, x0, kernel), every pair of fields computed once."""
    fields, maps = kernel.shape[0], kernel.shape[2]
    first, second = (index.astype(np.int32) for index in np.triu_indices(fields))
    pairs = first * fields + second
    origin = np.zeros((fields, fields), np.int32)  # of each entry of a symmetric matrix among the pairs
    origin[first, second] = origin[second, first] = np.arange(len(pairs))
    once = np.where(first == second, 0.5, 1.0).reshape(-1, 1)

    def products(x0):  # slices, because gathering rows costs as much as the products
        return ops.concatenate([x0[field : field + 1] * x0[field:] for field in range(fields)], axis=0)

    @ops.custom_gradient
    def compress(x0, folded):
        """folded (pairs, maps): the weight of each pair, half of it where a field meets itself."""
        folded_transposed = ops.transpose(folded)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            full = ops.take(folded / ops.cast(once, folded.dtype), origin.reshape(-1), axis=0)

            def by_factor(block):
                x0, upstream = block
                by_product = ops.reshape(ops.matmul(full, upstream), (fields, fields, -1))
                return ops.sum(by_product * ops.expand_dims(x0, 0), axis=1)

            def by_kernel(block, total):
                return total + ops.matmul(products(x0[block]), ops.transpose(upstream[block]))

            kernel_gradient = ops.fori_loop(0, ops.shape(x0)[0], by_kernel, ops.zeros_like(folded))
            return ops.map(by_factor, (x0, upstream)), kernel_gradient

        return ops.map(lambda block: ops.matmul(folded_transposed, products(block)), x0), gradient

    folded = ops.reshape(kernel + ops.transpose(kernel, (1, 0, 2)), (fields * fields, maps))
    folded = ops.take(folded, pairs, axis=0)
    return compress(x0, folded * ops.cast(once, folded.dtype))


def _factorised(x, x0, u, v):
    """x (blocks, h, n), u (h, maps, rank), v (m, maps, rank) -> (blocks, maps, n), without products of two fields."""
    maps, rank = u.shape[1], u.shape[2]
    left = ops.matmul(ops.transpose(ops.reshape(u, (-1, maps * rank))), x)
    right = ops.matmul(ops.transpose(ops.reshape(v, (-1, maps * rank))), x0)
    return ops.sum(ops.reshape(left * right, (-1, maps, rank, left.shape[2] or ops.shape(left)[2])), axis=2)
