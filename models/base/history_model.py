"""Base class of the models that read a history item by item."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras import ops

from ctrpipe.models.base.candidates import by_field, join_rows
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, FeatureMap, Field
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.field_embedding import FieldEmbedding


@dataclasses.dataclass(frozen=True)
class History:
    """A user's history and the candidate.

    If `HistoryModel.shares_history`, then `items`, `item_ids` and `is_item` may have one row that all candidates share.

    Attributes:
        candidate: The candidate's embeddings, concatenated over the aligned sequences, (batch_size, width); zero for a
            sequence without `shared_with`.
        items: The items' embeddings, concatenated in the same way, (batch_size, length, width); zero for padding.
        item_ids: The items' ids in the first sequence with `shared_with`, int32 (batch_size, length).
        is_item: False for padding, bool (batch_size, length).
        is_candidate: Whether the item is the candidate itself, bool (batch_size, length).
    """

    candidate: Tensor
    items: Tensor
    item_ids: Tensor
    is_item: Tensor
    is_candidate: Tensor


class HistoryModel(CTRModel):
    """Base class of history models: embeds each slot separately and extracts the histories.

    Args:
        feature_map: FeatureMap. Must have a history; every history must have a sequence with `shared_with`.
        **options: Options of CTRModel.

    Example:
        >>> class SumOfProducts(HistoryModel):
        ...     def interact(self, rows, inputs, training=None):
        ...         history, = self.histories(rows, inputs["ids"])
        ...         return ops.sum(history.candidate[:, None] * history.items, axis=(1, 2))[:, None]
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = SumOfProducts(FeatureMap.from_sizes([item, history]), embedding_dim=4)
        >>> inputs = {"ids": ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no history, or a history has no sequence with `shared_with`.
    """

    pools = False
    needs_history = True
    # Whether `interact` accepts embeddings by field, and one history, (1, length, width), for all candidates of a
    # request.
    shares_history: bool = False

    def __init__(self, feature_map: FeatureMap, **options: Any) -> None:
        super().__init__(feature_map, **options)
        groups = feature_map.histories
        unshared = [group[0].name for group in groups if not any(field.shared_with for field in group)]
        if not groups or unshared:
            reason = f"no column is shared with {unshared[0]}" if unshared else "there is none"
            raise ValueError(
                f"{type(self).__name__} needs a sequence with shared_with, the candidate's column; {reason}"
            )

    def _embedded(self, table: FieldEmbedding, inputs: Inputs, gathered: Inputs | None) -> Tensor:
        """Returns a table's embedding of each slot, (batch_size, slots, width).

        For one context and many candidates, if `shares_history` is set and no sequence belongs to the candidate,
        returns them by field: (1, slots, width) for the context's fields, (candidates, slots, width) for the others.
        """
        given = (gathered or {}).get(table.name)
        candidates_have = any(field.kind == "sequence" for field in self.feature_map.candidate_fields)
        if not isinstance(given, Mapping) or not self.shares_history or candidates_have:
            return super()._embedded(table, inputs, gathered)
        return table.masked_by_field(inputs["ids"], given, inputs.get(SLOT_WEIGHTS))[0]

    def of_fields(self, rows: Tensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Returns the output of `rows` split by field, (batch_size, slots, embedding_dim) each.

        A model that reads histories and other fields should call this once: each split costs a gradient of all slots.
        """
        return rows if isinstance(rows, Mapping) else by_field(rows, self.feature_map.fields)

    def histories(self, rows: Tensor, ids: Tensor) -> list[History]:
        """Returns the histories of packed rows.

        Args:
            rows: The output of `rows` or of `of_fields`.
            ids: int32 (batch_size, slots).
        """
        slots_of = self.feature_map.slots_of
        of_fields = self.of_fields(rows)
        histories = []
        for group in self.feature_map.histories:
            items = [_of_items(of_fields[field.name], ids[:, slots_of(field.name)], field) for field in group]
            candidates = [
                of_fields[field.shared_with][:, 0] if field.shared_with else ops.zeros_like(some[:, 0])
                for field, some in zip(group, items, strict=True)
            ]
            shared = next(field for field in group if field.shared_with)
            item_ids = ids[:, slots_of(shared.name)][:, :: shared.per_item]
            if items[0].shape[0] == 1:
                item_ids = ops.reshape(item_ids[:1], (1, shared.length))
            is_candidate = item_ids == ids[:, slots_of(shared.shared_with)]
            joined = ops.concatenate(items, axis=2)
            histories.append(History(join_rows(candidates), joined, item_ids, item_ids > 0, is_candidate))
        return histories

    def other_rows(self, rows: Tensor) -> Tensor:
        """Returns the embeddings of the fields that are not sequences, (batch_size, fields, embedding_dim).

        The values of a multivalent field are summed.
        """
        of_fields = self.of_fields(rows)
        fields = [field for field in self.feature_map.fields if field.kind != "sequence"]
        slots = [of_fields[field.name] for field in fields]
        return join_rows([some if some.shape[1] == 1 else ops.sum(some, axis=1, keepdims=True) for some in slots])

    def beside(self, pooled: list[Tensor], rows: Tensor, inputs: Inputs) -> Tensor:
        """Concatenates other fields' embeddings, dense features and pooled histories, (batch_size, width)."""
        return ops.concatenate([self.flatten(self.other_rows(rows), inputs), *pooled], axis=1)


def _of_items(rows: Tensor, ids: Tensor, field: Field) -> Tensor:
    """Returns one embedding of each item, (batch_size, length, width): the mean over the item's values.

    Args:
        rows: The embeddings of the slots, (batch_size, slots, width), zero for padding; or (1, slots, width).
        ids: The ids of the slots, int32 (batch_size, slots).
        field: The sequence.
    """
    if field.per_item == 1:
        return rows
    if rows.shape[0] == 1:
        ids = ops.reshape(ids[:1], (1, field.slots))
    first = 1 if rows.shape[0] == 1 else -1
    several = ops.reshape(rows, (first, field.length, field.per_item, rows.shape[2]))
    is_value = ops.cast(ops.reshape(ids, (first, field.length, field.per_item, 1)) > 0, rows.dtype)
    return ops.sum(several, axis=2) / ops.maximum(ops.sum(is_value, axis=2), 1)
