"""The compressed interaction network of xDeepFM."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class CIN(keras.layers.Layer):
    """Compressed interaction network: weighted products of feature maps and fields.

    `X^k_h = act(Σ_ij W^{k,h}_ij (X^{k-1}_i ∘ X^0_j))`; the output is the maps of all layers, summed over the width.

    The weight of layer k has the shape (H_{k-1}, m, H_k) for m fields, independent of the width of an embedding. The
    products of the first layer are symmetric in i and j: the layer adds W_ij and W_ji and computes each pair once. With
    a linear activation, maps that only the output reads are summed over the width before the multiplication with the
    weights.

    Args:
        maps: sequence of int. H_k, the number of feature maps of each layer. Defaults to (200, 200, 200).
        split_half: bool. Whether each layer except the last pools the first half of its maps and passes on the second
            half, as in the authors' code; False to pool and pass on all maps, as in the paper. Defaults to False.
        activation: str. Activation of the maps. Defaults to "linear", which the paper finds best.
        rank: int. Rank L of `W^{k,h} = U Vᵀ` with U (H_{k-1}, L) and V (m, L), equation 9; None for full weights.
            Defaults to None.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the weights, equation 17. Defaults to 0.

    Example:
        >>> rows = keras.random.normal((2, 4, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(CIN(maps=(6, 5))(rows))  # (batch_size, all maps)
        (2, 11)

    Raises:
        ValueError: `maps` is empty, not positive, or, with `split_half`, odd before the last layer; `rank` is not
            positive.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not maps or min(maps) < 1:
            raise ValueError(f"`maps` should be positive numbers, one per layer. Received: maps={maps}")
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
        """The width of the output: the number of pooled maps."""
        return sum(self.maps) if not self.split_half else sum(count // 2 for count in self.maps[:-1]) + self.maps[-1]

    def build(self, input_shape: Shape) -> None:
        fields, before = input_shape[1], input_shape[1]
        products = fields * max(fields, *self.maps)
        self._block_rows = max(1, _block_bytes() // (4 * products * input_shape[2]))
        self.weights_of_layers = []
        for index, count in enumerate(self.maps):
            if self.rank is None:
                # Glorot's limit for products and maps; Keras would treat two axes as a convolution's receptive field.
                scale = (2 / (before * fields + count)) ** 0.5
                shapes: dict[str, Shape] = {"kernel": (before, fields, count)}
            else:
                scale = (1 / (before * fields * self.rank)) ** 0.25
                shapes = {"u": (before, count, self.rank), "v": (fields, count, self.rank)}
            self.weights_of_layers.append(
                [self._add_weight(f"{name}_{index}", shape, scale) for name, shape in shapes.items()]
            )
            before = count // 2 if self.split_half else count

    def _add_weight(self, name: str, shape: Shape, scale: float) -> keras.Variable:
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=keras.initializers.RandomNormal(stddev=scale),
            regularizer=keras.regularizers.L2(self.l2 / 2) if self.l2 else None,
        )

    def call(self, inputs: Tensor, return_maps: bool = False) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, output_maps).

        With `return_maps`, also returns the maps of every layer, a list of (batch_size, H_k, dim).
        """
        fields, dim = inputs.shape[1], inputs.shape[2]
        # Blocks of a few rows, whose products stay in the cache. One matrix product handles a block's rows and width.
        batch = ops.shape(inputs)[0]
        blocks = batch // self._block_rows + 1
        rows = (batch + blocks - 1) // blocks
        x0 = ops.transpose(ops.pad(inputs, ((0, blocks * rows - batch), (0, 0), (0, 0))), (0, 2, 1))
        x0 = ops.reshape(x0, (blocks, rows * dim, fields))
        x, pools, all_maps = x0, [], []
        for index, weight in enumerate(self.weights_of_layers):
            weight = [ops.cast(part, x0.dtype) for part in weight]
            output_only = self._output_only(index)
            summed_first = output_only and self.rank is None and self.activation == "linear" and not return_maps
            if summed_first:
                pools.append(_pooled_products(x, x0, weight[0][:, :, :output_only], dim))
                weight = [weight[0][:, :, output_only:]]
            if not summed_first or weight[0].shape[2]:
                maps = self._act(self._layer(index, weight, x, x0))
                unpacked = ops.reshape(maps, (blocks * rows, dim, maps.shape[2]))
                all_maps.append(unpacked)
                if not summed_first:
                    pools.append(ops.sum(unpacked[:, :, :output_only] if output_only else unpacked, axis=1))
                x = maps if summed_first else maps[:, :, output_only:]
        outputs = ops.concatenate(pools, axis=1)[:batch]
        if not return_maps:
            return outputs
        return outputs, [ops.transpose(maps[:batch], (0, 2, 1)) for maps in all_maps]

    def kernel_of(self, index: int) -> np.ndarray:
        """Returns the full weights W of a built layer, (H_{k-1}, fields, H_k), even if they are of low rank."""
        weights = [np.asarray(weight) for weight in self.weights_of_layers[index]]
        return weights[0] if self.rank is None else np.einsum("ihr,jhr->ijh", *weights)

    def pooled_maps(self, index: int) -> int:
        """Returns the number of a layer's maps, counted from the first, that are pooled."""
        return self._output_only(index) or self.maps[index]

    def _output_only(self, index: int) -> int:
        """Returns the number of a layer's maps, counted from the first, that are pooled and not passed on."""
        if index == len(self.maps) - 1:
            return self.maps[index]
        return self.maps[index] // 2 if self.split_half else 0

    def _layer(self, index: int, weight: list[Tensor], x: Tensor, x0: Tensor) -> Tensor:
        if self.rank is not None:
            return _factorised(x, x0, *weight)
        if index == 0:
            return _symmetric(x0, weight[0])
        return _compress(x, x0, weight[0])

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.output_maps)

    def get_config(self) -> dict[str, Any]:
        return dict(
            super().get_config(),
            maps=self.maps,
            split_half=self.split_half,
            activation=self.activation,
            rank=self.rank,
            l2=self.l2,
        )


def _block_bytes() -> int:
    """Returns the size limit of a block's products in bytes.

    The products fit a CPU's cache, or keep an accelerator busy. The limit need not follow the size of the cache. On a
    CPU with 1 MiB of L2 per core and 32 MiB of L3, the training time of xDeepFM differs by at most a tenth between 4
    and 16 MiB, with one or two threads, with AVX-512 or AVX2. With 1 MiB it is up to a quarter slower.
    """
    on_cpu = all(device.startswith("cpu") for device in keras.distribution.list_devices())
    return (4 if on_cpu else 512) * 2**20


def _pooled_products(x: Tensor, x0: Tensor, kernel: Tensor, dim: int) -> Tensor:
    """Returns _compress(x, x0, kernel) summed over the width, (batch, maps), with `dim` times fewer multiplications."""
    before, fields, maps = kernel.shape
    x = ops.reshape(x, (-1, dim, before))
    x0 = ops.reshape(x0, (-1, dim, fields))
    products = ops.matmul(ops.transpose(x, (0, 2, 1)), x0)
    return ops.matmul(ops.reshape(products, (-1, before * fields)), ops.reshape(kernel, (before * fields, maps)))


def _each_block(function: Callable[[Tensor], Tensor], blocks: Tensor) -> Tensor:
    """Returns the stacked `function(index)` of all blocks. Mapping over the blocks themselves would copy them."""
    return ops.map(function, ops.arange(ops.shape(blocks)[0]))


def _compress(x: Tensor, x0: Tensor, kernel: Tensor) -> Tensor:
    """Returns the maps of a layer, (blocks, n, maps), with one matrix product per block.

    The products of x and x0, by far the model's largest tensor, exist for one block at a time; the backward pass
    recomputes them. Matrix products compute and reduce them: on a CPU, TensorFlow takes several times as long to
    broadcast and sum.

    Args:
        x: (blocks, n, h), the maps of the previous layer; n is rows times width.
        x0: (blocks, n, m), the fields.
        kernel: (h, m, maps).
    """
    before, fields, maps = kernel.shape

    def products(x: Tensor, x0: Tensor) -> Tensor:
        outer = ops.matmul(ops.expand_dims(x0, 2), ops.expand_dims(x, 1))
        return ops.reshape(outer, (-1, fields * before))

    @ops.custom_gradient
    def compress(x: Tensor, x0: Tensor, flat: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        """Returns the maps and their gradient; `flat` is the kernel, (m * h, maps)."""
        flat_transposed = ops.transpose(flat)

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = arguments[0] if upstream is None else upstream

            def by_factor(block: Tensor) -> Tensor:
                by_product = ops.reshape(ops.matmul(upstream[block], flat_transposed), (-1, fields, before))
                by_x = ops.matmul(ops.expand_dims(x0[block], 1), by_product)
                by_x0 = ops.matmul(by_product, ops.expand_dims(x[block], 2))
                return by_x[:, 0, :], by_x0[:, :, 0]

            def by_kernel(block: Tensor, total: Tensor) -> Tensor:
                return total + ops.matmul(ops.transpose(products(x[block], x0[block])), upstream[block])

            x_gradient, x0_gradient = _each_block(by_factor, x)
            return x_gradient, x0_gradient, ops.fori_loop(0, ops.shape(x)[0], by_kernel, ops.zeros_like(flat))

        return _each_block(lambda block: ops.matmul(products(x[block], x0[block]), flat), x), gradient

    return compress(x, x0, ops.reshape(ops.transpose(kernel, (1, 0, 2)), (fields * before, maps)))


def _symmetric(x0: Tensor, kernel: Tensor) -> Tensor:
    """Returns _compress(x0, x0, kernel), computing every pair of fields once."""
    fields, maps = kernel.shape[0], kernel.shape[2]
    first, second = (index.astype(np.int32) for index in np.triu_indices(fields))
    pairs = first * fields + second
    origin = np.zeros((fields, fields), np.int32)  # the pair of each entry of a symmetric matrix
    origin[first, second] = origin[second, first] = np.arange(len(pairs))
    once = np.where(first == second, 0.5, 1.0).reshape(-1, 1)

    def products(x0: Tensor) -> Tensor:  # (pairs, n), from slices: gathering would cost as much as the products
        x0 = ops.transpose(x0)
        return ops.concatenate([x0[field : field + 1] * x0[field:] for field in range(fields)], axis=0)

    @ops.custom_gradient
    def compress(x0: Tensor, folded: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        """Returns the maps and their gradient; `folded` holds W_ij + W_ji, or W_ii, of each pair, (pairs, maps)."""

        def gradient(*arguments: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = arguments[0] if upstream is None else upstream
            full = ops.take(folded / ops.cast(once, folded.dtype), origin.reshape(-1), axis=0)
            full_transposed = ops.transpose(full)

            def by_factor(block: Tensor) -> Tensor:
                by_product = ops.reshape(ops.matmul(upstream[block], full_transposed), (-1, fields, fields))
                return ops.matmul(ops.expand_dims(x0[block], 1), by_product)[:, 0, :]

            def by_kernel(block: Tensor, total: Tensor) -> Tensor:
                return total + ops.matmul(products(x0[block]), upstream[block])

            kernel_gradient = ops.fori_loop(0, ops.shape(x0)[0], by_kernel, ops.zeros_like(folded))
            return _each_block(by_factor, x0), kernel_gradient

        return _each_block(lambda block: ops.matmul(ops.transpose(products(x0[block])), folded), x0), gradient

    folded = ops.reshape(kernel + ops.transpose(kernel, (1, 0, 2)), (fields * fields, maps))
    folded = ops.take(folded, pairs, axis=0)
    return compress(x0, folded * ops.cast(once, folded.dtype))


def _factorised(x: Tensor, x0: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Returns the maps of a layer of low rank, (blocks, n, maps), without computing products of two fields.

    Args:
        x: (blocks, n, h).
        x0: (blocks, n, m).
        u: (h, maps, rank).
        v: (m, maps, rank).
    """
    maps, rank = u.shape[1], u.shape[2]
    left = ops.matmul(x, ops.reshape(u, (-1, maps * rank)))
    right = ops.matmul(x0, ops.reshape(v, (-1, maps * rank)))
    return ops.sum(ops.reshape(left * right, (*ops.shape(left)[:2], maps, rank)), axis=3)
