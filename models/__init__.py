"""Keras 3 models on packed tensors, on TensorFlow or JAX; importing the package does not import Keras."""

import importlib
from typing import Any

if __name__ != "ctrpipe.models":  # two names would be two copies of every class
    raise ImportError(f"{__name__} is a folder of ctrpipe's source; import ctrpipe.models", name=__name__)

_HOME = {
    "CTRModel": "ctrpipe.models.base.ctr_model",
    "FeatureMap": "ctrpipe.models.base.feature_map",
    "create": "ctrpipe.models.base.registry",
    "available": "ctrpipe.models.base.registry",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ctrpipe.models' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
