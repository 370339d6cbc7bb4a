"""A client of this project's training, which runs in a separate process."""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.devices import environment, sees_no_gpu
from benchmarks.harness.settings import HISTORIES, SEVERAL_TASKS, TEXTS, Shape
from benchmarks.peers.line_process import LineProcess, ProcessError, clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKENDS = ("tensorflow", "jax")
OPTIMIZERS = ("adam", "lazy_adam", "rowwise_adagrad")


class Ours(LineProcess):
    """This project's training step on one backend.

    Args:
        backend: One of BACKENDS.
        threads: Threads of the backend.
        devices: Number of devices: GPUs, or the virtual devices into which JAX divides the CPU.
        device: One of devices.DEVICES; None: the backend chooses.
        variables: Additional environment variables of the process.
    """

    def __init__(
        self,
        backend: str,
        threads: int,
        devices: int = 1,
        device: str | None = None,
        variables: Mapping[str, str] | None = None,
    ):
        self.backend, self.threads, self.device = backend, threads, device
        own = clean_environment(KERAS_BACKEND=backend, CTRPIPE_THREADS=str(threads), PYTHONPATH=str(ROOT))
        own |= environment(device)
        if devices > 1 and device != "gpu":
            own["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        if devices > 1 and device == "gpu":
            own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(devices)))
        own |= variables or {}
        super().__init__(f"ctrpipe on {backend}", [sys.executable, "-m", "benchmarks.harness.ours_server"], own)

    def about(self) -> dict[str, Any]:
        """Returns the backend, its device, the versions of keras, keras-rs and the backend, and the CUDA version.

        Raises:
            ProcessError: A GPU is requested, and the backend sees none.
        """
        about = self.ask({"cmd": "about"})
        if self.device == "gpu" and about["device"] == "cpu":
            raise ProcessError(sees_no_gpu(self.backend))
        return about

    def flops(self, model: str, hyperparameters: dict[str, Any], shape: Shape, **more: Any) -> float:
        """Returns the floating-point operations of a training step, counted by XLA before optimisation; JAX only."""
        return self.ask({"cmd": "flops", **_spec(model, hyperparameters, shape), **more})["flops"]

    def calls(
        self, model: str, hyperparameters: dict[str, Any], shape: Shape, rows: Sequence[int], seconds: float
    ) -> list[float]:
        """Returns, for each number of rows, the median milliseconds of a prediction repeated for `seconds`."""
        asked = {"rows": list(rows), "seconds": seconds, "batches": 1}
        return self.ask({"cmd": "calls", **_spec(model, hyperparameters, shape), **asked})["p50_ms"]

    def answers(
        self, model: str, hyperparameters: dict[str, Any], shape: Shape, steps: int, rows: int, exact: bool
    ) -> dict[str, Any]:
        """Returns the `logits` of `rows` rows of an untrained model, its `loss` over `steps`, and `trained_logits`.

        With `exact`, no factor of a float32 product is rounded to TF32.
        """
        asked = {"steps": steps, "rows": rows, "exact": exact, "batches": min(steps, 8)}
        return self.ask({"cmd": "answers", **_spec(model, hyperparameters, shape), **asked})

    def peak(self, size: int, seconds: float) -> dict[str, float]:
        """Returns the operations per second of products of square matrices, by number format."""
        return self.ask({"cmd": "peak", "size": size, "seconds": seconds})["flops_per_s"]

    def train(self, model: str, hyperparameters: dict[str, Any], shape: Shape, steps: int, **more: Any) -> dict:
        """Returns the reply of ours_server for `steps` training steps after `warmup` (2): samples_per_s, seconds, ...

        Args:
            model, hyperparameters: As in a run's configuration.
            shape: Shape of the data.
            steps: Timed steps.
            more: `warmup` and fields of `ours_server.Spec`.
        """
        return self.ask({"cmd": "train", "steps": steps, **_spec(model, hyperparameters, shape), **more})

    def memory(self, model: str, hyperparameters: dict[str, Any], shape: Shape, **more: Any) -> dict[str, int]:
        """Returns the peak bytes before the model is built (baseline_bytes) and after two steps (peak_bytes)."""
        with Ours(self.backend, self.threads) as fresh:
            return fresh.ask({"cmd": "memory", **_spec(model, hyperparameters, shape), **more})

    def device_memory(self, model: str, hyperparameters: dict[str, Any], shape: Shape, **more: Any) -> dict[str, int]:
        """Returns the bytes on one device; JAX only.

        argument_bytes and temporary_bytes are XLA's counts for a step's arguments and temporary arrays; live_bytes is
        the total of all arrays on the fullest device.
        """
        return self.ask({"cmd": "device_memory", **_spec(model, hyperparameters, shape), **more})


def _spec(model: str, hyperparameters: dict[str, Any], shape: Shape) -> dict[str, Any]:
    data = {
        "history": shape.history if model in HISTORIES else 0,
        "least_history": shape.least_history,
        "zipf": shape.zipf,
        "tasks": 2 if model in SEVERAL_TASKS else 1,
        "text": model in TEXTS,
    }
    return {"model": model, "hyperparameters": hyperparameters, "sizes": shape.sizes, "batch": shape.batch} | data
