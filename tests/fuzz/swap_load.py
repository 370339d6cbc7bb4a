"""Clients that send REST requests without a pause while a new version takes over."""

import contextlib
import http.client
import json
import threading
import time

import numpy as np

from tests.fuzz.server import NAME, Server

CLIENTS = 8
SLOWER = 5  # times the p99 before a swap is what it may be during it
# A clock tick of a busy machine is no part of the swap.
NOISE_SECONDS = 0.005
_BODY = b'{"instances": [2, 4]}'


class SwapLoad:
    """Sends requests during the block.

    Args:
        server: What is asked.
        clients: How many ask, each on a connection of its own.

    Attributes:
        answers: Asked at, seconds, status (0 = none) and predictions of each.
    """

    def __init__(self, server: Server, clients: int = CLIENTS):
        self.answers: list[tuple[float, float, int, list]] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        with contextlib.closing(http.client.HTTPConnection(*self._server.rest, timeout=30)) as connection:
            while not self._stop.is_set():
                asked = time.perf_counter()
                try:
                    connection.request("POST", f"/v1/models/{NAME}:predict", _BODY)
                    response = connection.getresponse()
                    status, found = response.status, json.loads(response.read()).get("predictions")
                except (OSError, http.client.HTTPException) as error:
                    status, found = 0, [str(error)]
                self.answers.append((asked, time.perf_counter() - asked, status, found))

    def __enter__(self) -> "SwapLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def seconds(self, since: float, until: float, percentile: float) -> float:
        """Returns a percentile of the latency of the requests sent between two times."""
        return float(np.percentile([took for asked, took, *_ in self.answers if since <= asked < until], percentile))
