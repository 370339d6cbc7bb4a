"""The devices of a benchmark: environment variables of its processes, and the visible GPUs."""

import contextlib
import os
import pathlib
import subprocess
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow

DEVICES = ("cpu", "gpu")
# Several libraries use one GPU in turn, so none may allocate all of its memory at the start.
ON_GPU = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
INSTALL = {
    "tensorflow": 'pip install "tensorflow[and-cuda]"',
    "jax": 'pip install "jax[cuda12]"',
}
QUERY = ("name", "driver_version", "memory.total")
SECONDS = 60  # timeout of nvidia-smi, which loads the driver if no program has it open
DRIVER = pathlib.Path("/proc/driver/nvidia")


def environment(device: str | None) -> dict[str, str]:
    """Returns the environment variables for computing on `device`; {} for None: the process chooses the device."""
    if device is None:
        return {}
    return ON_CPU if device == "cpu" else ON_GPU


def load_tensorflow_on(device: str) -> None:
    """Loads TensorFlow into this process, and makes it and child processes compute on `device`.

    Raises:
        InputError: A GPU is requested, and TensorFlow sees none.
    """
    os.environ.update(environment(device))
    load_tensorflow()
    import tensorflow as tf  # after load_tensorflow, which suppresses its start-up messages

    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise InputError(sees_no_gpu("tensorflow"))


def load_jax_on(device: str) -> None:
    """Makes JAX compute on `device` in this process; call it before JAX computes anything.

    Raises:
        InputError: A GPU is requested, and JAX sees none.
    """
    os.environ.update(environment(device))
    import jax  # only on that backend

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # if JAX was imported before, it has read the variables already
    elif jax.default_backend() != "gpu":
        raise InputError(sees_no_gpu("jax"))


def load_backend_on(device: str) -> str:
    """Loads the backend that KERAS_BACKEND names, TensorFlow by default, as the other two functions do; returns it."""
    backend = "jax" if os.environ.get("KERAS_BACKEND") == "jax" else "tensorflow"
    (load_jax_on if backend == "jax" else load_tensorflow_on)(device)
    return backend


def sees_no_gpu(backend: str) -> str:
    """Returns the error message for a backend that sees no GPU."""
    return f"{backend} sees no GPU; install its version for one: {INSTALL[backend]}"


def gpus() -> list[dict[str, Any]]:
    """Returns each visible GPU's name, driver and memory in MiB (`mib`), as nvidia-smi lists them.

    CUDA_VISIBLE_DEVICES limits the number of GPUs; all are hidden if it is empty or -1.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return []
    listed = [
        {"name": name, "driver": driver, "mib": int(float(memory)) if memory[:1].isdigit() else None}
        for name, driver, memory in _asked(QUERY)
    ]
    if not listed:  # a container may have the device without nvidia-smi
        listed = [{"name": _name_of(folder), "driver": None, "mib": None} for folder in DRIVER.glob("gpus/*")]
    return listed if visible is None else listed[: visible.count(",") + 1]


def gpu_busy() -> float | None:
    """Returns the utilization (0 to 1) of the busiest GPU in the last second; None if unknown."""
    shares = [float(share) / 100 for (share,) in _asked(("utilization.gpu",)) if share.replace(".", "").isdigit()]
    return max(shares, default=None)


def _asked(fields: tuple[str, ...]) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        rows = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
        return [row for row in rows if len(row) == len(fields)]
    return []


def _name_of(folder: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        for line in (folder / "information").read_text().splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "GPU"
