"""A small log in memory, with the kinds of columns that DataFrames have, and a configuration of a model with towers."""

from typing import Any

import numpy as np
import pandas as pd

ROWS = 1200
CONFIG: dict[str, Any] = {
    "name": "face",
    "data": {
        "format": "parquet",
        "labels": {"ctr": "click"},
        "split": {"by": "order", "validation": 0.1, "test": 0.2},
    },
    "features": [
        {"kind": "categorical", "columns": ["user", "film"], "min_count": 2},
        {"kind": "numeric", "columns": ["year"], "transform": "standardize", "role": "item"},
        {"kind": "numeric", "columns": ["age"]},
        {"kind": "sequence", "columns": ["seen"], "shared_with": "film", "max_length": 3},
        {"kind": "time", "columns": ["when"]},
    ],
    "model": {"name": "two_tower", "embedding_dim": 4, "hidden_units": [8], "vector_dim": 4},
    "training": {"batch_size": 128, "epochs": 4, "learning_rate": 0.01},
    "evaluation": {"slices": ["user"], "baseline": {"name": "lr"}},
    "gates": {"rig": None},  # 840 training rows teach two towers less than the base rate
}


def frame(rows: int = ROWS, seed: int = 1) -> pd.DataFrame:
    """Rows of users and films: categories, texts with None, nullable whole numbers, lists, times, truth values."""
    random = np.random.default_rng(seed)
    films = random.integers(0, 12, rows)
    ages = pd.array(random.integers(18, 60, rows), "Int64")
    ages[::7] = pd.NA
    users = [None if number == 9 else f"u{number}" for number in random.integers(0, 10, rows)]
    return pd.DataFrame(
        {
            "click": random.random(rows) < 0.1 + 0.05 * (films % 8),
            "user": users,
            "film": pd.Categorical([f"f{film}" for film in films]),
            "year": 1960.0 + 3 * films,
            "age": ages,
            "seen": [[f"f{film}" for film in random.integers(0, 12, count)] for count in random.integers(0, 4, rows)],
            "when": pd.date_range("2026-11-01", periods=rows, freq="3min"),
        }
    )
