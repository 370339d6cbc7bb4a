"""What training asks of a backend: one object that holds a model, its optimizer, and the compiled step."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

Batch = tuple[dict[str, Any], Any]  # packed tensors by name, labels float32 (batch_size, tasks)


class Learner(Protocol):
    """A model in training. `make_learner` of tensorflow_learner or jax_learner makes one."""

    learning_rate: float  # of the next step, before the warm-up schedule's factor

    @property
    def network(self) -> Any:
        """Returns the Keras model with its present weights."""

    @property
    def is_chief(self) -> bool:
        """Whether this process reads and writes checkpoints and reports: of several that train one model, one does."""

    def fit(self, batches: Iterable[Batch]) -> float:
        """Does one training step for each batch, and returns the mean loss over the steps."""

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        """Returns labels and probabilities, float32 (rows, tasks) each."""

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the chief's arrays, in every process that trains this model; each gives arrays of the same shapes."""

    def state(self) -> list[np.ndarray]:
        """Returns everything a resumed training needs: weights, optimizer state, random state."""

    def load_state(self, state: list[np.ndarray]) -> None:
        """Goes on from what `state` returned, also in another process."""

    def weights(self) -> list[np.ndarray]:
        """Returns the model's variables, in the order of `network.variables`."""

    def load_weights(self, weights: list[np.ndarray]) -> None:
        """Takes the model's variables from what `weights` returned."""
