"""Pretrained text encoders: a checkpoint's shape as model options, and its weights in a built model."""

import pathlib
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.config import Model
from ctrpipe.transforms.log.kinds.text import RANDOM, Text
from ctrpipe.transforms.text.checkpoint import find_checkpoint


def with_encoder(model: Model, text: Text | None) -> Model:
    """Returns the model with the `encoder_...` options of its checkpoint. Options that the model already has are kept.

    The checkpoint is `model.encoder`, or `text.encoder` if the model names none. A random encoder takes its shape from
    the checkpoint of the text, if there is one. A model that reads no text is returned unchanged.

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
    # A vocabulary that was counted in the log does not match the checkpoint's table of word embeddings.
    words = text.tokens == "checkpoint"
    return Model(name=model.name, encoder=str(encoder or RANDOM), encoder_words=words, **options)


def _options(folder: pathlib.Path) -> dict[str, Any]:
    # Lazy: Keras takes 4 s, and commands check their input before.
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
    """Loads the checkpoint's weights into the text encoder of a built network, if it has one.

    Raises:
        InputError: the weights cannot be read, or have other shapes.
    """
    if model.encoder in (None, RANDOM):
        return
    from ctrpipe.models.text.cascading import text_model_of
    from ctrpipe.models.text.checkpoint import load_weights  # lazy, see _options

    text_model = text_model_of(network)
    if text_model is None:
        return
    try:
        load_weights(pathlib.Path(str(model.encoder)), text_model.encoder, text_model.pooler, model.encoder_words)
    except ValueError as error:
        raise InputError(str(error)) from error
