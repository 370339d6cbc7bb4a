"""What a benchmark computes on: its processes' environment, and the GPUs that are visible."""

import contextlib
import os
import pathlib
import subprocess
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow

DEVICES = ("cpu", "gpu")
# Several libraries share one GPU, one after the other: none may take all of its memory at its start.
ON_GPU = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
ON_CPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
INSTALL = {
    "tensorflow": 'pip install "tensorflow[and-cuda]"',
    "jax": 'pip install "jax[cuda12]"',
}
QUERY = ("name", "driver_version", "memory.total")
SECONDS = 60  # for nvidia-smi, which loads the driver where no program has it open
DRIVER = pathlib.Path("/proc/driver/nvidia")


def environment(device: str | None) -> dict[str, str]:
    """Returns the variables of a process that trains on `device`, one of DEVICES; None leaves the choice to it."""
    if device is None:
        return {}
    return ON_CPU if device == "cpu" else ON_GPU


def load_tensorflow_on(device: str) -> None:
    """Loads TensorFlow into this process, and has it and the processes started from here compute on `device`.

    Raises:
        InputError: a GPU is wanted, and TensorFlow sees none.
    """
    os.environ.update(environment(device))
    load_tensorflow()
    import tensorflow as tf  # after load_tensorflow, which holds its start-up lines back

    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise InputError(sees_no_gpu("tensorflow"))


def load_jax_on(device: str) -> None:
    """Has JAX compute on `device` in this process, where it has not computed yet.

    Raises:
        InputError: a GPU is wanted, and JAX sees none.
    """
    os.environ.update(environment(device))
    import jax  # only on that backend

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # it has read the variables where it was loaded before
    elif jax.default_backend() != "gpu":
        raise InputError(sees_no_gpu("jax"))


def sees_no_gpu(backend: str) -> str:
    """Returns what is said of a backend that sees no GPU."""
    return f"{backend} sees no GPU; install its version for one: {INSTALL[backend]}"


def gpus() -> list[dict[str, Any]]:
    """Returns each visible GPU's name, driver_version and memory in MiB, as nvidia-smi lists them.

    CUDA_VISIBLE_DEVICES hides those that it does not name, and all of them where it is empty or -1.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return []
    found = [
        {"name": name, "driver": driver, "mib": int(float(memory)) if memory[:1].isdigit() else None}
        for name, driver, memory in _asked(QUERY)
    ]
    if not found:  # a container may have the device without the program
        found = [{"name": _name_of(folder), "driver": None, "mib": None} for folder in DRIVER.glob("gpus/*")]
    return found if visible is None else found[: visible.count(",") + 1]


def gpu_busy() -> float | None:
    """Returns the share (0 to 1) of the last second in which the busiest GPU worked; None where nobody can say."""
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
