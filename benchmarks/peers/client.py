"""A client of a peer library, which runs in its own environment. Uses the standard library and numpy only.

Example:
    >>> with Peer("fuxictr") as peer:
    ...     peer.train("xdeepfm", steps=10, batch=2048, threads=2)["samples_per_s"]
    ...     peer.forward("fm", {"embedding": table, "linear": linear, "bias": bias}, ids)  # logits (batch_size)
"""

import pathlib
from typing import Any

import numpy as np

from benchmarks.peers.line_process import LineProcess, ProcessError, clean_environment

FOLDER = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = FOLDER.parents[1] / ".peers"
NAMES = ("fuxictr", "deepctr_torch", "recbole")


class PeerError(ProcessError):
    """Raised when a peer cannot be started, has exited, or rejects a request."""


class PeerProcess(LineProcess):
    """A library in a separate process, run by its environment's interpreter with <name>_server.py.

    Args:
        name: Name of its environment.
        python: The interpreter of the peer's environment; default: the one installed by `make peers`.
        packages: A folder for the peer's PYTHONPATH, if its packages are not in the environment.

    Raises:
        PeerError: The environment is missing.
    """

    error = PeerError

    def __init__(self, name: str, python: pathlib.Path | None = None, packages: pathlib.Path | None = None):
        self.packages = packages
        self.python = python or ENVIRONMENTS / name / "bin" / "python"
        if not self.python.exists():
            raise PeerError(f"The environment of {name} is missing: {self.python}. Run `make peers`.")
        # A peer that checks for updates on import fails fast behind this unreachable proxy.
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
        more = {"PYTHONPATH": str(packages)} if packages else {}
        super().__init__(name, [self.python, FOLDER / f"{name}_server.py"], clean_environment(**proxies, **more))


class Peer(PeerProcess):
    """A peer library that trains models; it keeps the last model between two calls of `train`.

    Args:
        name: One of NAMES.
        python, packages: See PeerProcess.
    """

    def __init__(self, name: str, python: pathlib.Path | None = None, packages: pathlib.Path | None = None):
        if name not in NAMES:
            raise ValueError(f"name should be one of {NAMES}. Received: name={name!r}")
        super().__init__(name, python, packages)

    def models(self) -> dict[str, bool]:
        """Returns, by model, whether `forward` and `shapes` support it; `train` and `memory` support all models."""
        return self.ask({"cmd": "models"})["models"]

    def train(self, model: str, steps: int, batch: int, threads: int, **options: Any) -> dict[str, float]:
        """Returns training throughput: samples_per_s, seconds and the last loss, after `warmup` (2) steps.

        Args:
            model: A name of `models()`.
            steps: Timed steps, each on `batch` rows of random ids.
            batch: Rows in a step.
            threads: Threads of the peer.
            options: Fields of `peer_server.Spec` that differ from its defaults, and `warmup`.
        """
        return self.ask({"cmd": "train", "model": model, "steps": steps, "batch": batch, "threads": threads, **options})

    def memory(self, model: str, batch: int, threads: int, **options: Any) -> dict[str, int]:
        """Returns the peak bytes before the model is built (baseline_bytes) and after two steps (peak_bytes)."""
        with Peer(self.name, self.python, self.packages) as peer:
            return peer.ask({"cmd": "memory", "model": model, "batch": batch, "threads": threads, **options})

    def fit(self, model: str, data: pathlib.Path, out: pathlib.Path, threads: int, **options: Any) -> dict[str, float]:
        """Trains on the rows of a file, writes the test rows' `probabilities`, and returns seconds and the best metric.

        Args:
            model: A name of `models()`.
            data: An .npz file with `sizes` and, for each of train, validation and test, `<split>_ids` (rows, fields),
                counted from 0 within a field, and `<split>_labels` (rows).
            out: The .npz file to write.
            threads: Threads of the peer.
            options: seed, learning_rate, batch_size, epochs, evaluations_per_epoch, patience (evaluations without an
                improvement of the validation metric before training stops), plateau (learning-rate schedule, as
                `training.plateau`; default: none), monitor ("log_loss" or "auc"), keep (file for the weights), and
                fields of `peer_server.Spec`.
        """
        request = {"cmd": "fit", "model": model, "data": str(data), "out": str(out), "threads": threads}
        return self.ask(request | options)

    def shapes(self, model: str, **options: Any) -> dict[str, tuple[int, ...]]:
        """Returns the names and shapes of the weights that `forward` takes."""
        reply = self.ask({"cmd": "shapes", "model": model, **options})
        return {name: tuple(shape) for name, shape in reply["shapes"].items()}

    def forward(
        self,
        model: str,
        weights: dict[str, np.ndarray],
        ids: np.ndarray,
        sizes: list[int] | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Returns the peer's logits, float32 (batch_size), for the given weights.

        Args:
            model: A name of `models()`.
            weights: Every weight of the model; see `shapes` and the docstring of the peer's server. The sizes of the
                model's layers are read from them.
            ids: (batch_size, fields, then items of a history), each counted from 0 within its field.
            sizes: Ids of each field; default: equal shares of the embedding's rows.
            options: Fields of `peer_server.Spec` that the weights' shapes do not determine: heads, split_half,
                cin_activation, inner, outer, device.
        """
        ids = np.asarray(ids)
        if sizes is None:
            rows = len(weights["embedding"] if "embedding" in weights else weights["linear"])
            sizes = [rows // ids.shape[1]] * ids.shape[1]
        limits = np.asarray([*sizes, *[sizes[0]] * (ids.shape[1] - len(sizes))])
        if ids.min() < 0 or (ids.max(axis=0) >= limits).any():
            raise ValueError(f"ids should be in [0, size) of their field. Received: ids up to {ids.max(axis=0)}")
        given, logits = self.folder / "weights.npz", self.folder / "logits.npz"
        np.savez(given, ids=ids, sizes=np.asarray(sizes), **weights)
        self.ask({"cmd": "forward", "model": model, "in": str(given), "out": str(logits), **options})
        with np.load(logits) as file:
            return file["logits"]
