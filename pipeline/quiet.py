"""Loads libraries quickly, and keeps their own log lines out of what a user sees; errors come as exceptions."""

import contextlib
import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator

_NOISY = ("tensorflow", "ml_metadata")
_SAID_TWICE = ("absl", "apache_beam")  # they log, with its traceback, what they then raise


def load_tensorflow() -> None:
    """Imports TensorFlow and finds its devices, without the lines that it prints whatever TF_CPP_MIN_LOG_LEVEL says."""
    import_tensorflow()
    import tensorflow as tf

    with _no_stderr():
        tf.config.list_physical_devices()  # loads the GPU libraries, which also print


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up lines; starts no thread, so that a process may be forked afterwards."""
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    warnings.filterwarnings("ignore")
    with _no_stderr(), importing():
        import absl.logging
        import tensorflow  # noqa: F401
    absl.logging.set_verbosity(absl.logging.FATAL)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _SAID_TWICE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # What is said through the root logger itself: Beam, of the type hints in TensorFlow Transform.
    logging.getLogger().addFilter(_is_error)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Keeps the garbage collector away from what is imported: in TensorFlow and TFX it finds nothing to free.

    Looking took 2 s of their import, and 2 s more at the process's end.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """File descriptor 2 leads nowhere: native code does not ask Python's sys.stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
