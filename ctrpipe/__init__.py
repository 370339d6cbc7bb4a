"""Trains, tunes, loads, scores and compares click-through rate models from Python.

    import ctrpipe

    run = ctrpipe.run("configs/criteo/deepfm.yaml", "train.tsv", "runs/mine")
    model = ctrpipe.load(run.model)
    model.predict([{"I1": 3.0, "C1": "68fd1e64", ...}])

Importing it imports no library; the functions that need TensorFlow import it. A user's mistake raises InputError.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from ctrpipe.common.errors import InputError

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions

if TYPE_CHECKING:
    from ctrpipe.model import Model, Predictions, load
    from ctrpipe.work import Comparison, Run, Scoring, Tuning, compare, run, score, tune

_HOMES = {
    **dict.fromkeys(("Model", "Predictions", "load"), "ctrpipe.model"),
    **dict.fromkeys(("Comparison", "Run", "Scoring", "Tuning", "compare", "run", "score", "tune"), "ctrpipe.work"),
}
__all__ = [
    "Comparison",
    "InputError",
    "Model",
    "Predictions",
    "Run",
    "Scoring",
    "Tuning",
    "compare",
    "load",
    "run",
    "score",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ctrpipe' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
