"""The devices of a training on JAX: how Keras distributes weights over them, and how a batch lies on them."""

from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from pipeline.training.learner import Batch

AXIS = "batch"
TABLES = r".*/table"  # the paths of FieldEmbedding's weights


def make_distribution(distribution: str, shard_tables: bool) -> Any:
    """Returns how weights lie on several devices: whole, or a share of the tables' rows on each. None for one device.

    `auto`: all accelerators of the host where it has several, else one device. `mirrored`: all devices, also CPUs.
    """
    devices = keras.distribution.list_devices()
    several = len(devices) > 1 and not devices[0].startswith("cpu")
    if distribution == "one_device" or (distribution == "auto" and not several):
        return None
    mesh = keras.distribution.DeviceMesh((len(devices),), [AXIS], devices)
    if not shard_tables:
        return keras.distribution.DataParallel(mesh)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[TABLES] = (AXIS, None)
    return keras.distribution.ModelParallel(layout_map=layouts)


class Devices:
    """Where a training's arrays lie.

    Args:
        distribution: What `make_distribution` gave.
    """

    def __init__(self, distribution: Any):
        mesh = distribution.device_mesh.backend_mesh if distribution else None
        self.count = mesh.devices.size if mesh else 1
        self.whole = NamedSharding(mesh, PartitionSpec()) if mesh else None
        self.cut = NamedSharding(mesh, PartitionSpec(AXIS)) if mesh else None

    def parts(self, batch: Batch) -> list[Batch]:
        """Returns a batch with its rows cut among the devices; those left over, fewer than devices, are a part of
        their own, which every device has whole."""
        if not self.cut:
            return [_placed(batch, slice(None), None)]
        rows = len(batch[1])
        even = rows - rows % self.count
        cuts = ((slice(even), self.cut), (slice(even, rows), self.whole))
        return [_placed(batch, part, sharding) for part, sharding in cuts if range(rows)[part]]

    def everywhere(self, array: jax.Array) -> jax.Array:
        """Returns, inside a compiled step, an array that every device has whole."""
        return jax.lax.with_sharding_constraint(array, self.whole) if self.whole else array


def on_host(array: jax.Array, rows: int) -> np.ndarray:
    """Returns an array of any device; of a sharded table the first `rows`, for others only fill the last device."""
    whole = np.asarray(array)
    return whole if array.sharding.is_fully_replicated else whole[:rows]


def laid_like(value: np.ndarray, present: jax.Array) -> jax.Array:
    """Places what `on_host` returned where `present` lies, in its shape.

    Raises:
        ValueError: it is of another shape.
    """
    if not present.sharding.is_fully_replicated:
        value = np.pad(value, [(0, len(present) - len(value)), (0, 0)])
    if value.shape != present.shape:
        raise ValueError(f"Expected an array of shape {present.shape}. Received: {value.shape}")
    placed: jax.Array = jax.device_put(value, present.sharding)
    return placed


def _placed(batch: Batch, rows: slice, sharding: NamedSharding | None) -> Batch:
    inputs, labels = batch

    def place(value: Any) -> jax.Array:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        placed: jax.Array = jax.device_put(array[rows] if sharding else array, sharding)
        return placed

    return {name: place(value) for name, value in inputs.items()}, place(labels)
