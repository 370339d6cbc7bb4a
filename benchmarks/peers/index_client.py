"""A client of a library of vector indexes, which runs in its own environment. Uses the standard library and numpy only.

Example:
    >>> with IndexPeer("faiss") as faiss:
    ...     faiss.load(items, users, best, threads=2)
    ...     faiss.build("ivf", cells=400, recall=0.95)["setting"]  # cells that an answer reads
    ...     milliseconds, places = faiss.search("ivf", others)
"""

import numpy as np

from benchmarks.peers.client import PeerProcess

# The indexes of each library; the exact ones have no setting.
INDEXES = {"faiss": ("flat", "ivf", "hnsw"), "scann": ("tree",)}
EXACT = ("flat",)


class IndexPeer(PeerProcess):
    """A library of INDEXES in a separate process, which keeps the loaded vectors and the built indexes."""

    def load(self, items: np.ndarray, users: np.ndarray, best: np.ndarray, threads: int) -> str:
        """Loads vectors, drops the indexes of earlier vectors, and returns the library's version.

        Args:
            items: float32 [M, d].
            users: Users for tuning the indexes, float32 [N, d].
            best: Positions of the users' best items, [N, top].
            threads: Threads of a search, if the library supports several.
        """
        given = self.folder / "vectors.npz"
        np.savez(given, items=items, users=users, best=best)
        return str(self.ask({"cmd": "load", "in": str(given), "threads": threads})["version"])

    def build(self, index: str, cells: int, recall: float) -> dict[str, float]:
        """Builds an index; returns its build time in `seconds` and the smallest `setting` that reaches the recall.

        Args:
            index: One of the library's INDEXES.
            cells: Number of cells of an inverted file or a tree; ignored by the others.
            recall: The required share of the users' best items.
        """
        return self.ask({"cmd": "build", "index": index, "cells": cells, "recall": recall})

    def search(self, index: str, users: np.ndarray) -> tuple[list[float], np.ndarray]:
        """Returns the milliseconds of each user's search, and the positions of their best items, [N, top]."""
        given, answers = self.folder / "users.npz", self.folder / "found.npz"
        np.savez(given, users=users)
        taken = self.ask({"cmd": "search", "index": index, "in": str(given), "out": str(answers)})["ms"]
        with np.load(answers) as file:
            return taken, file["places"]
