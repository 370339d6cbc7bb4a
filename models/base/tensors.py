"""Type aliases for tensors and shapes: a tensor may be TensorFlow's, JAX's or symbolic, for which Keras has no type."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
Inputs: TypeAlias = Mapping[str, Tensor]  # packed tensors by name: see ctrpipe.models.base.feature_map
Shape: TypeAlias = tuple[Any, ...]  # sizes; None for an unknown size
