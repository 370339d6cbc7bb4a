"""Names for the types of tensors and shapes. Keras has no types: a tensor may be TensorFlow's, JAX's or symbolic."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
Inputs: TypeAlias = Mapping[str, Tensor]  # packed tensors by name: see models.feature_map
Shape: TypeAlias = tuple[Any, ...]  # sizes; None for a size that is not known
