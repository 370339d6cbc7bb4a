"""Pretrains a text encoder as a masked language model on the training texts (Devlin et al. 2019)."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from ctrpipe.common.arrays import read_arrays, write_arrays
from ctrpipe.common.finite import check_loss
from ctrpipe.models.base.feature_map import Text
from ctrpipe.models.layers.text_encoder import TextEncoder
from ctrpipe.models.text.masked_language_model import MaskedLanguageModel, mask_tokens
from ctrpipe.pipeline.config import Training
from ctrpipe.pipeline.training.learner import Batch
from ctrpipe.pipeline.training.network import dense_adam

NAME = "masked_language_model"


@dataclasses.dataclass(frozen=True)
class TextBatches:
    """The texts of the training rows.

    Args:
        of_epoch: Returns the batches of an epoch, counted from 0.
        rows: The number of rows in an epoch.
        text: The description of the text.
    """

    of_epoch: Callable[[int], Iterable[Batch]]
    rows: int
    text: Text


def pretrain_encoder(
    encoder: TextEncoder,
    batches: TextBatches,
    training: Training,
    rate: float,
    seed: int,
    work: pathlib.Path,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Trains the encoder in place to predict masked tokens.

    Resumes from the checkpoint in `work` if there is one.

    Args:
        encoder: The built encoder.
        batches: The texts of the training rows.
        training: Epochs, batch size, learning rate and gradient clipping.
        rate: The share of tokens that are masked.
        seed: Seed of dropout and of the choice of masked tokens.
        work: The checkpoint folder.
        report: Called with the mean loss of every epoch.
    """
    model = compiled_model(encoder, next(iter(batches.of_epoch(0))), batches.text, training, rate, seed)
    variables = [*model.variables, *model.optimizer.variables]
    work.mkdir(parents=True, exist_ok=True)
    state = work / "state.npz"
    done = 0
    if state.exists():
        *values, epochs = read_arrays(state)
        done = int(epochs)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    for epoch in range(done, training.epochs):
        mean = _epoch(model, batches, rate, seed, epoch)
        check_loss(NAME, mean, f"in epoch {epoch + 1}")
        write_arrays(state, [*(keras.ops.convert_to_numpy(variable) for variable in variables), np.array(epoch + 1)])
        if report:
            examples = (epoch + 1) * batches.rows
            step = (epoch + 1) * math.ceil(batches.rows / training.batch_size)
            report({"model": NAME, "step": step, "examples": examples, "train_loss": mean})
    encoder.set_weights(model.encoder.get_weights())


def compiled_model(
    encoder: TextEncoder, batch: Batch, text: Text, training: Training, rate: float, seed: int
) -> MaskedLanguageModel:
    """Returns a compiled masked language model that starts from a copy of the encoder.

    Args:
        encoder, text, training, rate, seed: As in `pretrain_encoder` and TextBatches.
        batch: A batch whose shapes are used to build the model.
    """
    keras.utils.set_random_seed(seed)
    model = MaskedLanguageModel(encoder.get_config())
    optimizer = dense_adam(training, training.gradient_clip_norm)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile(optimizer, loss, jit_compile=False)
    model(_mask(batch, text, rate, np.random.default_rng(0))[0])
    model.encoder.set_weights(encoder.get_weights())
    optimizer.build(model.trainable_variables)
    return model


def train_batch(
    model: MaskedLanguageModel, batch: Batch, text: Text, rate: float, random: np.random.Generator
) -> tuple[float, float]:
    """Does one training step. Returns the summed loss and the number of the masked tokens."""
    inputs, truth, weights = _mask(batch, text, rate, random)
    count = float(weights.sum())
    if not count:
        return 0.0, 0.0
    # Keras sums the loss over positions, some of which are padding. These weights turn the sum into the mean.
    return count * float(model.train_on_batch(inputs, truth, weights / count)), count


def _epoch(model: MaskedLanguageModel, batches: TextBatches, rate: float, seed: int, epoch: int) -> float:
    """Trains one epoch and returns the mean loss over its masked tokens."""
    random = np.random.default_rng([seed, epoch])
    total = masked = 0.0
    for batch in batches.of_epoch(epoch):
        loss, count = train_batch(model, batch, batches.text, rate, random)
        total, masked = total + loss, masked + count
    return total / max(masked, 1.0)


def _mask(
    batch: Batch, text: Text, rate: float, random: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Returns the model's inputs, the true tokens and the weights of the masked positions; see mask_tokens."""
    tokens, segments = (np.asarray(batch[0][name]) for name in ("tokens", "segments"))
    hidden, positions, truth, weights = mask_tokens(tokens, text, rate, random)
    return {"tokens": hidden, "segments": segments, "positions": positions}, truth, weights
