"""Keras 3 models on packed tensors, on TensorFlow or JAX; importing the package does not import Keras."""

import importlib
from typing import Any

if __name__ != "ctrpipe.models":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.models", name=__name__)

_HOME = {
    "FeatureMap": "ctrpipe.models.feature_map",
    "create": "ctrpipe.models.registry",
    "available": "ctrpipe.models.registry",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ctrpipe.models' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
