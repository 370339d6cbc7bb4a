"""Serves ScaNN's inner-product index by the protocol of index_server.py. Needs scann and numpy only.

"tree" divides the items into cells, scores the items of the cells that it reads with quantized vectors, and rescores
the best of them exactly, as ScaNN's docs/algorithms.md advises for more than 100,000 items. Its setting is the number
of cells to read.
"""

import importlib.metadata

import numpy as np
import scann
from index_server import IndexServer
from line_server import Answer, serve_lines

# The number of dimensions per code follows docs/algorithms.md; the anisotropic threshold follows ScaNN's example.
NUMBERS_OF_A_CODE, THRESHOLD = 2, 0.2
RESCORED = 5  # times `top`: with 3, 200 of 1,265 cells of 100,000 items held .94 of the best items; with 5, .96


class Tree:
    """Cells of items with quantized vectors. A search for one user takes one thread."""

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
        """Does nothing: a search for one user takes one thread."""


def start() -> Answer:
    return IndexServer(Scann()).answer


if __name__ == "__main__":
    serve_lines(start)
