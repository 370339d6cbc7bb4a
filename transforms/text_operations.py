"""TensorFlow's operations for text, which a graph with a text needs before it is loaded."""

import contextlib


def load_text_operations() -> None:
    """Registers them; nothing where tensorflow_text is not installed, which other graphs do without."""
    with contextlib.suppress(ImportError):
        import tensorflow_text  # noqa: F401
