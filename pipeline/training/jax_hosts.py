"""Connects the JAX processes of a training run, one per TF_CONFIG host, and broadcasts arrays."""

import jax
import numpy as np
from jax.experimental import multihost_utils

from ctrpipe.pipeline.training.cluster import Cluster

HEARTBEAT_SECONDS = 10  # a host without a heartbeat for this long is lost; TensorFlow uses the same value
_FOREVER = 10**6  # seconds; the parent process decides how long to wait
_LOST = ("UNAVAILABLE", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


def connect(cluster: Cluster) -> None:
    """Waits for all hosts. Afterwards, JAX sees the devices of all of them.

    Call it before any other use of JAX. On CPUs, Gloo sums arrays over TCP. It uses the addresses to which the hosts
    resolve their own names.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        cluster.workers[0],
        len(cluster.workers),
        cluster.index,
        initialization_timeout=_FOREVER,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
    )


def disconnect() -> None:
    """Waits until all hosts have finished training.

    A host that left earlier would report the others as lost, or be reported by them.
    """
    jax.distributed.shutdown()


def from_chief(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """See `Learner.from_chief`."""
    if jax.process_count() == 1 or not arrays:
        return arrays
    # Sent as bytes: JAX without 64-bit types would round 64-bit numbers.
    sent = [np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8) for array in arrays]
    received = multihost_utils.broadcast_one_to_all(sent)
    return [
        np.frombuffer(np.asarray(data).tobytes(), array.dtype).reshape(array.shape)
        for data, array in zip(received, arrays, strict=True)
    ]


def is_lost(error: Exception) -> bool:
    """Returns whether a JAX error means that another host was lost."""
    text = str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and (text.startswith(_LOST) or "Gloo" in text)
