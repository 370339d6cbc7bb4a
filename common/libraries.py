"""Import TensorFlow, TFX and Beam quickly and without their start-up log lines."""

import contextlib
import ctypes
import gc
import importlib.metadata
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from ctrpipe.common.address_space import TENSORFLOW_GIB, require_address_space

_ERRORS_ONLY = ("tensorflow", "ml_metadata")
_SILENT = ("absl", "apache_beam")  # log every error that they also raise
# Imported by TensorFlow, Keras and NLTK, if installed, for features that ctrpipe does not use. They take a third of
# TensorFlow's import time, and half of that of Keras on JAX. Code that needs one of them imports it later.
_NOT_NEEDED = ("IPython", "matplotlib", "sklearn", "scipy.ndimage")
_TUNER = "keras_tuner"  # only for TFX's Tuner component, which no run uses
_TEXT = "tensorflow_text"  # imported by TFMA if installed; see load_text_operations for graphs that need it
# Imported by TFX, TFMA and TFDV for features that no step uses. They take a third of TFX's import time. Hiding them
# would make the import of other modules fail, so a placeholder replaces them.
_UNUSED = (
    "IPython.display",  # TFDV's plots in a notebook
    "scipy.stats",  # TFMA's confidence intervals
    "tensorflow_model_analysis.metrics.bleu",  # imports sacrebleu
    "tensorflow_model_analysis.metrics.rouge",  # imports NLTK
    "tensorflow_model_analysis.notebook.jupyter.tfma_widget.widget",
    "tfx.components.infra_validator.component",  # imports the Kubernetes client
)


def load_tensorflow() -> None:
    """Imports TensorFlow and lists its devices, without the lines that it prints at any TF_CPP_MIN_LOG_LEVEL.

    Raises:
        InputError: the address space limit of this process is too low.
    """
    require_address_space("TensorFlow", TENSORFLOW_GIB)
    import_tensorflow()
    import tensorflow as tf  # lazy, see import_tensorflow

    with _no_stderr():
        tf.config.list_physical_devices()  # loads the GPU libraries, which print log lines as well


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up lines. Starts no thread, so the process can still be forked."""
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # overrides the user's keras.json
    warnings.filterwarnings("ignore")
    with _no_stderr(), importing(*_NOT_NEEDED, *(["jax"] if backend != "jax" else [])):
        # Lazy: needs the settings above, and takes 1.9 s of CPU time that commands without a model save.
        import absl.logging
        import tensorflow  # noqa: F401
    absl.logging.set_verbosity(absl.logging.FATAL)
    for name in _ERRORS_ONLY:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Beam warns about TensorFlow Transform's type hints through the root logger.
    logging.getLogger().addFilter(_is_error)


def import_keras() -> None:
    """Imports Keras on the JAX backend, without TensorFlow and without the parts of Keras that ctrpipe does not use."""
    hide_tensorflow()
    with importing(*_NOT_NEEDED):
        # Lazy: takes 2.5 s of CPU time, and 5 s with what is left out.
        import keras  # noqa: F401


def hide_tensorflow() -> None:
    """Prevents Keras from importing TensorFlow. Call it before Keras is imported.

    On the JAX backend Keras imports an installed TensorFlow only to seed it, which takes two seconds and 470 MB.
    """
    warnings.filterwarnings("ignore")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]


def installed_version(package: str) -> str:
    """Returns the version of an installed package. For "tensorflow", the package may be tensorflow-cpu.

    Raises:
        PackageNotFoundError: the package is not installed.
    """
    if package != "tensorflow":
        return importlib.metadata.version(package)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return importlib.metadata.version("tensorflow-cpu")


def load_text_operations() -> None:
    """Registers the operations of TensorFlow Text. Call it before loading a graph with a text feature.

    Does nothing if tensorflow_text is not installed: graphs without a text feature do not need it.
    """
    with contextlib.suppress(ImportError):
        # Lazy: an optional package that takes 0.16 s of CPU time after TensorFlow.
        import tensorflow_text  # noqa: F401


def openmp_missing() -> str:
    """Returns why the system's OpenMP library, which LightGBM needs on Linux, cannot be loaded; "" if it can."""
    if sys.platform != "linux":
        return ""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def importing(*absent: str) -> Iterator[None]:
    """Speeds up imports inside the block: disables garbage collection and hides modules that are not needed.

    The objects of TensorFlow and TFX contain no garbage. Both load in 4.3 s of CPU time, and in 7.4 s with garbage
    collection. Without hiding, and without the placeholders of `importing_tfx`, they load in 5.6 s.

    Args:
        absent: Modules to hide, as if they were not installed. Modules that are already loaded stay visible. No other
            thread may import anything while the block runs.
    """
    enabled = gc.isenabled()
    gc.disable()
    hidden = [name for name in absent if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None marks a module as absent
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        if enabled:
            gc.enable()


@contextlib.contextmanager
def importing_tfx() -> Iterator[None]:
    """Like `importing`, for a block that imports TFX. Also skips modules of TFX that no step of a run uses.

    Inside the block, each module of _UNUSED that is not loaded is replaced by a placeholder. Every attribute of the
    placeholder is a class that raises RuntimeError when used. After the block, the real module can be imported.

    The import takes 1.3 s of CPU time. Without the placeholders it takes 2.4 s, as TFMA then needs IPython and
    scipy.ndimage too.
    """
    left_out = {name: _LeftOut(name) for name in _UNUSED if name not in sys.modules}
    sys.modules.update(left_out)
    try:
        with importing(*_NOT_NEEDED, _TUNER, _TEXT):
            yield
    finally:
        for name in left_out:
            del sys.modules[name]
            parent, _, own = name.rpartition(".")
            if parent in sys.modules and vars(sys.modules[parent]).get(own) is left_out[name]:
                delattr(sys.modules[parent], own)


class _LeftOut(types.ModuleType):
    """Placeholder for a skipped module. Every attribute is a class that raises RuntimeError when used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = self.__name__

        def refuse(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"{module}.{name}: left out of the imports of a run")

        return type(name, (), {"__new__": refuse, "__init_subclass__": refuse})


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Discards output to file descriptor 2, because native code does not write to Python's sys.stderr."""
    sys.stderr.flush()
    saved = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    os.close(devnull)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
