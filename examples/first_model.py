"""A first model: describe a log in a DataFrame, train on it, explain the model, and serve it.

.venv/bin/python examples/first_model.py [FOLDER]
"""

import pathlib
import sys

import pandas as pd

import ctrpipe
from ctrpipe.transforms.generate import generate

COLUMNS = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generate("criteo", rows=12_000, seed=1, output=folder / "log.tsv")
    log = pd.read_csv(folder / "log.tsv", sep="\t", names=COLUMNS)
    draft = ctrpipe.init(log, label="label")
    print(draft)
    run = ctrpipe.run(draft, output=folder / "run", training__epochs=2)
    print(run)
    run.plot().savefig(folder / "run.png")
    print(ctrpipe.explain(run, rows=2000))
    with ctrpipe.serve(run) as server:
        print(server.predict(log.drop(columns="label").head(3)))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/first_model"))
