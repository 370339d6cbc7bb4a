"""One embedding table for all fields."""

from typing import Any, Self

import keras
from keras import ops

from models.checks import require_positive
from models.feature_map import FeatureMap
from models.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldEmbedding(keras.layers.Layer):
    """Embeds packed ids with one table for all fields, and sums the slots of a multivalent field.

    `output_f = Σ_{s in slots of f} table[ids_s]`, where id 0 (padding) counts as zero.

    Args:
        feature_map: FeatureMap. The description of the packed ids.
        dim: int. Width of an embedding.
        stddev: float. Standard deviation of the initial values; 0 starts from zero. Defaults to 0.001, as in the
            Attention-Net paper.
        l2: float. λ of the penalty λ/2·Σ‖row‖², averaged over the batch. Only rows that are looked up count, so that
            the cost of a step does not grow with the table. Defaults to 0.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("tags", "multivalent", 50, 2)])
        >>> ids = keras.ops.array([[3, 105, 107], [7, 110, 0]])  # (batch_size, slots)
        >>> keras.ops.shape(FieldEmbedding(feature_map, dim=8)(ids))  # (batch_size, fields, dim)
        (2, 2, 8)

    Raises:
        ValueError: `dim` is not positive, or `l2` is negative.
    """

    def __init__(
        self, feature_map: FeatureMap, dim: int, stddev: float = 0.001, l2: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        require_positive(dim=dim)
        if l2 < 0:
            raise ValueError(f"`l2` should be non-negative. Received: l2={l2}")
        self.feature_map = feature_map
        self.dim = dim
        self.stddev = stddev
        self.l2 = l2

    def build(self, input_shape: Shape) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(_sharded_rows(self.feature_map.total_ids), self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev) if self.stddev else "zeros",
        )

    def call(self, ids: Tensor, gathered: Tensor | None = None) -> Tensor:
        """Maps int32 (batch_size, slots) to (batch_size, fields, dim).

        Args:
            ids: Packed ids.
            gathered: The ids' rows of the table, (batch_size, slots, dim), where the caller has already looked them up.
                A trainer that updates only a batch's rows differentiates with respect to them.
        """
        rows = ops.take(self.table, ids, axis=0) if gathered is None else gathered
        rows = ops.cast(rows, self.compute_dtype)
        fields = self.feature_map.fields
        if any(field.slots > 1 for field in fields):
            # Only multivalent fields have padding to mask.
            rows = rows * ops.cast(ops.expand_dims(ids > 0, -1), rows.dtype)
            parts, start = [], 0
            for field in fields:
                parts.append(ops.sum(rows[:, start : start + field.slots], axis=1, keepdims=True))
                start += field.slots
            rows = ops.concatenate(parts, axis=1)
        if self.l2:
            squares = ops.sum(ops.square(ops.cast(rows, "float32")), axis=(1, 2))
            self.add_loss(0.5 * self.l2 * ops.mean(squares))
        return rows

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], len(self.feature_map.fields), self.dim)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config.update(feature_map=self.feature_map.to_json(), dim=self.dim, stddev=self.stddev, l2=self.l2)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})


def _sharded_rows(rows: int) -> int:
    """Returns the number of rows, rounded up to a multiple of the devices if Keras's ModelParallel shards the table."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return rows
    devices: int = distribution.device_mesh.devices.size
    return -(-rows // devices) * devices
