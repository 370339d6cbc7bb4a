"""The machine that a benchmark runs on, and whether other programs use it too."""

import os
import pathlib
import platform
import time
from typing import Any

from ctrpipe.common.libraries import installed_version
from ctrpipe.common.processes import CPUINFO, cores

STAT = pathlib.Path("/proc/stat")
BUSY = 0.1
# Packages and environment variables that decide how fast a model and its server are.
PACKAGES = ("tensorflow", "numpy", "grpcio", "uvicorn", "uvloop", "httptools", "orjson")
VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "LD_PRELOAD",
)


def machine() -> dict[str, Any]:
    """Returns processor, number of cores and Python version."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.processor(), "cores": cores(), "python": platform.python_version()}


def software() -> dict[str, Any]:
    """Returns the versions of packages and kernel, and the environment variables that change speed, where set."""
    versions = {name: installed_version(name) for name in PACKAGES}
    return {
        "versions": {**versions, "kernel": platform.release()},
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def busy(seconds: float = 1.0) -> float:
    """Returns the share (0 to 1) of the machine's cores that other programs use, while nothing of ours runs.

    Above BUSY a comparison is not valid: on shared cores, threads that wait for each other at every operation (OpenMP,
    PyTorch) lose far more than threads that take work from a queue (TensorFlow).
    """
    before = _times()
    time.sleep(seconds)
    idle, total = (after - earlier for after, earlier in zip(_times(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _times() -> tuple[int, int]:
    """Returns the clock ticks of all cores: idle ones (waiting for a disk included), and all."""
    if not STAT.exists():
        return 0, 0
    ticks = [int(value) for value in STAT.read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def busy_caption(share: float) -> str | None:
    """Returns a table's caption where other programs used more than BUSY of the machine, else None."""
    if share <= BUSY:
        return None
    return f"Other work took {share:.0%} of the machine's cores: these numbers are no comparison."
