"""A client of FAISS, which runs in an environment of its own. Standard library and numpy.

Example:
    >>> with Faiss() as faiss:
    ...     faiss.load(items, users, best, threads=2)
    ...     faiss.build("ivf", cells=400, recall=0.95)["setting"]  # cells that an answer reads
    ...     milliseconds, places = faiss.search("ivf", others)
"""

import numpy as np

from benchmarks.peers.client import PeerProcess

INDEXES = ("flat", "ivf", "hnsw")


class Faiss(PeerProcess):
    """FAISS in a process of its own, which keeps the vectors and the indexes that were built of them."""

    def __init__(self) -> None:
        super().__init__("faiss")

    def load(self, items: np.ndarray, users: np.ndarray, best: np.ndarray, threads: int) -> str:
        """Takes vectors, and drops the indexes of former ones; returns FAISS's version.

        Args:
            items: float32 [M, d].
            users: By which an index is set, float32 [N, d].
            best: The places of their best items, [N, top].
            threads: Of OpenMP.
        """
        given = self.folder / "vectors.npz"
        np.savez(given, items=items, users=users, best=best)
        return str(self.ask({"cmd": "load", "in": str(given), "threads": threads})["version"])

    def build(self, index: str, cells: int, recall: float) -> dict[str, float]:
        """Returns the `seconds` that an index of INDEXES took to build, and its least `setting` that finds the share.

        Args:
            index: One of INDEXES.
            cells: Of the inverted file; the others have none.
            recall: The share of the users' best items that is to be found.
        """
        return self.ask({"cmd": "build", "index": index, "cells": cells, "recall": recall})

    def search(self, index: str, users: np.ndarray) -> tuple[list[float], np.ndarray]:
        """Returns the milliseconds of each user's search, and the places of their best items, [N, top]."""
        given, found = self.folder / "users.npz", self.folder / "found.npz"
        np.savez(given, users=users)
        taken = self.ask({"cmd": "search", "index": index, "in": str(given), "out": str(found)})["ms"]
        with np.load(found) as file:
            return taken, file["places"]
