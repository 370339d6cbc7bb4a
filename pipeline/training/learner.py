"""The interface between the training loop and a backend: a model, its optimizer and the compiled step."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ctrpipe.models.base.ctr_model import LABEL, WEIGHT, CTRModel

# Packed tensors by name, with `weight` float32 (batch_size, 1) where rows are weighted in a training step; labels
# float32 (batch_size, tasks).
Batch = tuple[dict[str, Any], Any]


def split_weight(inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns the model's inputs and the rows' weights, (batch_size,), None where they are not weighted."""
    weight = inputs.get(WEIGHT)
    others = {name: value for name, value in inputs.items() if name != WEIGHT}
    return others, None if weight is None else weight[:, 0]


def with_labels(network: CTRModel, inputs: dict[str, Any], labels: Any, weights: Any) -> dict[str, Any]:
    """Returns what the network reads in a training step: with labels and weights, where it has a loss of its own.

    Args:
        network: The model.
        inputs: Its packed tensors.
        labels: (batch_size, tasks).
        weights: Those of the rows, (batch_size,); None where they are not weighted.
    """
    if not network.reads_labels:
        return inputs
    return {**inputs, LABEL: labels, **({} if weights is None else {WEIGHT: weights[:, None]})}


class Learner(Protocol):
    """A model in training, made by `make_learner` of tensorflow_learner or jax_learner."""

    learning_rate: float  # of the next step, before the factor of the warm-up schedule

    @property
    def network(self) -> Any:
        """Returns the Keras model with its present weights."""

    @property
    def is_chief(self) -> bool:
        """Returns whether this process reads and writes checkpoints and reports: one of those that train one model."""

    def fit(self, batches: Iterable[Batch]) -> float:
        """Does one training step for each batch, and returns the mean loss over the steps.

        A batch's loss is the mean over its rows by their weights; without a positive weight it is 0.
        """

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        """Returns labels and probabilities, float32 (rows, tasks) each."""

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the chief's arrays in every process that trains this model.

        Args:
            arrays: Of the same shapes and dtypes in all of them; only the chief's values count.
        """

    def state(self) -> list[np.ndarray]:
        """Returns all that resuming a training needs: first `weights`, then the optimizers' state."""

    def state_names(self) -> list[str]:
        """Returns a name for each array of `state`; see `network.state_names`."""

    def load_state(self, state: list[np.ndarray]) -> None:
        """Restores what `state` returned, in this process or another one."""

    def weights(self) -> list[np.ndarray]:
        """Returns the model's variables, in the order of `network.variables`."""

    def load_weights(self, weights: list[np.ndarray]) -> None:
        """Assigns what `weights` returned to the model's variables."""
