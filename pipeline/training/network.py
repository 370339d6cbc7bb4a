"""Helpers of the learners of both backends: model building, task weights, learning rates, sizes."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.models.base.ctr_model import CTRModel, empty_row
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import create, model_class
from ctrpipe.models.base.tensors import Tensor
from ctrpipe.models.base.weight_names import weight_names
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.text_encoder import load_encoder

MOMENTS = ("m", "v")  # names of Adam's moments: the means of the gradients and of their squares
ITERATIONS = ":iterations"  # name of an optimizer's step count


def build_network(model: Model, feature_map: FeatureMap, seed: int, precision: str = "float32") -> CTRModel:
    """Returns the built model. The same seed gives the same initial weights on the same backend.

    A text encoder gets the weights of the checkpoint `model.encoder`, if one is configured.

    Args:
        model: Registry name and hyperparameters.
        feature_map: The description of the packed tensors.
        seed: Seed of the initial weights.
        precision: `training.precision`. Weights and logits are float32 in any precision.

    Raises:
        InputError: the model cannot be built on these tensors, or the checkpoint's weights cannot be read.
    """
    model_class(model.name)  # imports keras-rs, which draws random numbers, so the seed is set afterwards
    keras.utils.set_random_seed(seed)
    with _dtype_policy(precision):
        try:
            network = create(model.name, feature_map, **model.hyperparameters)
        except (ValueError, TypeError) as error:
            raise InputError(one_line(error)) from error
        network(empty_row(feature_map))
        if ":" in model.name:
            _check_logits(model.name, network, feature_map)
    load_encoder(network, model)
    return network


def _check_logits(name: str, network: CTRModel, feature_map: FeatureMap) -> None:
    """Raises InputError if a user's own model does not return one logit per row and task.

    Logits of another shape would be broadcast against the labels, and the loss would be wrong.
    """
    rows, expected = 2, (2, len(feature_map.tasks))
    shape = tuple(
        network({name: np.repeat(values, rows, axis=0) for name, values in empty_row(feature_map).items()}).shape
    )
    if shape != expected:
        raise InputError(
            f"{name} returned logits of shape {list(shape)} for {rows} rows; `interact` must return one for each row "
            f"and task, here {list(expected)}"
        )


@contextlib.contextmanager
def _dtype_policy(precision: str) -> Iterator[None]:
    """Sets Keras's process-wide dtype policy, the default of new layers, inside the block."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def warmup_factor(step: int, warmup_steps: int) -> float:
    """Returns the learning-rate factor of a step, counted from 1 (Vaswani et al. 2017, equation 3).

    The factor grows linearly to 1 at `warmup_steps` and then falls with the inverse square root of the step. If
    `warmup_steps` is 0, it is always 1.
    """
    return min(step / warmup_steps, (warmup_steps / step) ** 0.5) if warmup_steps else 1.0


def dense_adam(training: Training, clip_norm: float | None = None) -> keras.optimizers.Adam:
    """Returns Adam with the settings of `training`. Gradients are clipped if `clip_norm` is given."""
    betas = {"beta_1": training.adam_beta_1, "beta_2": training.adam_beta_2}
    return keras.optimizers.Adam(
        training.learning_rate, **betas, epsilon=training.adam_epsilon, global_clipnorm=clip_norm
    )


def constrained(weight: keras.Variable, values: Tensor) -> Tensor:
    """Applies the weight's constraint to values of the weight, or to some rows of a table."""
    return values if weight.constraint is None else weight.constraint(values)


def state_names(
    network: CTRModel, optimizer: keras.optimizers.Adam, dense: list[keras.Variable], slots: Iterable[str]
) -> list[str]:
    """Returns a name for each array of a learner's state, in order: weights, dense optimizer state, table slots.

    An array is named after its weight in `weight_names`; optimizer arrays append a colon and their own name. The step
    count is ITERATIONS. Other arrays have the name "".

    Args:
        network: The model.
        optimizer: The optimizer of `dense`.
        dense: The weights that it updates.
        slots: The names of a row optimizer's slots, which are the same for each table.
    """
    weights = weight_names(network)
    places = {id(variable): name for variable, name in zip(network.variables, weights, strict=True)}
    numbers = {id(optimizer.iterations): ITERATIONS}
    for moment, variables in zip(MOMENTS, (optimizer._momentums, optimizer._velocities), strict=True):
        numbers |= {
            id(number): f"{places[id(weight)]}:{moment}" for number, weight in zip(variables, dense, strict=True)
        }
    of_slots = [f"{places[id(table.table)]}:{slot}" for table in network.tables() for slot in slots]
    return [*weights, *(numbers.get(id(number), "") for number in optimizer.variables), *of_slots]


def rate_factors(network: CTRModel, weights: list[keras.Variable], encoder_rate: float) -> list[float]:
    """Returns the learning-rate factor of each weight: `encoder_rate` for the text encoder's weights, otherwise 1."""
    slow = {id(weight) for weight in network.encoder_weights()}
    return [encoder_rate if id(weight) in slow else 1.0 for weight in weights]


def l2_strengths(network: CTRModel, weights: list[keras.Variable], training: Training) -> list[float]:
    """Returns the strength λ of the penalty λ/2·Σw² on each weight.

    It is `table_l2` for tables and `network_l2` for kernels. It is 0 for biases, other weights with one axis, and the
    text encoder.
    """
    tables = {id(table.table) for table in network.tables()}
    encoder = {id(weight) for weight in network.encoder_weights()}

    def strength(weight: keras.Variable) -> float:
        if id(weight) in tables:
            return training.table_l2
        is_kernel = len(weight.shape) > 1 and not weight.name.endswith("bias") and id(weight) not in encoder
        return training.network_l2 if is_kernel else 0.0

    return [strength(weight) for weight in weights]


def count_parameters(network: Any) -> tuple[int, int]:
    """Returns the number of trainable parameters of a built model, and the number in embedding tables."""
    parameters = sum(math.prod(weight.shape) for weight in network.trainable_variables)
    return parameters, sum(math.prod(table.table.shape) for table in network.tables())
