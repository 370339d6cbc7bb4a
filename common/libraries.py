"""Imports TensorFlow, TFX and Beam quickly and without the log lines that they print as they start."""

import contextlib
import gc
import importlib.metadata
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ctrpipe.common.address_space import TENSORFLOW_GIB, require_address_space

_ERRORS_ONLY = ("tensorflow", "ml_metadata")
_SILENT = ("absl", "apache_beam")  # they log every error that they also raise
# TensorFlow, Keras and NLTK import these where they are installed, for features that the project does not use; they
# take a third of the time of TensorFlow's import. Code that needs one of them imports it later.
_NOT_NEEDED = ("IPython", "matplotlib", "sklearn", "scipy.ndimage")
# Beam imports these where they are installed; only a runner in the cloud, or a source that no step reads, uses them.
_CLOUD = (
    "google.cloud.bigquery",
    "google.cloud.dataflow",
    "google.cloud.pubsub",
    "google.cloud.storage",
    "pymongo",
)
_TUNER = "keras_tuner"  # TFX's Tuner, which no step is, is absent without it
_TEXT = "tensorflow_text"  # TFMA imports it where it is installed; what loads a text's graph, load_text_operations
# TFX, TFMA and TFDV import these for what no step uses; they take a third of the time of TFX's import.
# They cannot be absent, as the import of others would fail.
_UNUSED = (
    "IPython.display",  # of TFDV's pictures in a notebook
    "scipy.stats",  # of TFMA's confidence intervals
    "tensorflow_model_analysis.metrics.bleu",  # which imports sacrebleu
    "tensorflow_model_analysis.metrics.rouge",  # which imports NLTK
    "tensorflow_model_analysis.notebook.jupyter.tfma_widget.widget",
    "tfx.components.infra_validator.component",  # which imports Kubernetes's client
)


def load_tensorflow() -> None:
    """Imports TensorFlow and finds its devices, without the lines that it prints at any TF_CPP_MIN_LOG_LEVEL.

    Raises:
        InputError: the system allows this process too little address space.
    """
    require_address_space("TensorFlow", TENSORFLOW_GIB)
    import_tensorflow()
    import tensorflow as tf  # see import_tensorflow

    with _no_stderr():
        tf.config.list_physical_devices()  # loads the GPU libraries, which also print


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up lines. Starts no thread, so that the process may be forked afterwards."""
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # the user's keras.json does not decide it
    warnings.filterwarnings("ignore")
    with _no_stderr(), importing(*_NOT_NEEDED, *(["jax"] if backend != "jax" else [])):
        # Here, because the import needs the settings above, and takes 1.9 s of a core, which commands without a model
        # are spared.
        import absl.logging
        import tensorflow  # noqa: F401
    absl.logging.set_verbosity(absl.logging.FATAL)
    for name in _ERRORS_ONLY:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Beam warns about TensorFlow Transform's type hints through the root logger.
    logging.getLogger().addFilter(_is_error)


def installed_version(package: str) -> str:
    """Returns the version of an installed package; of TensorFlow also where it is the package without code for GPUs.

    Raises:
        PackageNotFoundError: it is not installed.
    """
    if package != "tensorflow":
        return importlib.metadata.version(package)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return importlib.metadata.version("tensorflow-cpu")


def load_text_operations() -> None:
    """Registers TensorFlow Text's operations, which must be done before a graph with a text is loaded.

    Does nothing where tensorflow_text is not installed: graphs without a text do not need it.
    """
    with contextlib.suppress(ImportError):
        # 0.16 s of a core after TensorFlow, which runs without a text are spared; the package is optional.
        import tensorflow_text  # noqa: F401


def tfx_does_without(beam_args: Sequence[str]) -> tuple[str, ...]:
    """Returns the modules that `importing` hides from TFX's import; not Google Cloud's if Beam may run there."""
    return (*_NOT_NEEDED, _TUNER, _TEXT, *(() if beam_args else _CLOUD))


@contextlib.contextmanager
def importing(*absent: str) -> Iterator[None]:
    """Speeds up imports inside the block: without garbage collection, and without modules that nothing needs.

    The collector finds nothing to free among the objects of TensorFlow and TFX; searching them takes 2 s of their
    import and another 2 s when the process ends.

    Args:
        absent: Modules to hide, as if they were not installed, unless they are already loaded. No other thread may
            import anything inside the block.
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
def importing_tfx(beam_args: Sequence[str]) -> Iterator[None]:
    """As `importing`, for the block that imports TFX, of which it spares what no step of a run uses.

    In place of each module of _UNUSED that is not loaded stands one whose every name is a class that cannot be used;
    after the block the module itself can be imported.

    Args:
        beam_args: Beam's arguments, see `tfx_does_without`.
    """
    left_out = {name: _LeftOut(name) for name in _UNUSED if name not in sys.modules}
    sys.modules.update(left_out)
    try:
        with importing(*tfx_does_without(beam_args)):
            yield
    finally:
        for name in left_out:
            del sys.modules[name]
            parent, _, own = name.rpartition(".")
            if parent in sys.modules and vars(sys.modules[parent]).get(own) is left_out[name]:
                delattr(sys.modules[parent], own)


class _LeftOut(types.ModuleType):
    """A module that is not loaded: what is imported from it says so when it is used."""

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
    """Discards what is written to file descriptor 2: native code does not write to Python's sys.stderr."""
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
