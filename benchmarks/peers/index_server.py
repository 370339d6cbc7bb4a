"""Serves a library's indexes of inner products by the line protocol. Needs numpy, and the library of its caller.

    {"cmd": "load", "in": "vectors.npz", "threads": 2} -> {"version": str}: `items` [M, d], `users` [N, d], by which an
        index is set, and the places of their best items, `best` [N, top]
    {"cmd": "build", "index": "ivf", "cells": 400, "recall": 0.95} -> {"seconds": float, "setting": int}: the least
        setting that finds this share of the best items; an index of another library has another setting
    {"cmd": "search", "index": "ivf", "in": "users.npz", "out": "found.npz"} -> {"ms": [float, ...]}: each of `users`
        alone; writes the places of their best items, `places`

and {"error": text} for a request that failed.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np


class Index(Protocol):
    """An index of items.

    Attributes:
        least, most: What `set_to` takes. The same number where the index has no setting.
    """

    least: int
    most: int

    def set_to(self, setting: int) -> None:
        """Sets how much of its items a search reads."""

    def search(self, users: np.ndarray) -> np.ndarray:
        """Returns the places of the best items of each user, [N, top]."""


Build = Callable[[np.ndarray, int, int], Index]  # of items [M, d], the number of cells, and `top`


class Library(Protocol):
    """A library that builds indexes.

    Attributes:
        version: Its version.
        builds: By the name of an index, what builds it.
    """

    version: str
    builds: Mapping[str, Build]

    def set_threads(self, threads: int) -> None:
        """Sets how many threads a search may take."""


def least_enough(is_enough: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the least number of [low, high] that is enough, as all above it are; `high` where none is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def share_found(found: np.ndarray, best: np.ndarray) -> float:
    """Returns the share of the best items, [N, top], that are found, [N, top]."""
    return float(np.mean([len(np.intersect1d(*pair)) for pair in zip(found, best, strict=True)]) / best.shape[1])


class IndexServer:
    """The vectors, and the indexes that were built of them."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.indexes: dict[str, Index] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return getattr(self, request.pop("cmd"))(**request)

    def load(self, threads: int, **files: str) -> dict[str, Any]:
        self.library.set_threads(threads)
        self.indexes = {}
        with np.load(files["in"]) as arrays:
            self.items, self.users, self.best = (arrays[name] for name in ("items", "users", "best"))
        return {"version": self.library.version}

    def build(self, index: str, cells: int, recall: float) -> dict[str, Any]:
        began = time.perf_counter()
        built = self.indexes[index] = self.library.builds[index](self.items, cells, self.best.shape[1])
        seconds = time.perf_counter() - began

        def is_enough(setting: int) -> bool:
            built.set_to(setting)
            return share_found(built.search(self.users), self.best) >= recall

        setting = least_enough(is_enough, built.least, built.most)
        built.set_to(setting)
        return {"seconds": seconds, "setting": setting}

    def search(self, index: str, out: str, **files: str) -> dict[str, Any]:
        with np.load(files["in"]) as arrays:
            users = arrays["users"]
        built, taken, places = self.indexes[index], [], []
        for row in range(len(users)):
            user = users[row : row + 1]
            began = time.perf_counter()
            found = built.search(user)
            taken.append(1000 * (time.perf_counter() - began))
            places.append(found[0])
        np.savez(out, places=np.array(places))
        return {"ms": taken}
