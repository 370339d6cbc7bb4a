"""A model's attention on a sample of rows, computed with the Keras model that a run keeps."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.explain.attention import picked_by_row, rank_holding

PICKED = 5  # tokens that a query picks, if the model has no top_k
SHARES = (0.9, 0.99)
Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class AttentionLayer:
    """The attention of a layer over a sample.

    Attributes:
        queries, tokens: The names of the maps' rows and columns.
        heads: Each head's average map, `[heads][queries][tokens]`.
        picked: The share of rows and heads in which a token is among the query's k largest, `[queries][tokens]`.
        ranks: For a layer with composite projections (Hiformer), how many singular values of V̂ hold 90% and 99% of the
            sum of their squares, for each head. () for other models.
    """

    queries: tuple[str, ...]
    tokens: tuple[str, ...]
    heads: list[list[list[float]]]
    picked: list[list[float]]
    ranks: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class PickedRows:
    """How often one token of a pair picks the other, for each row: the mean over heads and layers.

    Attributes:
        tokens: The tokens' names.
        shares: `[rows, tokens, tokens]`, symmetric. NaN if neither token is ever a query.
    """

    tokens: tuple[str, ...]
    shares: npt.NDArray[np.float32]

    def of(self, first: str, second: str) -> npt.NDArray[np.float32] | None:
        """Returns the shares of a pair of tokens, `[rows]`, or None if the model does not attend over both."""
        if not {first, second} <= set(self.tokens):
            return None
        shares = self.shares[:, self.tokens.index(first), self.tokens.index(second)]
        return None if np.isnan(shares).any() else shares


def attention_of_rows(
    model: CTRModel, batches: Iterable[Mapping[str, npt.NDArray[Any]]]
) -> tuple[list[AttentionLayer], PickedRows]:
    """Returns the attention of each layer over packed rows, and the tokens picked in each row.

    Args:
        model: A model with `attention_maps`.
        batches: Packed tensors of one batch or more.
    """
    k = getattr(getattr(model, "attention", [None])[0], "top_k", None) or PICKED
    sums: list[Floats] = []
    shares: list[Floats] = []
    picks = []
    rows = 0
    tokens = token_names(model)
    for batch in batches:
        maps = [np.asarray(each, np.float64) for each in model.attention_maps(dict(batch))]
        by_row = [picked_by_row(each, k) for each in maps]
        of_batch = [each.sum(axis=0) for each in maps], [each.sum(axis=0) for each in by_row]
        sums = [before + new for before, new in zip(sums, of_batch[0], strict=True)] if rows else of_batch[0]
        shares = [before + new for before, new in zip(shares, of_batch[1], strict=True)] if rows else of_batch[1]
        picks.append(_both_ways(by_row, len(tokens)))
        rows += len(maps[0])
    singular = model.singular_values() if hasattr(model, "singular_values") else []
    layers = []
    for number, (total, share) in enumerate(zip(sums, shares, strict=True)):
        of_heads = singular[number] if singular else []
        ranks = tuple((rank_holding(head, SHARES[0]), rank_holding(head, SHARES[1])) for head in of_heads)
        # A last layer that computes only the task tokens has them as queries. They are the last tokens.
        queries = tokens[-total.shape[1] :]
        layers.append(AttentionLayer(queries, tokens, (total / rows).tolist(), (share / rows).tolist(), ranks))
    return layers, PickedRows(tokens, np.concatenate(picks))


def _both_ways(layers: list[Floats], tokens: int) -> npt.NDArray[np.float32]:
    """Returns the mean picked shares over layers and both directions, `[rows, tokens, tokens]`."""
    total = np.zeros((len(layers[0]), tokens, tokens), np.float32)
    count = np.zeros((tokens, tokens), np.float32)
    for each in layers:
        queries = each.shape[1]
        total[:, -queries:] += each
        count[-queries:] += 1
    both = count + count.T
    shares: npt.NDArray[np.float32] = np.full_like(total, np.nan)
    np.divide(total + total.swapaxes(1, 2), both, out=shares, where=both > 0)
    return shares


def token_names(model: CTRModel) -> tuple[str, ...]:
    """Returns the names of the tokens that a model attends over: fields, dense features, tasks."""
    feature_map = model.feature_map
    names = [field.name for field in feature_map.fields]
    if model.embeds_dense:
        names += feature_map.dense
    names += [f"dense token {number + 1}" for number in range(getattr(model, "dense_tokens", 0))]
    return tuple(names + (list(feature_map.tasks) if getattr(model, "has_task_tokens", False) else []))


def picked_pairs(rows: PickedRows) -> dict[frozenset[str], float]:
    """Returns how often one token of each pair picks the other: the mean over rows, directions and layers."""
    mean = rows.shares.mean(axis=0)
    pairs = zip(*np.triu_indices(len(rows.tokens), 1), strict=True)
    return {
        frozenset((rows.tokens[first], rows.tokens[second])): float(mean[first, second])
        for first, second in pairs
        if not np.isnan(mean[first, second])
    }
