"""A quadratic layer with several products per input (QNN-alpha)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.tower import make_norm


@keras.saving.register_keras_serializable(package="ctrpipe")
class QuadraticLayer(keras.layers.Layer):
    """Multiplies its input by sums of ReLU outputs: `output = x̃ ∘ Σ_r h_r + x`, `h = dropout(relu(norm(W x + b)))`.

    h has `products` vectors of the width of x. x̃ is x in the order of the heads: each head has a part of each field's
    embedding.

    Args:
        fields: int. Number of fields in the input.
        heads: int. Number of heads; must divide the width of a field. Defaults to 1.
        products: int. Number of vectors h_r. Defaults to 2.
        normalization: str. "batch", "layer" or "none". Defaults to "none".
        dropout: float. Dropout rate of h. Defaults to 0.

    Example:
        >>> layer = QuadraticLayer(fields=3, heads=2, products=2)
        >>> keras.ops.shape(layer(keras.random.normal((2, 12))))  # (batch_size, fields * dim)
        (2, 12)

    Raises:
        ValueError: a size is not positive, `heads` does not divide the width of a field, or `normalization` is unknown.

    References:
        Li et al., "Revisiting Feature Interactions from the Perspective of Quadratic Neural Networks for Click-through
        Rate Prediction", 2025 (QNN-α).
    """

    def __init__(
        self,
        fields: int,
        heads: int = 1,
        products: int = 2,
        normalization: str = "none",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(fields=fields, heads=heads, products=products)
        policy = self.dtype_policy
        self.fields = fields
        self.heads = heads
        self.products = products
        self.normalization = normalization
        self.dropout = dropout
        self.norms = [make_norm(normalization, policy)] if normalization != "none" else []
        self.drop = keras.layers.Dropout(dropout, dtype=policy) if dropout else None

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if (width // self.fields) % self.heads:
            raise ValueError(
                f"`heads` should divide the width {width // self.fields} of a field. Received: heads={self.heads}"
            )
        self.dense = keras.layers.Dense(width * self.products, dtype=self.dtype_policy, name="dense")
        self.dense.build(input_shape)
        for norm in self.norms:
            norm.build((None, width * self.products))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, fields * dim) to the same shape."""
        width, of_head = inputs.shape[1], inputs.shape[1] // self.heads
        hidden = self.dense(inputs)
        for norm in self.norms:
            hidden = norm(hidden, training=training)
        hidden = ops.relu(hidden)
        if self.drop is not None:
            hidden = self.drop(hidden, training=training)
        hidden = ops.sum(ops.reshape(hidden, (-1, self.heads, self.products, of_head)), axis=2)
        part = width // self.fields // self.heads
        by_head = ops.reshape(inputs, (-1, self.fields, self.heads, part))
        by_head = ops.reshape(ops.transpose(by_head, (0, 2, 1, 3)), (-1, self.heads, of_head))
        return ops.reshape(by_head * hidden, (-1, width)) + inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        names = ("fields", "heads", "products", "normalization", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
