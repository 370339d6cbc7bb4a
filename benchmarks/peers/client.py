"""Asks a peer library, which runs in an environment of its own, to train or to answer. Standard library and numpy.

Example:
    >>> with Peer("fuxictr") as peer:
    ...     peer.train("xdeepfm", steps=10, batch=2048, threads=2)["samples_per_s"]
    ...     peer.forward("fm", {"embedding": table, "linear": linear, "bias": bias}, ids)  # logits (batch_size)
"""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = FOLDER.parents[1] / ".peers"
NAMES = ("fuxictr", "deepctr_torch", "recbole")


class PeerError(RuntimeError):
    """A peer that cannot be started, has ended or refused a request."""


class Peer:
    """A peer library in a process of its own, which keeps the last model between two calls of `train`.

    Args:
        name: One of NAMES.
        python: The interpreter of the peer's environment; that of `make peers` by default.
        packages: A folder to put on the peer's PYTHONPATH, where its packages are not in the environment.

    Raises:
        PeerError: When the environment is missing.
    """

    def __init__(self, name: str, python: pathlib.Path | None = None, packages: pathlib.Path | None = None):
        if name not in NAMES:
            raise ValueError(f"name should be one of {NAMES}. Received: name={name!r}")
        self.name, self.packages = name, packages
        self.python = python or ENVIRONMENTS / name / "bin" / "python"
        if not self.python.exists():
            raise PeerError(f"The environment of {name} is missing: {self.python}. Run `make peers`.")

    def __enter__(self) -> "Peer":
        self._folder = tempfile.TemporaryDirectory()
        self._log = open(pathlib.Path(self._folder.name) / "stderr", "w+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            [self.python, FOLDER / f"{self.name}_server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=self._folder.name,
            env=self._environment(),
        )
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def models(self) -> dict[str, bool]:
        """The names of the models, and whether `forward` and `shapes` know them; `train` and `memory` know all."""
        return self._ask({"cmd": "models"})["models"]

    def train(self, model: str, steps: int, batch: int, threads: int, **options: Any) -> dict[str, float]:
        """Training throughput: samples_per_s, seconds and the last loss, after `warmup` (2) steps.

        Args:
            model: A name of `models()`.
            steps: Timed steps, each on `batch` rows of random ids.
            batch: Rows in a step.
            threads: Threads of the peer.
            options: Fields of `peer_server.Spec` that differ from its defaults, and `warmup`.
        """
        return self._ask(
            {"cmd": "train", "model": model, "steps": steps, "batch": batch, "threads": threads, **options}
        )

    def memory(self, model: str, batch: int, threads: int, **options: Any) -> dict[str, int]:
        """Peak resident bytes before (baseline_bytes) and after (peak_bytes) one training step, in a new process."""
        with Peer(self.name, self.python, self.packages) as peer:
            return peer._ask({"cmd": "memory", "model": model, "batch": batch, "threads": threads, **options})

    def shapes(self, model: str, **options: Any) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights that `forward` takes."""
        reply = self._ask({"cmd": "shapes", "model": model, **options})
        return {name: tuple(shape) for name, shape in reply["shapes"].items()}

    def forward(
        self,
        model: str,
        weights: dict[str, np.ndarray],
        ids: np.ndarray,
        sizes: list[int] | None = None,
        **options: Any,
    ) -> np.ndarray:
        """The peer's logits, float32 (batch_size), with the given weights.

        Args:
            model: A name of `models()`.
            weights: Every weight of the model, see `shapes` and the docstring of the peer's server. The sizes of the
                model's parts are read from them.
            ids: (batch_size, fields), each counted from 0 within its field.
            sizes: Ids of each field; equal shares of the embedding's rows by default.
            options: Those of `peer_server.Spec` that no weight's shape tells: heads, split_half, cin_activation, inner,
                outer, device.
        """
        ids = np.asarray(ids)
        if sizes is None:
            rows = len(weights["embedding"] if "embedding" in weights else weights["linear"])
            sizes = [rows // ids.shape[1]] * ids.shape[1]
        if ids.min() < 0 or (ids.max(axis=0) >= np.asarray(sizes)).any():
            raise ValueError(f"ids should be in [0, size) of their field. Received: ids up to {ids.max(axis=0)}")
        folder = pathlib.Path(self._folder.name)
        given, found = folder / "weights.npz", folder / "logits.npz"
        np.savez(given, ids=ids, sizes=np.asarray(sizes), **weights)
        self._ask({"cmd": "forward", "model": model, "in": str(given), "out": str(found), **options})
        with np.load(found) as file:
            return file["logits"]

    def _environment(self) -> dict[str, str]:
        """This process's variables, less those that would mix two environments.

        A peer that looks for a newer version of itself when it is imported should fail to at once: hence the proxy.
        """
        found = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        proxy = "http://127.0.0.1:9"
        found |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "http_proxy": proxy, "https_proxy": proxy}
        return found | ({"PYTHONPATH": str(self.packages)} if self.packages else {})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"{self.name} ended. Its last words:\n{self._last_words()}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"{self.name}: {reply['error']}")
        return reply

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]
