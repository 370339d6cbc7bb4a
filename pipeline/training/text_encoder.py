"""The text encoder of a checkpoint in a model: its shape before the model is made, its weights after.

Keras is imported inside functions: a run without a text is checked before it loads Keras.
"""

import pathlib
from typing import Any

from common.errors import InputError
from models.registry import model_class
from pipeline.config import Model
from transforms.log.spec import RANDOM, Text
from transforms.text.checkpoint import find_checkpoint


def with_encoder(model: Model, text: Text | None) -> Model:
    """Returns the model as it is trained on logs with this text.

    It has the `encoder_...` options of the checkpoint, except where options are given, and names where the encoder's
    weights come from.

    The checkpoint is the model's `encoder`, or the text's where the model names none. A random encoder has the shape of
    the text's checkpoint, where there is one.

    Raises:
        InputError: the model needs a text and there is none, or the checkpoint cannot be read.
    """
    if not model_class(model.name).needs_text:
        return model
    if text is None:
        raise InputError(f"model: {model.name} needs a text; add a feature of kind text, or choose another model")
    encoder = find_checkpoint(model.encoder or text.encoder)
    shape = encoder or find_checkpoint(text.encoder)
    options = {**_options(shape), **model.hyperparameters} if shape else model.hyperparameters
    _check_length(text.length, options)
    # Words that were learnt from the log are not the checkpoint's.
    words = text.tokens == "checkpoint"
    return Model(name=model.name, encoder=str(encoder or RANDOM), encoder_words=words, **options)


def _options(folder: pathlib.Path) -> dict[str, Any]:
    from models.text.checkpoint import read_options, weight_files

    try:
        weight_files(folder)
        return read_options(folder)
    except ValueError as error:
        raise InputError(str(error)) from error


def _check_length(length: int, options: dict[str, Any]) -> None:
    room = options.get("encoder_positions", 512) - options.get("encoder_first_position", 0)
    if length > room:
        raise InputError(f"features: text: length is {length}, but the encoder has positions for {room} tokens")


def load_encoder(network: Any, model: Model) -> None:
    """Gives a built network's text encoder, or that of the text model inside it, the weights of the checkpoint.

    Raises:
        InputError: they cannot be read, or are of another shape.
    """
    reader = network.text_model()
    if reader is None or model.encoder in (None, RANDOM):
        return
    from models.text.checkpoint import load_weights

    try:
        load_weights(pathlib.Path(str(model.encoder)), reader.encoder, reader.pooler, model.encoder_words)
    except ValueError as error:
        raise InputError(str(error)) from error
