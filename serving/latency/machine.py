"""Describes the machine of a benchmark, and measures the load of other programs on it."""

import os
import pathlib
import platform
import time
from typing import Any

from ctrpipe.common.libraries import installed_version
from ctrpipe.common.processes import CPUINFO, cores

STAT = pathlib.Path("/proc/stat")
BUSY = 0.1
# Packages and environment variables that affect the speed of a model and its server.
PACKAGES = ("tensorflow", "numpy", "grpcio", "uvicorn", "uvloop", "httptools", "orjson")
VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "LD_PRELOAD",
)


def machine() -> dict[str, Any]:
    """Returns the processor, the number of cores and the Python version."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.processor(), "cores": cores(), "python": platform.python_version()}


def software() -> dict[str, Any]:
    """Returns the versions of packages and kernel, and environment variables that affect speed."""
    versions = {name: installed_version(name) for name in PACKAGES}
    return {
        "versions": {**versions, "kernel": platform.release()},
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def busy(seconds: float = 1.0) -> float:
    """Returns the share (0 to 1) of the machine's cores that other programs use. Call it while idle.

    Comparisons are not valid above BUSY. On shared cores, threads that wait for each other at every operation (OpenMP,
    PyTorch) slow down far more than threads that take work from a queue (TensorFlow).
    """
    before = _times()
    time.sleep(seconds)
    idle, total = (after - earlier for after, earlier in zip(_times(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _times() -> tuple[int, int]:
    """Returns the idle clock ticks of all cores, including I/O wait, and the total clock ticks."""
    if not STAT.exists():
        return 0, 0
    ticks = [int(value) for value in STAT.read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def busy_caption(share: float) -> str | None:
    """Returns a table caption if other programs used more than BUSY of the machine, or None."""
    if share <= BUSY:
        return None
    return f"Other work took {share:.0%} of the machine's cores: these numbers are no comparison."
