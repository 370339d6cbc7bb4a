"""The workers that train one model together, as TF_CONFIG names them: each has the same list and its own place."""

import dataclasses
import json
import os
import socket
from collections.abc import Callable

import numpy as np

from common.errors import InputError

VARIABLE = "TF_CONFIG"
ROLES = ("chief", "worker")
ANSWER_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class Cluster:
    """`workers`: host:port of each; the first is the chief, which decides, reports, and writes. `index`: this one's."""

    workers: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def silent(self) -> list[str]:
        """Returns the other workers whose port does not answer."""
        return [address for place, address in enumerate(self.workers) if place != self.index and not _answers(address)]


def read_cluster() -> Cluster | None:
    """Returns the workers of TF_CONFIG; None where it names fewer than two.

    Raises:
        InputError: it is no such JSON, or has other roles than chief and worker.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        config = json.loads(text or "{}")
        cluster = {role: list(addresses) for role, addresses in config.get("cluster", {}).items() if addresses}
        if sum(map(len, cluster.values())) < 2:
            return None
        workers = tuple(address for role in ROLES for address in cluster.get(role, []))
        places = [(role, place) for role in ROLES for place in range(len(cluster.get(role, [])))]
        index = places.index((config["task"]["type"], int(config["task"]["index"])))
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


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def text_from_chief(from_chief: Callable[[list[np.ndarray]], list[np.ndarray]], text: str) -> str:
    """Returns the chief's text in every process, by `Learner.from_chief`, with arrays of one shape in all of them."""
    own = np.frombuffer(text.encode(), np.uint8)
    [length] = from_chief([np.array([len(own)])])
    [received] = from_chief([np.resize(own, int(length[0]))])
    return received.tobytes().decode()
