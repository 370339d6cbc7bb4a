"""LightGBM from a raw log in Criteo's layout: reads it, encodes it, trains with early stopping and predicts.

python -m benchmarks.harness.lightgbm_log '{"log": PATH, "validation": .1, "test": .1, "seed": 1, "out": PATH.npy}'

Numbers are unchanged. A category is its index among the values of the training rows, and a value that they lack is
missing. Writes the test rows' probabilities, and prints {"trees": ...}.
"""

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from benchmarks.harness.preprocess_logs import COLUMNS, NUMBERS, VALUES

MOST_TREES, PATIENCE = 1000, 50
MOST_VALUES = 255 * 100  # of a column that LightGBM takes as categories; the rarest values of a longer one are missing


def read(path: str) -> pd.DataFrame:
    """Returns the log's columns: numbers as float64, categories as text."""
    types = {"label": pa.float64(), **dict.fromkeys(NUMBERS, pa.float64()), **dict.fromkeys(VALUES, pa.string())}
    return pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(column_names=list(COLUMNS)),
        pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    ).to_pandas()


def encoded(frame: pd.DataFrame, train: int) -> pd.DataFrame:
    """Returns the features, with categories of the first `train` rows."""
    features = frame[list(NUMBERS)].copy()
    for name in VALUES:
        known = frame[name].iloc[:train].value_counts().index[:MOST_VALUES]
        features[name] = pd.Categorical(frame[name], categories=known).codes
        features[name] = features[name].where(features[name] >= 0).astype("float64")
    return features


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Trains on the first rows, stops by the rows after them, and writes the probabilities of the last ones."""
    import lightgbm

    frame = read(request["log"])
    count = len(frame)
    first = round((1 - request["validation"] - request["test"]) * count)
    last = round((1 - request["test"]) * count)
    features, labels = encoded(frame, first), frame["label"].to_numpy()
    train = lightgbm.Dataset(features[:first], labels[:first], categorical_feature=list(VALUES), free_raw_data=False)
    valid = lightgbm.Dataset(features[first:last], labels[first:last], reference=train)
    settings = {"objective": "binary", "verbose": -1, "seed": request["seed"], "deterministic": True}
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    trees = lightgbm.train(settings, train, MOST_TREES, [valid], callbacks=[stop])
    np.save(request["out"], np.asarray(trees.predict(features[last:])))
    return {"trees": trees.best_iteration}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
