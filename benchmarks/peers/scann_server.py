"""Serves ScaNN's index of inner products, as index_server.py says. Needs scann and numpy only.

"tree" divides the items into cells, scores those of the cells that are read by quantized vectors, and the best of them
exactly, as ScaNN's docs/algorithms.md advises for more than 100,000 items. Its setting is how many cells are read.
"""

import importlib.metadata

import numpy as np
import scann
from index_server import IndexServer
from line_server import Answer, serve_lines

# Numbers a code as docs/algorithms.md advises; the threshold of the anisotropic loss is that of ScaNN's example.
NUMBERS_OF_A_CODE, THRESHOLD = 2, 0.2
RESCORED = 5  # times `top`, exactly: with 3 times, 200 of 1,265 cells of 100,000 items held .94 of the best, with 5 .96


class Tree:
    """Cells of items, with quantized vectors. `search` of one user takes one thread."""

    least = 1

    def __init__(self, items: np.ndarray, cells: int, top: int) -> None:
        self.most = self.cells_read = cells
        self.top, self.rescored = top, min(RESCORED * top, len(items))
        builder = scann.scann_ops_pybind.builder(items, top, "dot_product")
        builder = builder.tree(cells, self.cells_read, training_sample_size=len(items))
        builder = builder.score_ah(NUMBERS_OF_A_CODE, anisotropic_quantization_threshold=THRESHOLD)
        self.index = builder.reorder(self.rescored).build()

    def set_to(self, setting: int) -> None:
        self.cells_read = setting

    def search(self, users: np.ndarray) -> np.ndarray:
        if len(users) == 1:
            return self.index.search(users[0], self.top, self.rescored, self.cells_read)[0][None]
        return self.index.search_batched(users, self.top, self.rescored, self.cells_read)[0]


class Scann:
    """ScaNN as an index_server.Library."""

    version = importlib.metadata.version("scann")
    builds = {"tree": Tree}

    def set_threads(self, threads: int) -> None:
        """Does nothing: a search of one user takes one thread."""


def start() -> Answer:
    return IndexServer(Scann()).answer


if __name__ == "__main__":
    serve_lines(start)
