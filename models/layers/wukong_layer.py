"""A layer of Wukong: factorization machines and linear compression of the embeddings."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.tower import Tower

EPSILON = 1e-5


@keras.saving.register_keras_serializable(package="ctrpipe")
class WukongLayer(keras.layers.Layer):
    """Maps embeddings to as many new ones, made of products and linear combinations, and adds a residual.

    `output = LayerNorm([FMB(X); LCB(X)] + R X)`. `FMB(X) = relu(MLP(LayerNorm(X (Xᵀ Y))))`, reshaped to embeddings,
    with a matrix Y of `rank` columns. `LCB(X) = W X`. R is the identity if the number of embeddings stays the same.

    Args:
        products: int. Number of embeddings from the factorization machine block. Defaults to 16.
        compressed: int. Number of embeddings from the linear compression block. Defaults to 16.
        rank: int. Number of columns of Y. Defaults to 8.
        hidden_units: sequence of int. Widths of the hidden layers of the block's MLP. Defaults to (32, 32).
        dropout: float. Dropout rate of that MLP. Defaults to 0.
        normalises: bool. Whether the output has layer normalisation. Defaults to True.

    Example:
        >>> layer = WukongLayer(products=2, compressed=3, rank=2, hidden_units=(8,))
        >>> keras.ops.shape(layer(keras.random.normal((2, 6, 4))))  # (batch_size, products + compressed, dim)
        (2, 5, 4)

    Raises:
        ValueError: a size is not positive.

    References:
        Zhang et al., "Wukong: Towards a Scaling Law for Large-Scale Recommendation", 2024, section 3.
    """

    def __init__(
        self,
        products: int = 16,
        compressed: int = 16,
        rank: int = 8,
        hidden_units: Sequence[int] = (32, 32),
        dropout: float = 0.0,
        normalises: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(products=products, compressed=compressed, rank=rank)
        self.products = products
        self.compressed = compressed
        self.rank = rank
        self.hidden_units = tuple(hidden_units)
        self.dropout = dropout
        self.normalises = normalises
        policy = self.dtype_policy
        self.norm_products = LayerNorm(epsilon=EPSILON, dtype=policy, name="norm_products")
        self.norm = LayerNorm(epsilon=EPSILON, dtype=policy, name="norm") if normalises else None

    def build(self, input_shape: Shape) -> None:
        fields, dim = input_shape[1:]
        outputs = self.products + self.compressed
        self.project = self.add_weight(name="project", shape=(fields, self.rank), initializer="glorot_normal")
        self.compress = self.add_weight(name="compress", shape=(fields, self.compressed), initializer="glorot_uniform")
        self.norm_products.build((None, fields * self.rank))
        self.mlp = Tower(
            self.hidden_units, self.products * dim, "relu", self.dropout, dtype=self.dtype_policy, name="mlp"
        )
        self.mlp.build((None, fields * self.rank))
        self.residual = self.residual_bias = None
        if fields != outputs:
            self.residual = self.add_weight(name="residual", shape=(fields, outputs), initializer="glorot_uniform")
            if not self.normalises:  # the layer normalisation would take the bias of an embedding away again
                self.residual_bias = self.add_weight(name="residual_bias", shape=(outputs,), initializer="zeros")
        if self.norm is not None:
            self.norm.build((None, outputs, dim))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, products + compressed, dim)."""
        fields, dim = inputs.shape[1:]
        turned = ops.transpose(inputs, (0, 2, 1))
        products = ops.matmul(inputs, ops.matmul(turned, self.project))
        products = self.norm_products(ops.reshape(products, (-1, fields * self.rank)))
        new = ops.reshape(ops.relu(self.mlp(products, training=training)), (-1, self.products, dim))
        outputs = ops.concatenate([new, ops.transpose(ops.matmul(turned, self.compress), (0, 2, 1))], axis=1)
        if self.residual is None:
            outputs = outputs + inputs
        else:
            mixed = ops.matmul(turned, self.residual)
            mixed = mixed if self.residual_bias is None else mixed + self.residual_bias
            outputs = outputs + ops.transpose(mixed, (0, 2, 1))
        return outputs if self.norm is None else self.norm(outputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.products + self.compressed, input_shape[2])

    def get_config(self) -> dict[str, Any]:
        names = ("products", "compressed", "rank", "hidden_units", "dropout", "normalises")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
