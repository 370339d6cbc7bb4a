"""Serves FAISS's indexes of inner products by the line protocol. Needs faiss and numpy only.

    {"cmd": "load", "in": "vectors.npz", "threads": 2} -> {"version": str}: `items` [M, d], `users` [N, d], by which an
        index is set, and the places of their best items, `best` [N, top]
    {"cmd": "build", "index": "ivf", "cells": 400, "recall": 0.95} -> {"seconds": float, "setting": int}: the least
        setting (the cells of "ivf" that are read, the candidates of "hnsw") that finds this share of the best items
    {"cmd": "search", "index": "ivf", "in": "users.npz", "out": "found.npz"} -> {"ms": [float, ...]}: each of `users`
        alone; writes the places of their best items, `places`

and {"error": text} for a request that failed. The exact index is "flat", which has no setting.
"""

import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from line_server import Answer, serve_lines

NEIGHBOURS = 32  # of a node of HNSW's graph, as in FAISS's examples
MOST_CANDIDATES = 4096


def build_flat(items: np.ndarray, _cells: int) -> Any:
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    return index


def build_ivf(items: np.ndarray, cells: int) -> Any:
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(items.shape[1]), items.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    index.train(items)
    index.add(items)
    return index


def build_hnsw(items: np.ndarray, _cells: int) -> Any:
    index = faiss.IndexHNSWFlat(items.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    index.add(items)
    return index


BUILD = {"flat": build_flat, "ivf": build_ivf, "hnsw": build_hnsw}


def set_to(index: Any, setting: int) -> None:
    """Sets how much of its items an index reads; the exact index has no such setting."""
    if hasattr(index, "nprobe"):
        index.nprobe = setting
    elif hasattr(index, "hnsw"):
        index.hnsw.efSearch = setting


def limits(index: Any, top: int) -> tuple[int, int]:
    """Returns the least and the most that `set_to` takes."""
    if hasattr(index, "nprobe"):
        return 1, index.nlist
    return (top, MOST_CANDIDATES) if hasattr(index, "hnsw") else (1, 1)


def least(is_enough: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the least number of [low, high] that is enough, as all above it are; `high` where none is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def share_found(found: np.ndarray, best: np.ndarray) -> float:
    """Returns the share of the best items, [N, top], that are found, [N, top]."""
    return float(np.mean([len(np.intersect1d(*pair)) for pair in zip(found, best, strict=True)]) / best.shape[1])


class Server:
    """The vectors, and the indexes that were built of them."""

    def __init__(self) -> None:
        self.indexes: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return getattr(self, request.pop("cmd"))(**request)

    def load(self, threads: int, **files: str) -> dict[str, Any]:
        faiss.omp_set_num_threads(threads)
        self.indexes = {}
        with np.load(files["in"]) as arrays:
            self.items, self.users, self.best = (arrays[name] for name in ("items", "users", "best"))
        return {"version": faiss.__version__}

    def build(self, index: str, cells: int, recall: float) -> dict[str, Any]:
        began = time.perf_counter()
        built = self.indexes[index] = BUILD[index](self.items, cells)
        seconds, top = time.perf_counter() - began, self.best.shape[1]

        def is_enough(setting: int) -> bool:
            set_to(built, setting)
            return share_found(built.search(self.users, top)[1], self.best) >= recall

        setting = least(is_enough, *limits(built, top))
        set_to(built, setting)
        return {"seconds": seconds, "setting": setting}

    def search(self, index: str, out: str, **files: str) -> dict[str, Any]:
        with np.load(files["in"]) as arrays:
            users = arrays["users"]
        built, top, taken, places = self.indexes[index], self.best.shape[1], [], []
        for row in range(len(users)):
            user = users[row : row + 1]
            began = time.perf_counter()
            found = built.search(user, top)
            taken.append(1000 * (time.perf_counter() - began))
            places.append(found[1][0])
        np.savez(out, places=np.array(places))
        return {"ms": taken}


def start() -> Answer:
    return Server().answer


if __name__ == "__main__":
    serve_lines(start)
