"""Train, tune, explain, serve, score and compare click-through rate models from Python.

    import ctrpipe

    run = ctrpipe.run(ctrpipe.init(frame), output="runs/mine")
    run.metrics["auc"], run.history, run.plot()
    ctrpipe.load(run).predict(frame)

Each function does the same as the command of that name, with the same code. `import ctrpipe` loads no other library;
functions that need TensorFlow import it when they are called. Wrong input raises InputError, which a notebook shows as
one line without a traceback.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from ctrpipe.common.errors import InputError

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # errors come as exceptions

if TYPE_CHECKING:
    from ctrpipe.checks import Check, check
    from ctrpipe.comparisons import Comparison, compare
    from ctrpipe.drafts import Draft, init
    from ctrpipe.drifts import Drift, drift
    from ctrpipe.explanations import Explanation, RowExplanation, explain
    from ctrpipe.model import Model, Predictions, load
    from ctrpipe.rankings import Ranking, ranking
    from ctrpipe.replays import Replay, replay
    from ctrpipe.retrievals import Retrieval, retrieve
    from ctrpipe.runs import Run, run
    from ctrpipe.scorings import Scoring, score
    from ctrpipe.served import Server, serve
    from ctrpipe.sweeps import Sweep, sweep
    from ctrpipe.tunings import Tuning, tune

_NAMES = {
    "checks": ("Check", "check"),
    "comparisons": ("Comparison", "compare"),
    "drafts": ("Draft", "init"),
    "drifts": ("Drift", "drift"),
    "explanations": ("Explanation", "RowExplanation", "explain"),
    "model": ("Model", "Predictions", "load"),
    "rankings": ("Ranking", "ranking"),
    "replays": ("Replay", "replay"),
    "retrievals": ("Retrieval", "retrieve"),
    "runs": ("Run", "run"),
    "scorings": ("Scoring", "score"),
    "served": ("Server", "serve"),
    "sweeps": ("Sweep", "sweep"),
    "tunings": ("Tuning", "tune"),
}
_HOMES = {name: f"ctrpipe.{module}" for module, names in _NAMES.items() for name in names}
__all__ = [
    "Check",
    "Comparison",
    "Draft",
    "Drift",
    "Explanation",
    "InputError",
    "Model",
    "Predictions",
    "Ranking",
    "Replay",
    "Retrieval",
    "RowExplanation",
    "Run",
    "Scoring",
    "Server",
    "Sweep",
    "Tuning",
    "check",
    "compare",
    "drift",
    "explain",
    "init",
    "load",
    "ranking",
    "replay",
    "retrieve",
    "run",
    "score",
    "serve",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ctrpipe' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
