"""A study small enough for tests: its configuration, and its trials without the parts that vary between calls."""

import json
import pathlib
from typing import Any

import yaml

from ctrpipe.pipeline.tune.plan import Budget, TunePlan, make_plan

CONFIG: dict[str, Any] = {
    "name": "small",
    "data": {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}, "split": {"test": 0.2}},
    "features": [{"kind": "numeric", "columns": ["I2"]}, {"kind": "categorical", "columns": ["C9"], "top_k": 50}],
    "model": {"name": "mlp", "embedding_dim": 4, "hidden_units": [8], "embedding_stddev": 0.1},
    "training": {"batch_size": 128, "epochs": 1, "learning_rate": 0.01, "evaluations_per_epoch": 2, "refit": True},
    "search": {
        "model.embedding_dim": [2, 4],
        "model.hidden_units": [[8], [16, 8]],
        "training.learning_rate": {"log": [1e-3, 1e-1]},
    },
}


def write_config(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**CONFIG, **changes}))
    return path


def small_plan(folder: pathlib.Path, trials: int | None = 20, seconds: float | None = None, **changes: Any) -> TunePlan:
    return make_plan(write_config(folder, **changes), budget=Budget(trials, seconds))


def trials_of(output: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the trials of tune.json without times."""
    trials = json.loads((output / "tune.json").read_text())["trials"]
    return [{key: value for key, value in trial.items() if key != "seconds"} for trial in trials]
