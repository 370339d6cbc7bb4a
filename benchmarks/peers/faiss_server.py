"""Serves FAISS's inner-product indexes by the protocol of index_server.py. Needs faiss and numpy only.

"flat" is the exact index. The setting is the number of cells to read (nprobe) for "ivf", and for "hnsw" the number of
candidates to keep (efSearch).
"""

from typing import Any

import faiss
import numpy as np
from index_server import IndexServer
from line_server import Answer, serve_lines

NEIGHBOURS = 32  # neighbours of a node in the HNSW graph, as in FAISS's examples
MOST_CANDIDATES = 4096


class Flat:
    """Exhaustive search over all items."""

    least = most = 1

    def __init__(self, items: np.ndarray, _cells: int, top: int) -> None:
        self.top = top
        self.index = self.built(items)

    def built(self, items: np.ndarray) -> Any:
        index = faiss.IndexFlatIP(items.shape[1])
        index.add(items)
        return index

    def set_to(self, setting: int) -> None:
        pass

    def search(self, users: np.ndarray) -> np.ndarray:
        return self.index.search(users, self.top)[1]


class InvertedFile(Flat):
    """An inverted file: the items divided into cells (IVF)."""

    def __init__(self, items: np.ndarray, cells: int, top: int) -> None:
        self.most = cells
        super().__init__(items, cells, top)

    def built(self, items: np.ndarray) -> Any:
        width = items.shape[1]
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, self.most, faiss.METRIC_INNER_PRODUCT)
        index.train(items)
        index.add(items)
        return index

    def set_to(self, setting: int) -> None:
        self.index.nprobe = setting


class Graph(Flat):
    """A graph of neighbours (HNSW)."""

    most = MOST_CANDIDATES

    def __init__(self, items: np.ndarray, cells: int, top: int) -> None:
        self.least = top
        super().__init__(items, cells, top)

    def built(self, items: np.ndarray) -> Any:
        index = faiss.IndexHNSWFlat(items.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        index.add(items)
        return index

    def set_to(self, setting: int) -> None:
        self.index.hnsw.efSearch = setting


class Faiss:
    """FAISS as an index_server.Library."""

    version = faiss.__version__
    builds = {"flat": Flat, "ivf": InvertedFile, "hnsw": Graph}

    def set_threads(self, threads: int) -> None:
        faiss.omp_set_num_threads(threads)


def start() -> Answer:
    return IndexServer(Faiss()).answer


if __name__ == "__main__":
    serve_lines(start)
