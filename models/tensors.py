"""Type aliases for tensors and shapes; Keras has no common type for TensorFlow, JAX and symbolic tensors."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
Inputs: TypeAlias = Mapping[str, Tensor]  # packed tensors by name: see ctrpipe.models.feature_map
Shape: TypeAlias = tuple[Any, ...]  # sizes; None for an unknown size
