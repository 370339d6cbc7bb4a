"""Runs the rows of a request in pieces.

TensorFlow does not interrupt an operation. An operation on 260,000 rows takes seconds, and a request of ten rows would
wait for it, so a large request runs one piece after another. A smaller request runs its pieces side by side if
processors are idle. In a model exported by ctrpipe an answer depends only on its own row, so pieces give the same
answers.
"""

import collections
import concurrent.futures
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np

from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import LoadedServable, Servable

Key = TypeVar("Key", bound=Hashable)
_SIGNATURES = {
    "serving_raw",
    "serving_explain",
    "serving_default",
    "serving_packed",
    "serving_user",
    "serving_item",
    "serving_retrieve",
    "serving_retrieve_approximate",
    "serving_candidates",  # the user's columns have one row
    "regress",
    "transform_features",
    "transform_raw",
}


def may_run_in_pieces(servable: LoadedServable, signature: str) -> bool:
    """Returns whether a signature answers each row independently, and its rows are not batched with other requests."""
    is_ours = isinstance(servable, Servable) and asset_path(servable.path, Asset.FEATURE_MAP).exists()
    return is_ours and signature in _SIGNATURES


def run_in_pieces(
    run: Callable[[dict[str, np.ndarray]], dict[Key, np.ndarray]],
    inputs: Mapping[str, np.ndarray],
    piece_rows: int,
    pool: concurrent.futures.Executor | None = None,
    helpers: int = 0,
) -> dict[Key, np.ndarray]:
    """Calls `run` with `piece_rows` rows at a time, and returns all outputs.

    If other inputs have many rows, an input of one row is passed with each piece. This thread takes pieces until none
    is left, so a helper that gets no processor does not delay the answer.

    Args:
        run: Returns the outputs of a piece, with a row for each of its rows. Thread-safe if there are helpers.
        inputs: The inputs of all rows.
        piece_rows: Rows of a piece.
        pool: The helpers' threads.
        helpers: How many other threads take pieces too.
    """
    rows = max(len(array) for array in inputs.values())
    if any(len(array) not in (1, rows) for array in inputs.values()):
        return run(dict(inputs))  # for its error
    waiting = collections.deque(range(0, rows, piece_rows))
    parts: dict[int, dict[Key, np.ndarray]] = {}

    def take_pieces() -> None:
        while waiting:
            try:
                start = waiting.popleft()
            except IndexError:  # another thread has taken the last one
                return
            parts[start] = run(_piece(inputs, start, piece_rows))

    others = [pool.submit(take_pieces) for _ in range(helpers)] if pool else []
    try:
        take_pieces()
        for other in others:
            if not other.cancel():
                other.result()
    finally:
        waiting.clear()
        concurrent.futures.wait([other for other in others if not other.cancel()])  # they hold memory until then
    return {key: np.concatenate([parts[start][key] for start in sorted(parts)]) for key in parts[0]}


def _piece(inputs: Mapping[str, np.ndarray], start: int, rows: int) -> dict[str, np.ndarray]:
    return {name: array if len(array) == 1 else array[start : start + rows] for name, array in inputs.items()}
