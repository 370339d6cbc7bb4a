"""The workers that train one model together, as listed in the TF_CONFIG of every worker."""

import dataclasses
import json
import os
import socket
from collections.abc import Callable

import numpy as np

from ctrpipe.common.errors import InputError

VARIABLE = "TF_CONFIG"
ROLES = ("chief", "worker")
CONNECT_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a distributed training run.

    Args:
        workers: HOST:PORT of each worker. The first is the chief, which reports and writes checkpoints.
        index: The position of this process's worker in `workers`.
    """

    workers: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def unreachable(self) -> list[str]:
        """Returns the addresses of the other workers that accept no connection."""
        others = [address for index, address in enumerate(self.workers) if index != self.index]
        return [address for address in others if not _accepts_connections(address)]


def read_cluster() -> Cluster | None:
    """Returns the workers in TF_CONFIG, or None if it names fewer than two.

    Raises:
        InputError: TF_CONFIG is not JSON in TensorFlow's format, or has roles other than chief and worker.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        config = json.loads(text or "{}")
        cluster = {role: list(addresses) for role, addresses in config.get("cluster", {}).items() if addresses}
        if sum(map(len, cluster.values())) < 2:
            return None
        workers = tuple(address for role in ROLES for address in cluster.get(role, []))
        tasks = [(role, index) for role in ROLES for index in range(len(cluster.get(role, [])))]
        index = tasks.index((config["task"]["type"], int(config["task"]["index"])))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f'{VARIABLE}: expected {{"cluster": {{"worker": ["HOST:PORT", ...]}}, "task": {{"type": "worker", '
            f'"index": 0}}}}. Received: {text}'
        ) from error
    if set(cluster) - set(ROLES) or len(set(workers)) < len(workers) or not all(map(_is_address, workers)):
        raise InputError(f"{VARIABLE}: only the roles chief and worker, one HOST:PORT each. Received: {text}")
    return Cluster(workers, index)


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdigit()


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def text_from_chief(from_chief: Callable[[list[np.ndarray]], list[np.ndarray]], text: str) -> str:
    """Broadcasts the chief's text to every worker and returns it.

    Args:
        from_chief: `Learner.from_chief`. All workers must know the shapes of its arrays, so the length is sent first.
        text: This worker's text; only the chief's counts.
    """
    own = np.frombuffer(text.encode(), np.uint8)
    [length] = from_chief([np.array([len(own)])])
    [received] = from_chief([np.resize(own, int(length[0]))])
    return received.tobytes().decode()
