"""Keras 3 models on packed tensors, on TensorFlow or JAX. Imports nothing until a name is used (see feature_map)."""

import importlib

_HOME = {
    "FeatureMap": "models.feature_map",
    "create": "models.registry",
    "available": "models.registry",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'models' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
