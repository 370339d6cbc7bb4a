"""Boosted decision trees that another library has trained."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class TreeEnsemble(keras.layers.Layer):
    """Sums the values of the leaves that a row reaches, one per tree; 0 until `assign` sets the trees.

    `output = Σ_t value_t[leaf_t(x)]`, where a node goes left if `x[feature] <= threshold`. A leaf is its own child.

    Args:
        trees: int. Number of trees. Defaults to 100.
        leaves: int. Maximum number of leaves of a tree; a tree has at most 2 · leaves - 1 nodes. Defaults to 31.
        depth: int. Longest path from a root to a leaf. Defaults to 6.

    Example:
        >>> layer = TreeEnsemble(trees=1, leaves=2, depth=1)
        >>> values = keras.ops.array([[0.2, 5.0], [0.9, 5.0]])  # (batch_size, features)
        >>> layer.build()
        >>> layer.assign([[0, 0, 0]], [[0.5, 0, 0]], [[1, 1, 2]], [[2, 1, 2]], [[0, -1, 3]])
        >>> print(layer(values).numpy().tolist())  # x_0 <= 0.5 is the leaf with -1
        [[-1.0], [3.0]]

    Raises:
        ValueError: a size is not positive.
    """

    def __init__(self, trees: int = 100, leaves: int = 31, depth: int = 6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(trees=trees, leaves=leaves, depth=depth)
        self.trees = trees
        self.leaves = leaves
        self.depth = depth
        self.nodes = 2 * leaves - 1
        self._grown: tuple[int, int] = (trees, depth)  # trees and levels that are walked

    def build(self, input_shape: Shape | None = None) -> None:
        kinds = {"feature": "int32", "threshold": "float32", "left": "int32", "right": "int32", "value": "float32"}
        for name, dtype in kinds.items():
            weight = self.add_weight(
                name=name, shape=(self.trees, self.nodes), dtype=dtype, initializer="zeros", trainable=False
            )
            setattr(self, name, weight)

    def assign(
        self, feature: ArrayLike, threshold: ArrayLike, left: ArrayLike, right: ArrayLike, value: ArrayLike
    ) -> None:
        """Sets the trees; node 0 is the root. Thresholds are rounded down to float32.

        Args:
            feature: Index of the feature that each node compares, (trees, nodes).
            threshold: Threshold of each node, (trees, nodes).
            left, right: Indices of each node's children, (trees, nodes).
            value: Values of the leaves, (trees, nodes).
        """
        exact = np.asarray(threshold)
        rounded = exact.astype(np.float32)
        above = rounded > exact
        rounded[above] = np.nextafter(rounded[above], np.float32(-np.inf))
        for weight, given in (
            (self.feature, feature),
            (self.threshold, rounded),
            (self.left, left),
            (self.right, right),
            (self.value, value),
        ):
            weight.assign(given)

    def fold(self) -> None:
        """Removes unused trees and levels, for a model whose weights no longer change."""
        left, right, value = (np.asarray(weight) for weight in (self.left, self.right, self.value))
        nodes = np.zeros((self.trees, 1), np.int32)  # of a level, by tree
        levels = 0
        while levels < self.depth and (np.take_along_axis(left, nodes, axis=1) != nodes).any():
            children = [np.take_along_axis(side, nodes, axis=1) for side in (left, right)]
            nodes, levels = np.concatenate(children, axis=1), levels + 1
        used = np.flatnonzero((value != 0).any(axis=1))
        self._grown = (int(used[-1]) + 1 if len(used) else 1, levels)

    def call(self, values: Tensor) -> Tensor:
        """Maps float32 (batch_size, features) to float32 (batch_size, 1)."""
        trees, levels = self._grown
        first = np.arange(trees, dtype=np.int32) * self.nodes  # a tree's nodes in the flattened arrays
        feature, threshold, left, right, value = (
            ops.reshape(weight[:trees], (-1,))
            for weight in (self.feature, self.threshold, self.left, self.right, self.value)
        )
        node = ops.zeros((ops.shape(values)[0], trees), "int32")
        for _ in range(levels):
            index = node + first
            compared = ops.take_along_axis(values, ops.take(feature, index, axis=0), axis=1)
            goes_left = compared <= ops.take(threshold, index, axis=0)
            node = ops.where(goes_left, ops.take(left, index, axis=0), ops.take(right, index, axis=0))
        return ops.sum(ops.take(value, node + first, axis=0), axis=1, keepdims=True)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "trees": self.trees, "leaves": self.leaves, "depth": self.depth}
