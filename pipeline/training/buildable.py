"""Checks before training that a model can be built from its hyperparameters."""

import keras

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.pipeline.config import Model, RunConfig
from ctrpipe.pipeline.training.network import build_network
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.transforms.features.preprocessing import layout


def why_impossible(model: Model, config: RunConfig) -> str:
    """Builds the model on tiny vocabularies. Returns the error message if this fails, otherwise "".

    Args:
        model: Registry name and hyperparameters.
        config: The run configuration, which describes the log's features.
    """
    few_ids = layout(config.log_spec, lambda column, feature: 3)
    encoded = with_encoder(model, config.text)
    try:
        build_network(encoded, few_ids, seed=0)
    except (InputError, ValueError, TypeError) as error:
        return one_line(error)
    finally:
        keras.utils.clear_session()
    return ""
