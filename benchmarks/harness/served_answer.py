"""Starts a server for a run's model, and asks it for the first row of a log in Criteo's layout.

python -m benchmarks.harness.served_answer RUN LOG

Prints {"probability": ...}.
"""

import json
import pathlib
import sys

import ctrpipe
from benchmarks.harness.preprocess_logs import COLUMNS, NUMBERS


def first_row(log: pathlib.Path) -> dict[str, float | str]:
    """Returns the columns of the log's first row, without the label; a missing number is NaN."""
    with open(log) as file:
        values = dict(zip(COLUMNS, file.readline().rstrip("\n").split("\t"), strict=True))
    del values["label"]
    return {name: float(text or "nan") if name in NUMBERS else text for name, text in values.items()}


def main(folder: pathlib.Path, log: pathlib.Path) -> None:
    """Serves the version that the run pushed, and prints the probability of the log's first row."""
    with ctrpipe.serve(folder) as server:
        [probabilities] = server.predict([first_row(log)]).tasks.values()
    print(json.dumps({"probability": float(probabilities[0])}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
