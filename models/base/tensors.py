"""Type aliases for tensors and shapes; Keras has no type for all kinds of tensors.

A tensor may be TensorFlow's, JAX's or symbolic.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
Inputs: TypeAlias = Mapping[str, Tensor]  # packed tensors by name: see ctrpipe.models.base.feature_map
Shape: TypeAlias = tuple[Any, ...]  # sizes; None for an unknown size
