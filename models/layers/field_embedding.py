"""One embedding table for all fields."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
from keras import ops

from ctrpipe.models.base.candidates import by_field, join_rows
from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import FeatureMap, Field
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldEmbedding(keras.layers.Layer):
    """Embeds packed ids with one table for all fields, and pools the slots of each field.

    `output_f = Σ_{s in slots of f} w_s table[ids_s]`, where id 0 (padding) counts as zero. The field's `pooling` sets
    the weights w: 1 (sum), 1 / items (mean), or the softmax over the items of `<table[ids_s], table[candidate]>`
    (attention). A weighted field uses the weights of its slots. A field without items has a zero embedding.

    Args:
        feature_map: FeatureMap. The description of the packed ids.
        dim: int. Width of an embedding.
        stddev: float. Standard deviation of the initial values; 0 starts from zero. Defaults to 0.001, as in the
            Attention-Net paper.
        l2: float. Strength λ of the penalty λ/2·Σ‖row‖², averaged over the batch. Only looked-up rows count: the cost
            of a step does not grow with the table. Defaults to 0.
        attends: bool. Whether the pooling "attention" uses attention. If False, it is the mean, as for linear weights.
            Defaults to True.
        max_norm: float. Maximum length r of an embedding: after a training step, a changed row that is longer is scaled
            to length r. Defaults to 0, no limit.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("tags", "multivalent", 50, 2)])
        >>> ids = keras.ops.array([[3, 105, 107], [7, 110, 0]])  # (batch_size, slots)
        >>> keras.ops.shape(FieldEmbedding(feature_map, dim=8)(ids))  # (batch_size, fields, dim)
        (2, 2, 8)

    Raises:
        ValueError: `dim` is not positive, or `l2` or `max_norm` is negative.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        dim: int,
        stddev: float = 0.001,
        l2: float = 0.0,
        attends: bool = True,
        max_norm: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(dim=dim)
        if l2 < 0:
            raise ValueError(f"`l2` should be non-negative. Received: l2={l2}")
        if max_norm < 0:
            raise ValueError(f"`max_norm` should be non-negative. Received: max_norm={max_norm}")
        self.feature_map = feature_map
        self.dim = dim
        self.stddev = stddev
        self.l2 = l2
        self.attends = attends
        self.max_norm = max_norm

    def build(self, input_shape: Shape) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(_sharded_rows(self.feature_map.total_ids), self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev) if self.stddev else "zeros",
            # Keras's optimizers apply it to the table; the trainers' row optimizers apply it to the rows of a batch.
            constraint=keras.constraints.MaxNorm(self.max_norm, axis=1) if self.max_norm else None,
        )

    def call(
        self,
        ids: Tensor,
        gathered: Tensor | Mapping[str, Tensor] | None = None,
        pooled: bool = True,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Maps int32 (batch_size, slots) to (batch_size, fields, dim).

        Args:
            ids: Packed ids.
            gathered: The table's rows for the ids, (batch_size, slots, dim), if the caller has already looked them up.
                A trainer that updates only a batch's rows differentiates with respect to them. A mapping by field holds
                (batch_size, field's slots, dim), or (1, field's slots, dim) for a field that all rows share.
            pooled: If False, returns the embedding of each slot, (batch_size, slots, dim), zero for padding.
            weights: The weights of the weighted fields' slots, (batch_size, weighted slots); None without such fields.
        """
        if isinstance(gathered, Mapping):
            return self._by_field(ids, gathered, pooled, weights)
        rows = ops.take(self.table, ids, axis=0) if gathered is None else gathered
        rows = ops.cast(rows, self.compute_dtype)
        if any(field.slots > 1 or field.kind == "sequence" or field.weighted for field in self.feature_map.fields):
            # Only multivalent fields and sequences have padding to mask.
            is_item = ops.cast(ops.expand_dims(ids > 0, -1), rows.dtype)
            fields = self.feature_map.fields
            rows = rows * (is_item if weights is None else is_item * self._of_all_slots(ids, weights))
            if pooled:
                rows_of, is_item_of = by_field(rows, fields), by_field(is_item, fields)
                pools = [self._pool(field, rows_of, is_item_of[field.name]) for field in fields]
                rows = ops.concatenate(pools, axis=1)
        if self.l2:
            squares = ops.sum(ops.square(ops.cast(rows, "float32")), axis=(1, 2))
            self.add_loss(0.5 * self.l2 * ops.mean(squares))
        return rows

    def slot_weights(
        self, ids: Mapping[str, Tensor], fields: Sequence[Field], weights: Tensor | None
    ) -> dict[str, Tensor]:
        """Returns the weights of the weighted fields' slots by field, (batch_size, slots, 1).

        Args:
            ids: Packed ids by field. A field with the ids of one row, (1, slots), also gets the weights of one row.
            fields: The fields of `weights` in order, possibly among others.
            weights: (batch_size, weighted slots); None without weighted fields.
        """
        weighted = [field for field in fields if field.weighted]
        if weights is None or not weighted:
            return {}
        by_name = by_field(ops.expand_dims(ops.cast(weights, self.compute_dtype), -1), weighted)
        return {
            name: ops.reshape(each[:1], (1, *each.shape[1:])) if ids[name].shape[0] == 1 else each
            for name, each in by_name.items()
        }

    def _of_all_slots(self, ids: Tensor, weights: Tensor) -> Tensor:
        """Returns the weight of every slot, (batch_size, slots, 1), with 1 for unweighted fields."""
        fields = self.feature_map.fields
        of_fields = by_field(ops.expand_dims(ops.ones_like(ids, dtype=self.compute_dtype), -1), fields)
        of_weighted = by_field(
            ops.expand_dims(ops.cast(weights, self.compute_dtype), -1), [f for f in fields if f.weighted]
        )
        parts = [of_weighted.get(field.name, of_fields[field.name]) for field in fields]
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def embed(self, ids: Tensor, fields: Sequence[Field], weights: Tensor | None = None) -> Tensor:
        """Returns the embeddings of some fields, (batch_size, len(fields), dim).

        Args:
            ids: Packed ids of these fields' slots only, int32 (batch_size, slots).
            fields: The fields. A field with attention pooling needs its `shared_with` field among them.
            weights: The weights of these fields' weighted slots, (batch_size, weighted slots); None without any.
        """
        ids_of = by_field(ids, fields)
        of_slots = self.slot_weights(ids_of, fields, weights)
        rows, is_item = self._masked(by_field(ops.take(self.table, ids, axis=0), fields), ids_of, of_slots)
        return ops.concatenate([self._pool(field, rows, is_item[field.name]) for field in fields], axis=1)

    def masked_by_field(
        self, ids: Tensor, gathered: Mapping[str, Tensor], weights: Tensor | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns by field its slots' embeddings, zero for padding, and its mask, 0 for padding and 1 otherwise.

        Args:
            ids: int32 (batch_size, slots).
            gathered: The embeddings by field, (batch_size, slots, dim), or (1, slots, dim) for all rows.
            weights: As in `call`.
        """
        fields = self.feature_map.fields
        # The reshape sets the static shape: with a slice alone, the graph would not know that there is one row.
        of_one, of_all = by_field(ops.reshape(ids[:1], (1, ids.shape[1])), fields), by_field(ids, fields)
        ids_of = {name: (of_one if rows.shape[0] == 1 else of_all)[name] for name, rows in gathered.items()}
        return self._masked(gathered, ids_of, self.slot_weights(ids_of, fields, weights))

    def _by_field(self, ids: Tensor, gathered: Mapping[str, Tensor], pooled: bool, weights: Tensor | None) -> Tensor:
        fields = self.feature_map.fields
        rows, is_item = self.masked_by_field(ids, gathered, weights)
        if pooled:
            rows = {field.name: self._pool(field, rows, is_item[field.name]) for field in fields}
        return join_rows([rows[field.name] for field in fields])

    def _masked(
        self, gathered: Mapping[str, Tensor], ids: Mapping[str, Tensor], of_slots: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns by field its slots' embeddings, zero for padding, and its mask, 0 for padding and 1 otherwise.

        `of_slots` has the weights of the slots of weighted fields.
        """
        is_item = {name: ops.cast(ops.expand_dims(ids[name] > 0, -1), self.compute_dtype) for name in ids}
        masked = {name: ops.cast(gathered[name], self.compute_dtype) * is_item[name] for name in ids}
        return {name: rows * of_slots[name] if name in of_slots else rows for name, rows in masked.items()}, is_item

    def _pool(self, field: Field, rows: Mapping[str, Tensor], is_item: Tensor) -> Tensor:
        """Returns a field's embedding, (batch_size, 1, dim).

        Args:
            field: The field.
            rows: The embeddings of each field's slots, (batch_size, slots, dim), zero for padding.
            is_item: The field's mask, 0 for padding and 1 otherwise, (batch_size, slots, 1).
        """
        items = rows[field.name]
        if field.slots == 1 or field.pooling == "sum":
            return ops.sum(items, axis=1, keepdims=True)
        if field.pooling == "mean" or not self.attends:
            return ops.sum(items, axis=1, keepdims=True) / ops.maximum(ops.sum(is_item, axis=1, keepdims=True), 1)
        candidate = rows[field.shared_with]
        scores = ops.cast(ops.sum(items * candidate, axis=2, keepdims=True), "float32")
        # The embeddings of padding are zero; padding must not take any softmax weight either.
        weights = ops.softmax(ops.where(is_item > 0, scores, -1e9), axis=1)
        return ops.sum(ops.cast(weights, items.dtype) * items, axis=1, keepdims=True)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], len(self.feature_map.fields), self.dim)

    def get_config(self) -> dict[str, Any]:
        names = ("dim", "stddev", "l2", "attends", "max_norm")
        return dict(
            super().get_config(),
            feature_map=self.feature_map.to_json(),
            **{name: getattr(self, name) for name in names},
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})


def _sharded_rows(rows: int) -> int:
    """Returns the number of rows, rounded up to a multiple of the devices if ModelParallel shards the table."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return rows
    devices: int = distribution.device_mesh.devices.size
    return -(-rows // devices) * devices
