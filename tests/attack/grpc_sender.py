"""Sends a body over gRPC repeatedly, from its own process, so its work does not slow down a bystander.

`python -m tests.attack.grpc_sender ADDRESS METHOD FILE SECONDS CLIENTS` prints the answers by status, as JSON.
"""

import concurrent.futures
import json
import pathlib
import sys
import time
from collections import Counter

import grpc

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


def send(address: str, method: str, body: bytes, seconds: float, clients: int) -> Counter[str]:
    """Sends from several clients at once, each over its own connection and at least once."""
    end = time.monotonic() + seconds
    found: Counter[str] = Counter()

    def one(_: int) -> None:
        with grpc.insecure_channel(address, _OPTIONS) as channel:
            while True:
                try:
                    channel.unary_unary(method)(body, timeout=60)
                    found["OK"] += 1
                except grpc.RpcError as error:
                    found[error.code().name] += 1
                if time.monotonic() >= end:
                    return

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(one, range(clients)))
    return found


if __name__ == "__main__":
    address, method, file, seconds, clients = sys.argv[1:]
    print(json.dumps(send(address, method, pathlib.Path(file).read_bytes(), float(seconds), int(clients))))
