"""JAX without random weights, for tests with given ones: compiling the generator for every shape takes seconds."""

from typing import Any

import numpy as np


def draw_zeros() -> None:
    """Makes JAX draw zeros for the rest of the process."""
    import jax  # Lazy: the tests on TensorFlow import what calls this.

    def zeros(key: Any, *, shape: tuple[int, ...], dtype: Any, **limits: Any) -> np.ndarray:
        return np.zeros(shape, dtype)

    random: Any = jax.random
    random.normal = random.uniform = random.truncated_normal = zeros
