"""Boosted decision trees whose splits were learned elsewhere."""

from typing import Any

import keras
import numpy as np
from keras import ops

from models.tensors import Shape


@keras.saving.register_keras_serializable(package="ctrpipe")
class TreeEnsemble(keras.layers.Layer):
    """The sum of the leaves that a row falls into, one per tree; 0 until `assign` has given it trees.

    A node goes left where value[feature] <= threshold. A leaf is its own child.

    Args:
        trees: How many.
        leaves: The most leaves of a tree; it has at most 2 leaves - 1 nodes.
        depth: The longest way from a root to a leaf.
    """

    def __init__(self, trees: int = 100, leaves: int = 31, depth: int = 6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, size in {"trees": trees, "leaves": leaves, "depth": depth}.items():
            if size < 1:
                raise ValueError(f"`{name}` should be positive. Received: {name}={size}")
        self.trees = trees
        self.leaves = leaves
        self.depth = depth
        self.nodes = 2 * leaves - 1

    def build(self, input_shape: Shape | None = None) -> None:
        kinds = {"feature": "int32", "threshold": "float32", "left": "int32", "right": "int32", "value": "float32"}
        for name, dtype in kinds.items():
            weight = self.add_weight(
                name=name, shape=(self.trees, self.nodes), dtype=dtype, initializer="zeros", trainable=False
            )
            setattr(self, name, weight)

    def assign(self, feature, threshold, left, right, value) -> None:
        """Takes over trees, arrays (trees, nodes) each; node 0 is the root. Thresholds are rounded down to float32."""
        rounded = np.asarray(threshold).astype(np.float32)
        above = rounded > threshold
        rounded[above] = np.nextafter(rounded[above], np.float32(-np.inf))
        for weight, given in (
            (self.feature, feature),
            (self.threshold, rounded),
            (self.left, left),
            (self.right, right),
            (self.value, value),
        ):
            weight.assign(given)

    def call(self, values):
        """float32 (batch_size, features) -> float32 (batch_size, 1)."""
        first = np.arange(self.trees, dtype=np.int32) * self.nodes  # a tree's nodes in the flattened arrays
        feature, threshold, left, right, value = (
            ops.reshape(weight, (-1,)) for weight in (self.feature, self.threshold, self.left, self.right, self.value)
        )
        node = ops.zeros((ops.shape(values)[0], self.trees), "int32")
        for _ in range(self.depth):
            at = node + first
            compared = ops.take_along_axis(values, ops.take(feature, at, axis=0), axis=1)
            goes_left = compared <= ops.take(threshold, at, axis=0)
            node = ops.where(goes_left, ops.take(left, at, axis=0), ops.take(right, at, axis=0))
        return ops.sum(ops.take(value, node + first, axis=0), axis=1, keepdims=True)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "trees": self.trees, "leaves": self.leaves, "depth": self.depth}
