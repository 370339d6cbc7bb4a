"""What a model's attention picks on the rows of a sample, with the Keras model that a run keeps."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.explain.attention import picked, rank_holding

PICKED = 5  # tokens a query picks, where the model itself does not say how many
SHARES = (0.9, 0.99)
Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class AttentionLayer:
    """The attention of a layer over a sample.

    Attributes:
        queries, tokens: The names of the maps' rows and columns.
        heads: Each head's average map, `[heads][queries][tokens]`.
        picked: The share of rows and heads in which a token is among the query's k largest, `[queries][tokens]`.
        ranks: Of a layer with composite projections (Hiformer), by head how many singular values of V̂ hold 90% and 99%
            of the sum of their squares; () for other models.
    """

    queries: tuple[str, ...]
    tokens: tuple[str, ...]
    heads: list[list[list[float]]]
    picked: list[list[float]]
    ranks: tuple[tuple[int, int], ...] = ()


def attention_of_rows(model: Any, batches: Iterable[Mapping[str, npt.NDArray[Any]]]) -> list[AttentionLayer]:
    """Returns the attention of each layer over packed rows.

    Args:
        model: A model with `attention_maps`.
        batches: Packed tensors of one batch or more.
    """
    k = getattr(getattr(model, "attention", [None])[0], "top_k", None) or PICKED
    sums: list[Floats] = []
    shares: list[Floats] = []
    rows = 0
    for batch in batches:
        maps = [np.asarray(each, np.float64) for each in model.attention_maps(dict(batch))]
        count = len(maps[0])
        found = [each.sum(axis=0) for each in maps], [picked(each, k) * count for each in maps]
        sums = [before + new for before, new in zip(sums, found[0], strict=True)] if rows else found[0]
        shares = [before + new for before, new in zip(shares, found[1], strict=True)] if rows else found[1]
        rows += count
    tokens = token_names(model)
    singular = model.singular_values() if hasattr(model, "singular_values") else []
    layers = []
    for number, (total, share) in enumerate(zip(sums, shares, strict=True)):
        of_heads = singular[number] if singular else []
        ranks = tuple((rank_holding(head, SHARES[0]), rank_holding(head, SHARES[1])) for head in of_heads)
        # A last layer that computes the task tokens alone has these as queries; they are the last tokens.
        queries = tokens[-total.shape[1] :]
        layers.append(AttentionLayer(queries, tokens, (total / rows).tolist(), (share / rows).tolist(), ranks))
    return layers


def token_names(model: Any) -> tuple[str, ...]:
    """Returns the names of the tokens that a model attends over: fields, dense features, tasks."""
    feature_map = model.feature_map
    names = [field.name for field in feature_map.fields]
    if model.embeds_dense:
        names += feature_map.dense
    names += [f"dense token {number + 1}" for number in range(getattr(model, "dense_tokens", 0))]
    return tuple(names + (list(feature_map.tasks) if getattr(model, "has_task_tokens", False) else []))


def picked_pairs(layers: Iterable[AttentionLayer]) -> dict[frozenset[str], float]:
    """Returns of each pair of tokens how often one picks the other: the mean over both directions and the layers."""
    found: dict[frozenset[str], list[float]] = {}
    for layer in layers:
        for query, shares in zip(layer.queries, layer.picked, strict=True):
            for token, share in zip(layer.tokens, shares, strict=True):
                if query != token:
                    found.setdefault(frozenset((query, token)), []).append(share)
    return {pair: float(np.mean(shares)) for pair, shares in found.items()}
