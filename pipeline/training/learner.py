"""The interface between the training loop and a backend: a model, its optimizer and the compiled step."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import keras
import numpy as np

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import GROUP, LABEL, WEIGHT, FeatureMap
from ctrpipe.models.base.losses import BinaryCrossEntropy, TaskLosses
from ctrpipe.models.base.tensors import Tensor
from ctrpipe.pipeline.config.training import WITHIN_GROUPS, Training

# Packed tensors by name, and labels float32 (batch_size, tasks). A training step with weighted rows also has `weight`,
# float32 (batch_size, 1).
Batch = tuple[dict[str, Tensor], Tensor]


def split_weight(inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor | None]:
    """Splits inputs into the model's inputs and the row weights, (batch_size,), or None if rows have no weights."""
    weight = inputs.get(WEIGHT)
    others = {name: value for name, value in inputs.items() if name not in (WEIGHT, GROUP)}
    return others, None if weight is None else weight[:, 0]


# Of labels and logits, (batch_size, tasks), and groups, (batch_size,).
RowLosses = Callable[[Tensor, Tensor, Tensor], Tensor]


def row_losses(feature_map: FeatureMap, training: Training) -> RowLosses:
    """Returns the loss function of labels, logits and groups, whose result is the loss of each row, (batch_size,)."""
    weights = task_weights(feature_map, training.task_weights)
    names = tuple(training.losses(feature_map.tasks))
    numbers = tuple(feature_map.numbers_by_task.values()) if feature_map.number_tasks else ()
    if set(names) == {"binary_cross_entropy"} and not numbers:
        plain = BinaryCrossEntropy(weights, training.fake_negative_weighting)
        return lambda labels, logits, groups: plain.call(labels, logits)
    settings = training.focal_gamma, training.focal_alpha, training.jrc_weight
    others = {name: hook_loss(name) for name in training.hook_losses}
    return TaskLosses(names, weights, *settings, others, numbers).of_rows


class _Compiled(keras.Operation):
    """A loss that is called with tensors without values, as in the compiled step of a training run."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self._loss = loss

    def call(self, labels: Tensor, logits: Tensor) -> Tensor:
        return self._loss(labels, logits)


def hook_loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the loss of an installed package, after a test on a few rows.

    Raises:
        InputError: it is not installed, fails, or does not return a finite loss for each row.
    """
    loss: Callable[[Tensor, Tensor], Tensor] = hooks.load("losses", name)
    labels, logits = np.array([0, 1, 1, 0], np.float32), np.array([-1, 2, -3, 0.5], np.float32)
    with hooks.failures("losses", name):
        values = np.asarray(keras.ops.convert_to_numpy(loss(*map(keras.ops.convert_to_tensor, (labels, logits)))))
    is_finite = values.dtype.kind == "f" and bool(np.isfinite(values).all())
    if values.shape != labels.shape or not is_finite:
        wrong = f"{values.dtype} of shape {list(values.shape)}{'' if is_finite else ', not all of them finite floats,'}"
        raise InputError(f"the loss {name} returned {wrong} for {len(labels)} rows; return a finite float for each row")
    of_rows = keras.KerasTensor(labels.shape, "float32")
    try:
        _Compiled(loss).compute_output_spec(of_rows, of_rows)
    # A hook is foreign code, which may raise any exception.
    except Exception as error:
        reason = one_line(str(error).rpartition("Error encountered:")[2], 200)
        raise InputError(
            f"the loss {name} cannot be part of a training step ({reason}); use keras.ops alone"
        ) from error
    return loss


def compares_rows(training: Training, feature_map: FeatureMap) -> bool:
    """Returns whether a loss compares the rows of a group."""
    return any(name in WITHIN_GROUPS for name in training.losses(feature_map.tasks))


def task_weights(feature_map: FeatureMap, weights: dict[str, float]) -> tuple[float, ...] | None:
    """Returns the loss weight of each task, by default 1, or None if `weights` is empty."""
    return tuple(weights.get(task, 1.0) for task in feature_map.tasks) if weights else None


def with_labels(network: CTRModel, inputs: dict[str, Tensor], labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Returns the network's inputs for a training step, with labels and weights if it computes its own loss.

    Args:
        network: The model.
        inputs: The packed tensors.
        labels: Labels, (batch_size, tasks).
        weights: Row weights, (batch_size,); None if rows have no weights.
    """
    if not network.reads_labels:
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
        """Returns labels and predictions, float32 (rows, tasks) each; see `ctrpipe.models.base.answers`."""

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
