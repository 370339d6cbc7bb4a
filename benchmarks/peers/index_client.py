"""A client of a library of indexes, which runs in an environment of its own. Standard library and numpy.

Example:
    >>> with IndexPeer("faiss") as faiss:
    ...     faiss.load(items, users, best, threads=2)
    ...     faiss.build("ivf", cells=400, recall=0.95)["setting"]  # cells that an answer reads
    ...     milliseconds, places = faiss.search("ivf", others)
"""

import numpy as np

from benchmarks.peers.client import PeerProcess

# Each library's indexes; the exact ones have no setting.
INDEXES = {"faiss": ("flat", "ivf", "hnsw"), "scann": ("tree",)}
EXACT = ("flat",)


class IndexPeer(PeerProcess):
    """A library of INDEXES in a process of its own, which keeps the vectors and the indexes that were built of them."""

    def load(self, items: np.ndarray, users: np.ndarray, best: np.ndarray, threads: int) -> str:
        """Takes vectors, and drops the indexes of former ones; returns the library's version.

        Args:
            items: float32 [M, d].
            users: By which an index is set, float32 [N, d].
            best: The places of their best items, [N, top].
            threads: Of a search, where the library can take several.
        """
        given = self.folder / "vectors.npz"
        np.savez(given, items=items, users=users, best=best)
        return str(self.ask({"cmd": "load", "in": str(given), "threads": threads})["version"])

    def build(self, index: str, cells: int, recall: float) -> dict[str, float]:
        """Returns the `seconds` that an index took to build, and its least `setting` that finds the share.

        Args:
            index: One of the library's INDEXES.
            cells: Of an inverted file or a tree; the others have none.
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
