"""Imports TensorFlow, TFX and Beam quickly and without the log lines that they print as they start."""

import contextlib
import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence

_NOISY = ("tensorflow", "ml_metadata")
_SAID_TWICE = ("absl", "apache_beam")  # they log an error with its traceback, and raise it as well
# TensorFlow, Keras and NLTK import these where they are installed, for parts of them that nothing here uses: a third of
# the time of TensorFlow's import. Code that needs one imports it itself, later.
_NOT_NEEDED = ("matplotlib", "sklearn")
_CLOUD = (
    "google.cloud.bigquery",
    "google.cloud.dataflow",
    "google.cloud.pubsub",
)  # Beam imports them where they are installed


def load_tensorflow() -> None:
    """Imports TensorFlow and finds its devices, without the lines that it prints whatever TF_CPP_MIN_LOG_LEVEL says."""
    import_tensorflow()
    import tensorflow as tf

    with _no_stderr():
        tf.config.list_physical_devices()  # loads the GPU libraries, which also print


def import_tensorflow() -> None:
    """Imports TensorFlow without its start-up lines; starts no thread, so that a process may be forked afterwards."""
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # over a keras.json of the user's
    warnings.filterwarnings("ignore")
    with _no_stderr(), importing(*_NOT_NEEDED, *(["jax"] if backend != "jax" else [])):
        import absl.logging
        import tensorflow  # noqa: F401
    absl.logging.set_verbosity(absl.logging.FATAL)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _SAID_TWICE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Beam warns of TensorFlow Transform's type hints through the root logger.
    logging.getLogger().addFilter(_is_error)


def load_text_operations() -> None:
    """Registers TensorFlow Text's operations, which a graph with a text needs before it is loaded.

    Does nothing where tensorflow_text is not installed: graphs without a text do without it.
    """
    with contextlib.suppress(ImportError):
        import tensorflow_text  # noqa: F401


def tfx_does_without(beam_args: Sequence[str]) -> tuple[str, ...]:
    """Returns the modules that TFX's import can do without, for `importing`; Beam may have to run in the cloud."""
    return _NOT_NEEDED if beam_args else _NOT_NEEDED + _CLOUD


@contextlib.contextmanager
def importing(*absent: str) -> Iterator[None]:
    """Speeds up imports inside the block: without garbage collection, and without modules that nothing needs.

    In the objects of TensorFlow and TFX the collector finds nothing to free; looking took 2 s of their import, and 2 s
    more at the process's end.

    Args:
        absent: Modules that look as if they were not installed, unless they are loaded already. No other thread may
            import meanwhile.
    """
    enabled = gc.isenabled()
    gc.disable()
    hidden = [name for name in absent if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is the import system's own mark of an absent module
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        if enabled:
            gc.enable()


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Sends file descriptor 2 nowhere: native code does not write to Python's sys.stderr."""
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
