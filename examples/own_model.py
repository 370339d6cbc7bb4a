"""A custom model: a field-weighted factorisation machine, trained and served like a built-in model.

.venv/bin/python examples/own_model.py [FOLDER]
"""

import pathlib
import sys

import keras

import ctrpipe
from ctrpipe.models import CTRModel
from ctrpipe.models.layers.inner_product import InnerProduct
from ctrpipe.transforms.generate import generate


class FwFM(CTRModel):
    """Field-weighted factorisation machine: logit = linear part + Σ_{i<j} r_ij <e_i, e_j> (Pan et al. 2018)."""

    def __init__(self, feature_map, *, use_linear: bool = True, **options):
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.products = InnerProduct(name="products")
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows, inputs, training=None):
        return self.logit(self.products(rows))  # rows: (batch_size, fields, embedding_dim)


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.tsv"
    generate("criteo", rows=12_000, seed=1, output=log)
    model = {"name": "own_model:FwFM", "embedding_dim": 8}  # this file, by its import name
    settings = {"model": model, "gates": {}, "training__epochs": 4, "training__learning_rate": 0.002}
    run = ctrpipe.run("demo.yaml", log, folder / "run", **settings)
    print(run)
    with ctrpipe.load(run.model) as served:
        numbers, values = [f"I{i}" for i in range(1, 14)], [f"C{i}" for i in range(1, 27)]
        rows = [dict.fromkeys(numbers, number) | dict.fromkeys(values, "68fd1e64") for number in (0.0, 1.0, 5.0)]
        print(served.predict(rows))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own_model"))
