"""Factored item similarity model."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import History, HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.models.layers.one_history import inner_products


@keras.saving.register_keras_serializable(package="ctrpipe")
class FISM(HistoryModel):
    """Factored item similarity: similarity of the candidate to the equally weighted items of the history.

    `logit = linear part + n^-α Σ_{j in history, j ≠ i} <p_i, q_j>`. An item has two embeddings: p as the candidate and
    q in a history. n is the number of summed items; the candidate is left out of its own history. The linear part
    covers all fields except sequences. Its weights of the user and of the item are the paper's biases.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`, and one task.
        alpha: float. α, from 0 (sum) to 1 (mean). Defaults to 0.5.
        use_linear: bool. Whether to add the linear part. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = FISM(FeatureMap.from_sizes([item, history]), embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, or the data has several tasks.

    References:
        Kabbur et al., "FISM: Factored Item Similarity Models for Top-N Recommender Systems", 2013, equation 4.
    """

    shares_history = True

    def __init__(self, feature_map: FeatureMap, *, alpha: float = 0.5, use_linear: bool = True, **options: Any) -> None:
        require_one_task(type(self).__name__.lower(), feature_map)
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.alpha = alpha
        assert self.table is not None
        self.history_table = FieldEmbedding(
            feature_map, self.table.dim, self.table.stddev, self.table.l2, name="history_embedding"
        )

    def tables(self) -> list[FieldEmbedding]:
        return [*super().tables(), self.history_table]

    def value_tables(self) -> list[FieldEmbedding]:
        return [*super().value_tables(), self.history_table]

    def linear_weights(self, inputs: Inputs, gathered: Inputs | None = None) -> Tensor:
        """Returns the weight of each field that is not a sequence, (batch_size, fields, tasks)."""
        fields = enumerate(self.feature_map.fields)
        weights = super().linear_weights(inputs, gathered)
        return ops.take(weights, [n for n, field in fields if field.kind != "sequence"], axis=1)

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        both = {"history_embedding": self.history_table, "linear_dense": self.linear_dense}
        return {**super().shared_layers(), **both}

    def rows(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        """Returns both embeddings of each slot, concatenated, (batch_size, slots, 2 embedding_dim)."""
        as_candidate = super().rows(inputs, training, gathered)
        assert as_candidate is not None
        in_history = self._embedded(self.history_table, inputs, gathered)
        if isinstance(in_history, Mapping):
            return {name: ops.concatenate([as_candidate[name], in_history[name]], axis=2) for name in in_history}
        if self.embedding_drop:
            in_history = self.embedding_drop(in_history, training=training)
        return ops.concatenate([as_candidate, in_history], axis=2)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        as_candidate, in_history = _halves(rows)
        pairs = zip(self.histories(as_candidate, inputs["ids"]), self.histories(in_history, inputs["ids"]), strict=True)
        logits = [self._similarity(first.candidate, second, number) for number, (first, second) in enumerate(pairs)]
        return sum(logits[1:], start=logits[0])

    def _similarity(self, candidate: Tensor, history: History, number: int) -> Tensor:
        """Returns the logit of one history, float32 (batch_size, 1).

        Args:
            candidate: p_i, (batch_size, width).
            history: The history, with the items' embeddings q_j.
            number: The index of the history.
        """
        counted = ops.logical_and(history.is_item, ops.logical_not(history.is_candidate))
        products = ops.cast(inner_products(candidate, history.items), "float32")
        return ops.sum(self._weights(candidate, history, counted, number) * products, axis=1, keepdims=True)

    def _weights(self, candidate: Tensor, history: History, counted: Tensor, number: int) -> Tensor:
        """Returns the weight of each item, float32 (batch_size, length); zero for items that are not counted."""
        one = ops.cast(counted, "float32")
        return one * ops.maximum(ops.sum(one, axis=1, keepdims=True), 1.0) ** -self.alpha


def _halves(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first and the second embeddings from the output of `FISM.rows`."""
    if isinstance(rows, Mapping):
        halves = {name: _halves(both) for name, both in rows.items()}
        return {name: one for name, (one, _) in halves.items()}, {name: one for name, (_, one) in halves.items()}
    first, second = ops.split(rows, 2, axis=2)
    return first, second
