"""Checks before training that a model can be built from its hyperparameters, and that hooks can be called."""

from collections.abc import Callable, Mapping

import keras

from ctrpipe.common import foreign
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.layers.tower import has_batch_statistics
from ctrpipe.pipeline.config import Model, RunConfig
from ctrpipe.pipeline.training.job import check_batches
from ctrpipe.pipeline.training.learner import hook_loss
from ctrpipe.pipeline.training.network import build_network
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.transforms.features.kinds.numeric import hook_transform
from ctrpipe.transforms.features.preprocessing import layout
from ctrpipe.transforms.log.pretrained_table import tuned_tables


def why_impossible(model: Model, config: RunConfig, rows: Mapping[str, int] | None = None) -> str:
    """Builds the model on tiny vocabularies. Returns the error message if this fails, otherwise "".

    Args:
        model: Registry name and hyperparameters.
        config: The run configuration, which describes the log's features.
        rows: The number of rows of each split that are trained on; None if unknown.
    """
    few_ids = layout(config.log_spec, lambda column, feature: 3)
    encoded = with_encoder(model, config.text)
    try:
        network = build_network(encoded, few_ids, seed=0)
        if model == config.model:
            _check_start(network, config)
        if rows and has_batch_statistics(network):
            of_refit = rows["train"] + rows["validation"]
            check_batches(config.training.batch_size, [rows["train"], of_refit][: 1 + config.training.refit])
    except InputError as error:
        return one_line(error)
    except (ValueError, TypeError) as error:
        return foreign.message(error)
    # A user's own model may raise any exception, and may try to end the process.
    except (Exception, SystemExit) as error:
        if reason := foreign.failure(error):
            return reason
        raise
    finally:
        keras.utils.clear_session()
    return ""


def _check_start(network: CTRModel, config: RunConfig) -> None:
    """Raises InputError if vectors should be fine-tuned and the model has no embeddings that can start from them."""
    tuned = list(tuned_tables(config.log_spec))
    if tuned and not network.value_tables():
        raise InputError(
            f"{config.model.name} has no embedding of single values that the vectors of {tuned[0]} could start; set "
            "freeze: true under pretrained, or take a model that has them, such as deepfm"
        )


def impossible_models(config: RunConfig, rows: Mapping[str, int] | None = None) -> list[str]:
    """Returns the problems of a run's model, baseline and hooks, each after its key; [] if all can be used.

    Args:
        config: The run configuration.
        rows: See `why_impossible`.
    """
    named = {"model": config.model, "evaluation.baseline": config.evaluation.baseline}
    reasons = {key: why_impossible(model, config, rows) for key, model in named.items() if model}
    return [f"{key}: {reason}" for key, reason in reasons.items() if reason] + _hooks_that_fail(config)


def _hooks_that_fail(config: RunConfig) -> list[str]:
    """Returns the problems of the losses and transforms of installed packages, each after its key."""
    tried: list[tuple[str, Callable[[str], object], str]] = [
        *(("training.loss", hook_loss, name) for name in config.training.hook_losses),
        *(("features: transform", hook_transform, name) for name in config.hook_transforms),
    ]
    reasons = []
    for key, load, name in tried:
        try:
            load(name)
        except InputError as error:
            reasons.append(f"{key}: {error}")
    return reasons
