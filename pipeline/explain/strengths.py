"""The strengths of the pairwise interactions that a model has learned."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ctrpipe.models.base.ctr_model import CTRModel


def learned_strengths(
    model: CTRModel, batches: Iterable[Mapping[str, npt.NDArray[Any]]]
) -> dict[frozenset[str], float]:
    """Returns the strength of each pair of fields and dense features, by their names.

    Args:
        model: A model with `pair_strengths`.
        batches: Packed tensors of one batch or more, for the covariances of the embeddings.
    """
    names = [*(field.name for field in model.feature_map.fields), *model.feature_map.dense]
    strengths = model.pair_strengths(covariances(model, batches))
    pairs: dict[frozenset[str], float] = {}
    for first, second in zip(*np.triu_indices(len(names), 1), strict=True):
        pair = frozenset((names[first], names[second]))
        if len(pair) == 2:  # a field and its pretrained vector are one column
            pairs[pair] = pairs.get(pair, 0.0) + float(strengths[first, second])
    return pairs


def covariances(model: CTRModel, batches: Iterable[Mapping[str, npt.NDArray[Any]]]) -> list[npt.NDArray[np.float64]]:
    """Returns the covariance over rows of each field's embedding and of each dense feature, `[width, width]`."""
    rows = 0
    sums: list[npt.NDArray[np.float64]] = []
    squares: list[npt.NDArray[np.float64]] = []
    for batch in batches:
        parts = [np.asarray(part, np.float64) for part in _parts(model, dict(batch))]
        new = [part.sum(axis=0) for part in parts], [part.T @ part for part in parts]
        sums = [before + one for before, one in zip(sums, new[0], strict=True)] if rows else new[0]
        squares = [before + one for before, one in zip(squares, new[1], strict=True)] if rows else new[1]
        rows += len(parts[0])
    return [square / rows - np.outer(total / rows, total / rows) for square, total in zip(squares, sums, strict=True)]


def _parts(model: CTRModel, inputs: dict[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Returns the embedding of each field and each dense feature, `[rows, width]` each."""
    looked_up = np.asarray(model.rows(inputs))
    parts = list(looked_up.swapaxes(0, 1))
    if "dense" in inputs and not model.embeds_dense:
        ends = np.cumsum(list(model.feature_map.widths.values()))
        parts += np.split(inputs["dense"], ends[:-1], axis=1)
    return parts
