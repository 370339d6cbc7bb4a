"""A client of this project's training, which runs in a process of its own. Standard library only."""

import pathlib
import sys
from typing import Any

from benchmarks.harness.settings import Shape
from benchmarks.peers.line_process import LineProcess, clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKENDS = ("tensorflow", "jax")
OPTIMIZERS = ("adam", "lazy_adam", "rowwise_adagrad")


class Ours(LineProcess):
    """This project's training step on one backend.

    Args:
        backend: One of BACKENDS.
        threads: Threads of the backend.
        devices: Number of devices into which JAX divides the CPU.
    """

    def __init__(self, backend: str, threads: int, devices: int = 1):
        self.backend, self.threads = backend, threads
        environment = clean_environment(KERAS_BACKEND=backend, CTRPIPE_THREADS=str(threads), PYTHONPATH=str(ROOT))
        if devices > 1:
            environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        super().__init__(f"ctrpipe on {backend}", [sys.executable, "-m", "benchmarks.harness.ours_server"], environment)

    def about(self) -> dict[str, Any]:
        """Returns the backend, its device, and the versions of keras, keras-rs and the backend."""
        return self.ask({"cmd": "about"})

    def train(self, model: str, hyperparameters: dict[str, Any], shape: Shape, steps: int, **more: Any) -> dict:
        """Returns training throughput: samples_per_s, seconds and the mean loss of `steps` steps, after `warmup` (2).

        Args:
            model, hyperparameters: As in a run's configuration.
            shape: Shape of the data.
            steps: Timed steps.
            more: `warmup` and fields of `ours_server.Spec`.
        """
        return self.ask({"cmd": "train", "steps": steps, **_spec(model, hyperparameters, shape), **more})

    def memory(self, model: str, hyperparameters: dict[str, Any], shape: Shape, **more: Any) -> dict[str, int]:
        """Returns peak bytes before the model is built (baseline_bytes) and after two steps (peak_bytes)."""
        with Ours(self.backend, self.threads) as fresh:
            return fresh.ask({"cmd": "memory", **_spec(model, hyperparameters, shape), **more})

    def device_memory(self, model: str, hyperparameters: dict[str, Any], shape: Shape, **more: Any) -> dict[str, int]:
        """Returns bytes on one device, on JAX.

        They are those of a step's arguments (argument_bytes) and of its temporary arrays (temporary_bytes), as XLA
        counts them, and those of all arrays on the fullest device (live_bytes).
        """
        return self.ask({"cmd": "device_memory", **_spec(model, hyperparameters, shape), **more})


def _spec(model: str, hyperparameters: dict[str, Any], shape: Shape) -> dict[str, Any]:
    return {"model": model, "hyperparameters": hyperparameters, "sizes": shape.sizes, "batch": shape.batch}
