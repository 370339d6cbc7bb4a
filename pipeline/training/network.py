"""What both backends need before the first step: the model with its weights, the loss's weights, the schedule."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import keras

from models.ctr_model import CTRModel, empty_row
from models.feature_map import FeatureMap
from models.registry import create, model_class
from pipeline.config import Model
from pipeline.training.text_encoder import load_encoder


def build_network(model: Model, feature_map: FeatureMap, seed: int, precision: str = "float32") -> CTRModel:
    """Returns the model with its weights; the same seed gives the same weights on the same backend.

    A text encoder has the weights of the model's checkpoint, where it names one.

    Args:
        model: Registry name and hyperparameters.
        feature_map: The description of the packed tensors.
        seed: Of the initial weights.
        precision: `training.precision`. The weights are float32, whatever it is, and so are the logits.

    Raises:
        InputError: the checkpoint's weights cannot be read.
    """
    model_class(model.name)  # importing keras-rs draws from the random numbers
    keras.utils.set_random_seed(seed)
    with _layers_of(precision):
        network = create(model.name, feature_map, **model.hyperparameters)
        network(empty_row(feature_map))
    load_encoder(network, model)
    return network


@contextlib.contextmanager
def _layers_of(precision: str) -> Iterator[None]:
    """Layers that are made meanwhile compute in this precision; Keras knows only a setting for the whole process."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def task_weights(feature_map: FeatureMap, weights: dict[str, float]) -> tuple[float, ...] | None:
    """Returns the loss's weight of each task, 1 where none is given."""
    return tuple(weights.get(task, 1.0) for task in feature_map.tasks) if weights else None


def warm_up(step: int, warmup_steps: int) -> float:
    """Returns the Transformer's factor on the learning rate, 1 at `warmup_steps` (Vaswani et al. 2017, eq. 3).

    Linear to there, falling with the inverse square root of the step from there on; 1 throughout without a warm-up.
    """
    return min(step / warmup_steps, (warmup_steps / step) ** 0.5) if warmup_steps else 1.0


def rate_factors(network: CTRModel, weights: list[keras.Variable], encoder_rate: float) -> list[float]:
    """Returns each weight's factor on its learning rate: `training.encoder_rate` for the text encoder's."""
    slow = {id(weight) for weight in network.encoder_weights()}
    return [encoder_rate if id(weight) in slow else 1.0 for weight in weights]


def count_parameters(network: Any) -> tuple[int, int]:
    """Returns the number of trainable parameters of a built model, and those of them that lie in embedding tables."""
    parameters = sum(math.prod(weight.shape) for weight in network.trainable_variables)
    return parameters, sum(math.prod(table.table.shape) for table in network.tables())
