"""A model with a text: BERT4CTR on a generated log of queries and ads, compared with the features alone.

.venv/bin/python examples/text_model.py [FOLDER]
"""

import itertools
import pathlib
import sys

import ctrpipe
from ctrpipe.transforms.generate import generate

COLUMNS = ("click", "age", "device", "category", "shop", "query", "title")


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log, config = folder / "log.tsv", "demo_text.yaml"
    generate("text", rows=4000, seed=1, output=log)
    short = {"gates": {}, "training__epochs": 2, "evaluation__baseline": None}
    features = ctrpipe.run(config, log, folder / "features", model={"name": "features_only"}, **short)
    text = ctrpipe.run(config, log, folder / "text", **short)
    print(ctrpipe.compare(features, text))
    with log.open() as lines, ctrpipe.load(text.model) as model:
        rows = [dict(zip(COLUMNS, line.rstrip("\n").split("\t"), strict=True)) for line in itertools.islice(lines, 3)]
        print(model.predict([{**row, "age": float(row["age"] or "nan")} for row in rows]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/text_model"))
