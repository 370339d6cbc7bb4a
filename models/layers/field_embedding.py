"""One embedding table and one gather for all fields."""

from typing import Any

import keras
from keras import ops

from models.feature_map import FeatureMap
from models.tensors import Shape


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldEmbedding(keras.layers.Layer):
    """Embeds packed ids: one table for all fields, a multivalent field's slots summed.

    Row f of the output is sum over the field's slots s of table[ids[:, s]]; id 0 (padding) counts as zero.

    Args:
        feature_map: The description of the packed ids.
        dim: Width of an embedding.
        stddev: Standard deviation of the initial values (0.001 in the Attention-Net paper); 0 starts from zero.
        l2: λ of λ/2·mean over the batch of Σ‖row‖², on the gathered rows only, so that the cost of a step does not
            grow with the table.

    Example:
        >>> FieldEmbedding(feature_map, dim=16)(ids)  # int32 (batch_size, slots) -> (batch_size, fields, dim)
    """

    def __init__(
        self, feature_map: FeatureMap, dim: int, stddev: float = 0.001, l2: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if dim < 1:
            raise ValueError(f"`dim` should be positive. Received: dim={dim}")
        if l2 < 0:
            raise ValueError(f"`l2` should be non-negative. Received: l2={l2}")
        self.feature_map = feature_map
        self.dim = dim
        self.stddev = stddev
        self.l2 = l2

    def build(self, input_shape: Shape) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(_even(self.feature_map.total_ids), self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev) if self.stddev else "zeros",
        )

    def call(self, ids, gathered=None):
        """int32 (batch_size, slots) -> (batch_size, fields, dim).

        Args:
            ids: Packed ids.
            gathered: The ids' rows of the table, (batch_size, slots, dim), where the caller has them already: a trainer
                that updates only the rows that a batch touches differentiates with respect to them.
        """
        rows = ops.take(self.table, ids, axis=0) if gathered is None else gathered
        rows = ops.cast(rows, self.compute_dtype)
        fields = self.feature_map.fields
        if any(field.slots > 1 for field in fields):
            # Only multivalent fields are padded, so only they pay for the mask.
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
    def from_config(cls, config):
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})


def _even(rows: int) -> int:
    """Rows to spare where a Keras distribution shards weights: every device must have as many of them."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return rows
    devices = distribution.device_mesh.devices.size
    return -(-rows // devices) * devices
