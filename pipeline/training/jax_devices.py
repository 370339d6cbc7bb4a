"""How a training on JAX distributes weights and batches over several devices."""

from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ctrpipe.pipeline.training.learner import Batch

AXIS = "batch"
TABLES = r".*/table"  # the paths of FieldEmbedding's weights


def make_distribution(distribution: str, shard_tables: bool) -> Any:
    """Returns Keras's distribution of the weights over several devices, or None for one device.

    Args:
        distribution: `auto` for all accelerators of the host where it has several, else one device; `mirrored` for all
            devices, CPUs included; `multi_worker` for those of all connected hosts; `one_device`.
        shard_tables: Whether each device has a share of the embedding tables' rows. All else is replicated.
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
    """The devices of a training, with the shardings of its arrays.

    Args:
        distribution: Of `make_distribution`.
    """

    def __init__(self, distribution: Any):
        mesh = distribution.device_mesh.backend_mesh if distribution else None
        self.count = mesh.devices.size if mesh else 1
        self.replicated = NamedSharding(mesh, PartitionSpec()) if mesh else None
        self.sharded = NamedSharding(mesh, PartitionSpec(AXIS)) if mesh else None
        self.several_hosts = jax.process_count() > 1 and mesh is not None

    def split(self, batch: Batch) -> list[Batch]:
        """Returns a batch as one part whose rows are sharded evenly over the devices, and one of the remaining rows,
        fewer than there are devices, which is replicated. Every host has the whole batch, and keeps its devices' rows.
        """
        if not self.sharded:
            return [_put(batch, slice(None), None)]
        rows = len(batch[1])
        even = rows - rows % self.count
        parts = ((slice(even), self.sharded), (slice(even, rows), self.replicated))
        return [_put(batch, part, sharding) for part, sharding in parts if range(rows)[part]]

    def replicate(self, array: jax.Array) -> jax.Array:
        """Returns, inside a compiled step, the array replicated on every device."""
        return jax.lax.with_sharding_constraint(array, self.replicated) if self.replicated else array


def on_host(array: jax.Array, rows: int) -> np.ndarray:
    """Returns an array as numpy's; of a sharded table only the first `rows`, because the others are padding."""
    whole = np.asarray(array)
    return whole if array.sharding.is_fully_replicated else whole[:rows]


def put_like(value: np.ndarray, present: jax.Array) -> jax.Array:
    """Returns an array of `on_host` on the devices of `present`, with its sharding and padding.

    Raises:
        ValueError: the shapes differ.
    """
    if not present.sharding.is_fully_replicated:
        value = np.pad(value, [(0, len(present) - len(value)), (0, 0)])
    if value.shape != present.shape:
        raise ValueError(f"Expected an array of shape {present.shape}. Received: {value.shape}")
    placed: jax.Array = jax.device_put(value, present.sharding)
    return placed


def _put(batch: Batch, rows: slice, sharding: NamedSharding | None) -> Batch:
    inputs, labels = batch

    def put(value: Any) -> jax.Array:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        part = array[rows] if sharding else array
        placed: jax.Array
        if sharding is None or sharding.is_fully_addressable:
            placed = jax.device_put(part, sharding)
        else:  # of several hosts, each has the whole batch, and gives its devices' rows
            placed = jax.make_array_from_callback(part.shape, sharding, lambda index: part[index])
        return placed

    return {name: put(value) for name, value in inputs.items()}, put(labels)
