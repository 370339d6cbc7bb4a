"""Keeps libraries' own log lines out of what a user sees; errors reach the user as exceptions."""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

_NOISY = ("tensorflow", "ml_metadata")
_SAID_TWICE = ("absl", "apache_beam")  # they log, with its traceback, what they then raise


def load_tensorflow() -> None:
    """Imports TensorFlow without its start-up lines, which it prints whatever TF_CPP_MIN_LOG_LEVEL says."""
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    warnings.filterwarnings("ignore")
    with _no_stderr():
        import absl.logging
        import tensorflow as tf

        tf.config.list_physical_devices()  # loads the GPU libraries, which also print
    absl.logging.set_verbosity(absl.logging.FATAL)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _SAID_TWICE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # What is said through the root logger itself: Beam, of the type hints in TensorFlow Transform.
    logging.getLogger().addFilter(_is_error)


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
