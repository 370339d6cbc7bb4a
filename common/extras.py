"""The extra that each command or feature needs, and the command that installs it.

`pip install ctrpipe` installs the base: serving, clients, scoring, benchmarks and explanations. pyproject.toml lists
the packages of the base and of the extras, with a reason for each.
"""

import importlib.util
import pathlib
import sys

from ctrpipe.common.errors import InputError
from ctrpipe.common.wheels import installer, needs_overrides, unfit

# Releases to install in place of those that TFX's packages require, see docs/how-to/install.md.
OVERRIDES = pathlib.Path(__file__).parents[1] / "overrides.txt"

BASE = ""
# The extra that each command requires. Optional features of a command call `require` themselves.
COMMANDS = {
    "bench": BASE,
    "canary": BASE,
    "check": BASE,
    "compare": BASE,
    "compile": "kubeflow",
    "configs": BASE,
    "demo": "pipeline",
    "drift": "pipeline",
    "explain": BASE,
    "generate": BASE,
    "init": BASE,
    "models": BASE,
    "predict": BASE,
    "prepare": "pipeline",
    "ranking": BASE,
    "replay": "pipeline",
    "report": BASE,
    "retrieve": "pipeline",
    "run": "pipeline",
    "score": BASE,
    "serve": BASE,
    "submit": "kubeflow",
    "sweep": "pipeline",
    "tune": "tune",
    "tune-serving": BASE,
}
# Commands that go on where they were interrupted, if they are called again.
RESUMED = ("demo", "replay", "run", "score", "sweep", "tune")
# The modules of each extra that ctrpipe imports.
_PIPELINE = (
    *("tfx", "tensorflow_transform", "tensorflow_model_analysis", "tensorflow_data_validation", "tfx_bsl"),
    *("ml_metadata", "apache_beam", "pandas", "sklearn", "threadpoolctl", "lightgbm", "tensorboard"),
)
MODULES = {
    "pipeline": _PIPELINE,
    "kubeflow": (*_PIPELINE, "kfp", "kfp_server_api", "certifi"),
    "tune": (*_PIPELINE, "optuna", "sqlalchemy"),
    "text": ("tensorflow_text", "safetensors"),
    "jax": ("jax",),
    "hub": ("huggingface_hub",),
    "avro": ("fastavro",),
    "sql": ("duckdb", "sqlalchemy"),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
    "lakes": ("deltalake", "pyiceberg"),
}


def missing(extra: str) -> str:
    """Returns the first module of an extra that is not installed, or "". Imports no module."""
    return next((module for module in MODULES.get(extra, ()) if not is_installed(module)), "")


def require(extra: str, what: str, otherwise: str = "") -> None:
    """Raises InputError if a package of an extra is not installed.

    Args:
        extra: The extra. BASE needs no packages.
        what: The command or feature that needs the extra, for the message.
        otherwise: An alternative to installing the extra, for the message.
    """
    module = missing(extra)
    if module:
        other = f", or {otherwise}" if otherwise else ""
        raise InputError(f"{what} needs the extra {extra} ({module} is not installed); {install(extra)}{other}")


def install(extra: str) -> str:
    """Returns the command that installs an extra where ctrpipe is. Without wheels, says which Python has them."""
    wanted, tool = f"'ctrpipe[{extra}]'", installer()
    is_pipeline = _PIPELINE[0] in MODULES[extra]
    if is_pipeline and unfit():
        return unfit()
    overrides, pip, pipx = "", "pip install", "pipx install"
    if is_pipeline and needs_overrides():
        # uv alone takes overrides, under a name of its own for each command.
        overrides = f"--overrides {OVERRIDES} "
        pip, pipx = f"pip install uv && python -m uv pip install --override {OVERRIDES}", "pipx run uv tool install"
    return {
        "uvx": f"uvx {overrides}--from {wanted} ctrpipe",
        "uv tool": f"uv tool install {overrides}{wanted}",
        "pipx": f"{pipx} --force {overrides}{wanted}",
        "pip": f"{pip} {wanted}",
    }[tool]


def extra_of(module: str) -> str:
    """Returns the smallest extra that contains a module; BASE if none does."""
    return next((extra for extra, modules in MODULES.items() if module in modules), BASE)


def is_installed(module: str) -> bool:
    """Returns whether a module can be imported, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
