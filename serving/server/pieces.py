"""Runs the rows of a large request in pieces, so no operation blocks other clients for long.

TensorFlow does not interrupt an operation. An operation on 260,000 rows takes seconds, during which a request of ten
rows would wait. In a model exported by ctrpipe an answer depends only on its own row, so pieces give the same answers.
"""

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
    run: Callable[[dict[str, np.ndarray]], dict[Key, np.ndarray]], inputs: Mapping[str, np.ndarray], piece_rows: int
) -> dict[Key, np.ndarray]:
    """Calls `run` with `piece_rows` rows at a time, and returns all outputs.

    An input of one row, beside others of many, is passed with each piece.

    Args:
        run: Returns the outputs of a piece, with a row for each of its rows.
        inputs: The inputs of all rows.
        piece_rows: Rows of a piece.
    """
    rows = max(len(array) for array in inputs.values())
    if any(len(array) not in (1, rows) for array in inputs.values()):
        return run(dict(inputs))  # for its error
    parts = []
    for start in range(0, rows, piece_rows):
        part = {name: array if len(array) == 1 else array[start : start + piece_rows] for name, array in inputs.items()}
        parts.append(run(part))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
