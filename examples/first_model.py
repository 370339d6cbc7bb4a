"""A first model: a generated log is trained on, and the model predicts rows of a user's own.

.venv/bin/python examples/first_model.py [FOLDER]
"""

import pathlib
import sys

import ctrpipe
from ctrpipe.pipeline.packaged_configs import configs_folder
from ctrpipe.transforms.generate import generate


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.tsv"
    generate("criteo", rows=12_000, seed=1, output=log)
    run = ctrpipe.run(configs_folder() / "demo.yaml", log, folder / "run", gates={}, training__epochs=4)
    print(run)
    names = [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]
    rows = [dict.fromkeys(names[:13], number) | dict.fromkeys(names[13:], "68fd1e64") for number in (0.0, 1.0, 5.0)]
    with ctrpipe.load(run.model) as model:
        print(model.predict(rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/first_model"))
