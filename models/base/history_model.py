"""The base class of the models that read a history item by item."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras import ops

from ctrpipe.models.base.candidates import by_field, join_rows
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.field_embedding import FieldEmbedding


@dataclasses.dataclass(frozen=True)
class History:
    """A user's history beside the candidate.

    Where `HistoryModel.shares_history`, items, item_ids and is_item may have one row, the same for all candidates.

    Attributes:
        candidate: The candidate's embeddings, concatenated over the aligned sequences, (batch_size, width); zero for a
            sequence that shares its vocabulary with no column.
        items: The items' embeddings, concatenated likewise, (batch_size, length, width), zero for padding.
        item_ids: The ids of the items' first sequence that shares a vocabulary, int32 (batch_size, length).
        is_item: Whether there is an item, bool (batch_size, length).
        is_candidate: Whether an item is the candidate itself, bool (batch_size, length).
    """

    candidate: Tensor
    items: Tensor
    item_ids: Tensor
    is_item: Tensor
    is_candidate: Tensor


class HistoryModel(CTRModel):
    """Base class: gives `interact` the embedding of each slot, and finds the histories and the candidate in them.

    Args:
        feature_map: FeatureMap. At least one history, whose sequences share the vocabulary of at least one field.
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
        ValueError: there is no history, or one that shares no vocabulary.
    """

    pools = False
    needs_history = True
    # Whether `interact` accepts one history for all candidates of a request, (1, length, width), and rows by field.
    shares_history: bool = False

    def __init__(self, feature_map: FeatureMap, **options: Any) -> None:
        super().__init__(feature_map, **options)
        groups = feature_map.histories
        unshared = [group[0].name for group in groups if not any(field.shared_with for field in group)]
        if not groups or unshared:
            found = f"no column is shared with {unshared[0]}" if unshared else "there is none"
            raise ValueError(
                f"{type(self).__name__} needs a sequence with shared_with, the candidate's column; {found}"
            )

    def _embedded(self, table: FieldEmbedding, inputs: Inputs, gathered: Inputs | None) -> Tensor:
        """Returns a table's embedding of each slot, (batch_size, slots, width).

        Of one context and many candidates they are by field where `shares_history`: (1, slots, width) of the context's
        fields, (candidates, slots, width) of the others.
        """
        found = (gathered or {}).get(table.name)
        candidates_have = any(field.kind == "sequence" for field in self.feature_map.candidate_fields)
        if not isinstance(found, Mapping) or not self.shares_history or candidates_have:
            return super()._embedded(table, inputs, gathered)
        return table.masked_by_field(inputs["ids"], found)[0]

    def of_fields(self, rows: Tensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Returns the embeddings of each field's slots, (batch_size, slots, embedding_dim), of what `rows` returns.

        A model that reads histories and other fields takes them apart once: each time costs a gradient of all slots.
        """
        return rows if isinstance(rows, Mapping) else by_field(rows, self.feature_map.fields)

    def histories(self, rows: Tensor, ids: Tensor) -> list[History]:
        """Returns the histories of packed rows.

        Args:
            rows: What `rows` or `of_fields` returns.
            ids: int32 (batch_size, slots).
        """
        slots_of = self.feature_map.slots_of
        of_fields = self.of_fields(rows)
        found = []
        for group in self.feature_map.histories:
            items = [of_fields[field.name] for field in group]
            candidates = [
                of_fields[field.shared_with][:, 0] if field.shared_with else ops.zeros_like(some[:, 0])
                for field, some in zip(group, items, strict=True)
            ]
            shared = next(field for field in group if field.shared_with)
            item_ids = ids[:, slots_of(shared.name)]
            if items[0].shape[0] == 1:
                item_ids = ops.reshape(item_ids[:1], (1, shared.slots))
            is_candidate = item_ids == ids[:, slots_of(shared.shared_with)]
            joined = ops.concatenate(items, axis=2)
            found.append(History(join_rows(candidates), joined, item_ids, item_ids > 0, is_candidate))
        return found

    def other_rows(self, rows: Tensor) -> Tensor:
        """Returns the embeddings of the fields that are no sequence, (batch_size, fields, embedding_dim).

        The values of a multivalent field are summed.
        """
        of_fields = self.of_fields(rows)
        fields = [field for field in self.feature_map.fields if field.kind != "sequence"]
        slots = [of_fields[field.name] for field in fields]
        return join_rows([some if some.shape[1] == 1 else ops.sum(some, axis=1, keepdims=True) for some in slots])

    def beside(self, pooled: list[Tensor], rows: Tensor, inputs: Inputs) -> Tensor:
        """Returns other fields' embeddings, dense features and pooled histories concatenated, (batch_size, width)."""
        return ops.concatenate([self.flatten(self.other_rows(rows), inputs), *pooled], axis=1)
