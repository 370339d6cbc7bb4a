"""The processes that train one model with JAX, one on each host of TF_CONFIG: how they meet, and what they send."""

import jax
import numpy as np
from jax.experimental import multihost_utils

from ctrpipe.pipeline.training.cluster import Cluster

HEARTBEAT_SECONDS = 10  # without one of another host, after which it is lost; TensorFlow's is the same
_FOREVER = 10**6  # seconds: the process that started this one decides how long to wait
_LOST = ("UNAVAILABLE", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


def connect(cluster: Cluster) -> None:
    """Waits for all hosts; afterwards JAX's devices are those of all of them.

    It has to be called before any other use of JAX. On CPUs arrays are summed over TCP, by Gloo, between the addresses
    that the hosts' own names stand for.
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
    """Waits until all hosts have ended their training: who leaves before takes the others for lost, or is."""
    jax.distributed.shutdown()


def from_chief(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """See `Learner.from_chief`."""
    if jax.process_count() == 1 or not arrays:
        return arrays
    # As bytes: JAX without 64-bit types would round numbers of 64 bits.
    sent = [np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8) for array in arrays]
    received = multihost_utils.broadcast_one_to_all(sent)
    return [
        np.frombuffer(np.asarray(data).tobytes(), array.dtype).reshape(array.shape)
        for data, array in zip(received, arrays, strict=True)
    ]


def is_lost(error: Exception) -> bool:
    """Returns whether an error of JAX says that another host is gone."""
    text = str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and (text.startswith(_LOST) or "Gloo" in text)
