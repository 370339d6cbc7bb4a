"""Keras 3 models on packed tensors, on TensorFlow or JAX; importing the package does not import Keras."""

import importlib
from typing import Any

_HOME = {
    "FeatureMap": "models.feature_map",
    "create": "models.registry",
    "available": "models.registry",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'models' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
