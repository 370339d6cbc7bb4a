"""What both backends need before the first step: the model with its weights, the loss's weights, the schedule."""

import keras

from models.ctr_model import CTRModel, empty_row
from models.feature_map import FeatureMap
from models.registry import create
from pipeline.config import Model
from pipeline.training.text_encoder import load_encoder


def build_network(model: Model, feature_map: FeatureMap, seed: int) -> CTRModel:
    """The model with its weights; the same seed gives the same weights on the same backend. A text encoder has those of
    the model's checkpoint, where it names one.

    Raises:
        InputError: the checkpoint's weights cannot be read.
    """
    keras.utils.set_random_seed(seed)
    network = create(model.name, feature_map, **model.hyperparameters)
    network(empty_row(feature_map))
    load_encoder(network, model)
    return network


def task_weights(feature_map: FeatureMap, weights: dict[str, float]) -> tuple[float, ...] | None:
    """The loss's weight of each task, 1 where none is given."""
    return tuple(weights.get(task, 1.0) for task in feature_map.tasks) if weights else None


def warm_up(step: int, warmup_steps: int) -> float:
    """The Transformer's schedule as a factor on the learning rate, 1 at `warmup_steps` (Vaswani et al. 2017, eq. 3).

    Linear to there, falling with the inverse square root of the step from there on; 1 throughout without a warm-up.
    """
    return min(step / warmup_steps, (warmup_steps / step) ** 0.5) if warmup_steps else 1.0
