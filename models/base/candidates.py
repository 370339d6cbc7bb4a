"""Joins one context, such as a user with a history, with many candidates into one batch.

The slots of `FeatureMap.candidate_fields` and `candidate_dense` belong to the candidate. All other slots and the text
belong to the context. A tensor whose first dimension is 1 is shared by all rows.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from keras import ops

from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, FeatureMap, Field
from ctrpipe.models.base.tensors import Inputs, Tensor

TEXT = ("tokens", "segments")


def join_rows(parts: Sequence[Tensor]) -> Tensor:
    """Returns tensors (batch_size, ...) concatenated along axis 1; a tensor (1, ...) is broadcast to all rows."""
    of_rows = [part for part in parts if part.shape[0] != 1]
    if of_rows and len(of_rows) < len(parts):
        count = ops.shape(of_rows[0])[0]
        parts = [part if part.shape[0] != 1 else ops.broadcast_to(part, (count, *part.shape[1:])) for part in parts]
    return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def join_candidates(feature_map: FeatureMap, context: Inputs, candidates: Inputs) -> dict[str, Tensor]:
    """Returns the packed tensors of all candidates, joined with the context; the text keeps its single row.

    Args:
        feature_map: The description of the packed tensors.
        context: Packed tensors (1, ...) without the candidate's slots.
        candidates: Packed tensors (candidates, ...) with the candidate's slots only.
    """
    rows = ops.shape(next(iter(candidates.values())))[0]
    of_candidate = {field.name for field in feature_map.candidate_fields} | set(feature_map.candidate_dense)
    widths = {
        "ids": [(field.name, field.slots) for field in feature_map.fields],
        "dense": list(feature_map.widths.items()),
        "numbers": [(name, 2) for name in feature_map.numbers],
        SLOT_WEIGHTS: [(field.name, field.slots) for field in feature_map.fields if field.weighted],
    }
    joined = {name: context[name] for name in TEXT if name in context}
    for tensor, columns in widths.items():
        sides = [side[tensor] for side in (context, candidates) if tensor in side]
        if not sides:
            continue
        is_candidates = [name in of_candidate for name, width in columns for _ in range(width)]
        both = join_rows(sides)
        if both.shape[0] == 1:
            both = ops.broadcast_to(both, (rows, both.shape[1]))
        # In `both`, the context's slots come first; `places` restores the order of the feature map.
        places = np.argsort(np.argsort(is_candidates, kind="stable")).astype("int32")
        joined[tensor] = both if (np.diff(places) == 1).all() else ops.take(both, places, axis=1)
    return joined


def rows_by_field(feature_map: FeatureMap, table: Tensor, context: Inputs, candidates: Inputs) -> dict[str, Tensor]:
    """Returns embeddings by field: (1, slots, dim) for the context's fields, (candidates, slots, dim) for the others.

    Args:
        feature_map: The description of the packed tensors.
        table: The embedding table, (ids, dim).
        context, candidates: See `join_candidates`; both have ids.
    """
    of_candidate = feature_map.candidate_fields
    of_context = [field for field in feature_map.fields if field not in of_candidate]
    rows = by_field(ops.take(table, context["ids"], axis=0), of_context)
    return rows | by_field(ops.take(table, candidates["ids"], axis=0), of_candidate)


def by_field(rows: Tensor, fields: Iterable[Field]) -> dict[str, Tensor]:
    """Returns a tensor (batch_size, slots, ...) split by field, for fields in the order of its slots.

    A single split is used instead of slices: the gradient of every slice would be as large as the whole tensor, and
    there are many fields.
    """
    fields = tuple(fields)
    if len(fields) < 2:
        return {field.name: rows for field in fields}
    ends = np.cumsum([field.slots for field in fields]).tolist()
    return {field.name: part for field, part in zip(fields, ops.split(rows, ends[:-1], axis=1), strict=True)}
