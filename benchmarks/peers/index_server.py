"""Serves a library's inner-product indexes by the line protocol. Needs numpy and the caller's library.

    {"cmd": "load", "in": "vectors.npz", "threads": 2} -> {"version": str}: reads `items` [M, d], `users` [N, d] for
        tuning the indexes, and the positions of their best items, `best` [N, top]
    {"cmd": "build", "index": "ivf", "cells": 400, "recall": 0.95} -> {"seconds": float, "setting": int}: the smallest
        setting that reaches the recall; the setting's meaning depends on the index
    {"cmd": "search", "index": "ivf", "in": "users.npz", "out": "found.npz"} -> {"ms": [float, ...]}: one search per
        user; writes the positions of their best items, `places`

A failed request gets {"error": text}.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np


class Index(Protocol):
    """An index of items.

    Attributes:
        least, most: The range of `set_to`; equal if the index has no setting.
    """

    least: int
    most: int

    def set_to(self, setting: int) -> None:
        """Sets how many cells or candidates a search reads."""

    def search(self, users: np.ndarray) -> np.ndarray:
        """Returns the positions of each user's best items, [N, top]."""


Build = Callable[[np.ndarray, int, int], Index]  # from items [M, d], the number of cells, and `top`


class Library(Protocol):
    """A library that builds indexes.

    Attributes:
        version: Its version.
        builds: The function that builds each index, by name.
    """

    version: str
    builds: Mapping[str, Build]

    def set_threads(self, threads: int) -> None:
        """Sets the number of threads of a search."""


def least_enough(is_enough: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the smallest number in [low, high] that is enough, by bisection; `high` if none is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def share_found(found: np.ndarray, best: np.ndarray) -> float:
    """Returns the share of the best items, [N, top], in the found items, [N, top]."""
    return float(np.mean([len(np.intersect1d(*pair)) for pair in zip(found, best, strict=True)]) / best.shape[1])


class IndexServer:
    """Keeps the loaded vectors and the built indexes, and answers requests."""

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
            answer = built.search(user)
            taken.append(1000 * (time.perf_counter() - began))
            places.append(answer[0])
        np.savez(out, places=np.array(places))
        return {"ms": taken}
