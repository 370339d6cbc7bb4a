"""Pretrained text encoders: a checkpoint's shape as options of a model, and its weights in the built model."""

import pathlib
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.config import Model
from ctrpipe.transforms.log.spec import RANDOM, Text
from ctrpipe.transforms.text.checkpoint import find_checkpoint


def with_encoder(model: Model, text: Text | None) -> Model:
    """Returns the model with the `encoder_...` options of its checkpoint; options that it has are kept.

    The checkpoint is `model.encoder`, or `text.encoder` where the model names none. A random encoder takes its shape
    from the text's checkpoint, where there is one. A model that reads no text is returned as it is.

    Raises:
        InputError: the model needs a text and the log has none, the checkpoint cannot be read, or the text is longer
            than the encoder's positions.
    """
    if not model_class(model.name).needs_text:
        return model
    if text is None:
        raise InputError(f"model: {model.name} needs a text; add a feature of kind text, or choose another model")
    encoder = find_checkpoint(model.encoder or text.encoder)
    shape = encoder or find_checkpoint(text.encoder)
    options = {**_options(shape), **model.hyperparameters} if shape else model.hyperparameters
    _check_length(text.length, options)
    # A vocabulary that was counted in the log does not fit the checkpoint's table of word embeddings.
    words = text.tokens == "checkpoint"
    return Model(name=model.name, encoder=str(encoder or RANDOM), encoder_words=words, **options)


def _options(folder: pathlib.Path) -> dict[str, Any]:
    # It imports Keras: 5 s that a command which imports pipeline/run/run.py would take before it checks its input.
    from ctrpipe.models.text.checkpoint import read_options, weight_files

    try:
        weight_files(folder)
        return read_options(folder)
    except ValueError as error:
        raise InputError(str(error)) from error


def _check_length(length: int, options: dict[str, Any]) -> None:
    positions = options.get("encoder_positions", 512) - options.get("encoder_first_position", 0)
    if length > positions:
        raise InputError(f"features: text: length is {length}, but the encoder has positions for {positions} tokens")


def load_encoder(network: Any, model: Model) -> None:
    """Loads the checkpoint's weights into the text encoder of a built network, where it has one.

    Raises:
        InputError: the weights cannot be read, or have other shapes.
    """
    text_model = network.text_model()
    if text_model is None or model.encoder in (None, RANDOM):
        return
    from ctrpipe.models.text.checkpoint import load_weights  # see _options

    try:
        load_weights(pathlib.Path(str(model.encoder)), text_model.encoder, text_model.pooler, model.encoder_words)
    except ValueError as error:
        raise InputError(str(error)) from error
