"""The interface between the training loop and a backend: a model, its optimizer and the compiled step."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import LABEL, WEIGHT
from ctrpipe.models.starspace import StarSpace

# Packed tensors by name, and labels float32 (batch_size, tasks). A training step with weighted rows also has `weight`,
# float32 (batch_size, 1).
Batch = tuple[dict[str, Any], Any]


def split_weight(inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Splits inputs into the model's inputs and the row weights, (batch_size,), or None if rows have no weights."""
    weight = inputs.get(WEIGHT)
    others = {name: value for name, value in inputs.items() if name != WEIGHT}
    return others, None if weight is None else weight[:, 0]


def with_labels(network: CTRModel, inputs: dict[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
    """Returns the network's inputs for a training step, with labels and weights if it computes its own loss.

    Args:
        network: The model.
        inputs: The packed tensors.
        labels: Labels, (batch_size, tasks).
        weights: Row weights, (batch_size,); None if rows have no weights.
    """
    if not isinstance(network, StarSpace):
        return inputs
    return {**inputs, LABEL: labels, **({} if weights is None else {WEIGHT: weights[:, None]})}


class Learner(Protocol):
    """A model in training, made by `make_learner` of tensorflow_learner or jax_learner."""

    learning_rate: float  # of the next step, before the factor of the warm-up schedule

    @property
    def network(self) -> Any:
        """Returns the Keras model with its current weights."""

    @property
    def is_chief(self) -> bool:
        """Returns whether this process is the chief of the training run, which handles checkpoints and reports."""

    def fit(self, batches: Iterable[Batch]) -> float:
        """Does one training step per batch, and returns the mean loss over the steps.

        The loss of a batch is the weighted mean over its rows, or 0 if no row has a positive weight.
        """

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        """Returns labels and probabilities, float32 (rows, tasks) each."""

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the chief's arrays in every process that trains this model.

        Args:
            arrays: Arrays with the same shapes and dtypes in all processes; only the chief's values count.
        """

    def state(self) -> list[np.ndarray]:
        """Returns the arrays that are needed to resume training: first `weights`, then the optimizer state."""

    def state_names(self) -> list[str]:
        """Returns a name for each array of `state`; see `network.state_names`."""

    def load_state(self, state: list[np.ndarray]) -> None:
        """Restores the return value of `state`, in this process or another one."""

    def weights(self) -> list[np.ndarray]:
        """Returns the model's variables, in the order of `network.variables`."""

    def load_weights(self, weights: list[np.ndarray]) -> None:
        """Assigns the return value of `weights` to the model's variables."""
