"""Distributes weights and batches of a JAX training run over devices."""

from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ctrpipe.pipeline.training.learner import Batch

AXIS = "batch"
TABLES = r".*/table"  # matches the paths of FieldEmbedding's weights


def make_distribution(distribution: str, shard_tables: bool) -> Any:
    """Returns Keras's distribution of the weights over several devices, or None for one device.

    Args:
        distribution: `auto` uses all accelerators of the host if it has several, otherwise one device. `mirrored` uses
            all devices, including CPUs. `multi_worker` uses the devices of all connected hosts. `one_device` uses one.
        shard_tables: Whether to shard the rows of embedding tables over the devices. All other weights are replicated.
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
    """The devices of a training run and the shardings of its arrays.

    Args:
        distribution: The return value of `make_distribution`.
    """

    def __init__(self, distribution: Any):
        mesh = distribution.device_mesh.backend_mesh if distribution else None
        self.count = mesh.devices.size if mesh else 1
        self.replicated = NamedSharding(mesh, PartitionSpec()) if mesh else None
        self.sharded = NamedSharding(mesh, PartitionSpec(AXIS)) if mesh else None
        self.several_hosts = jax.process_count() > 1 and mesh is not None

    def split(self, batch: Batch, whole: bool = False) -> list[Batch]:
        """Returns a batch as one or two parts on the devices.

        The rows of the first part are sharded evenly over the devices. The remaining rows, fewer than there are
        devices, are replicated. Every host passes the whole batch and keeps the rows of its devices.

        Args:
            batch: The batch.
            whole: Whether the batch must be one part, because the network normalises with its statistics. If its rows
                cannot be sharded evenly, all of them are replicated.
        """
        if not self.sharded:
            return [_put(batch, slice(None), None)]
        rows = len(batch[1])
        if whole and rows % self.count:
            return [_put(batch, slice(None), self.replicated)]
        even = rows - rows % self.count
        parts = ((slice(even), self.sharded), (slice(even, rows), self.replicated))
        return [_put(batch, part, sharding) for part, sharding in parts if range(rows)[part]]

    def replicate(self, array: jax.Array) -> jax.Array:
        """Returns the array replicated on every device. Use it inside a compiled step."""
        return jax.lax.with_sharding_constraint(array, self.replicated) if self.replicated else array


def on_host(array: jax.Array, rows: int) -> np.ndarray:
    """Returns an array as a numpy array. Returns only the first `rows` of a sharded table; the others are padding."""
    whole = np.asarray(array)
    return whole if array.sharding.is_fully_replicated else whole[:rows]


def put_like(value: np.ndarray, present: jax.Array) -> jax.Array:
    """Copies a result of `on_host` to the devices of `present`, with the same sharding and padding.

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
        else:  # several hosts: each has the whole batch and provides the rows of its own devices
            placed = jax.make_array_from_callback(part.shape, sharding, lambda index: part[index])
        return placed

    return {name: put(value) for name, value in inputs.items()}, put(labels)
