"""The first stage of a model with a text: its encoder learns the log's language from the training rows' texts."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from models.feature_map import Text
from models.layers.text_encoder import TextEncoder
from models.text.masked_language_model import MaskedLanguageModel, hide_tokens
from pipeline.config import Training
from pipeline.training.checkpoint import read_arrays, write_arrays
from pipeline.training.learner import Batch

NAME = "masked_language_model"


@dataclasses.dataclass(frozen=True)
class TextBatches:
    """The texts of an epoch: `of(epoch)` gives its batches, `rows` counts their rows."""

    of: Callable[[int], Iterable[Batch]]
    rows: int
    text: Text


def warm_up_text(
    encoder: TextEncoder,
    batches: TextBatches,
    training: Training,
    rate: float,
    seed: int,
    work: pathlib.Path,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Trains the encoder to guess hidden words, or goes on from the epoch that `work` holds.

    Args:
        encoder: Built; its weights are where the training starts, and are replaced by those where it ends.
        batches: The training rows' texts.
        training: Epochs and learning rate.
        rate: The share of words that are hidden.
        seed: Of dropout and of what is hidden.
        work: Folder of the checkpoint.
        report: Called with the mean loss of every epoch.
    """
    keras.utils.set_random_seed(seed)
    model = MaskedLanguageModel(encoder.get_config())
    optimizer = keras.optimizers.Adam(training.learning_rate, global_clipnorm=training.gradient_clip_norm)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile(optimizer, loss, jit_compile=False)
    first = next(iter(batches.of(0)))
    model(_hide(first, batches.text, rate, np.random.default_rng(0))[0])
    model.encoder.set_weights(encoder.get_weights())
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
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
        write_arrays(state, [*(keras.ops.convert_to_numpy(variable) for variable in variables), np.array(epoch + 1)])
        if report:
            examples = (epoch + 1) * batches.rows
            step = (epoch + 1) * math.ceil(batches.rows / training.batch_size)
            report({"model": NAME, "step": step, "examples": examples, "train_loss": mean})
    encoder.set_weights(model.encoder.get_weights())


def _epoch(model: keras.Model, batches: TextBatches, rate: float, seed: int, epoch: int) -> float:
    """Trains one epoch, and returns the mean loss of a hidden word."""
    random = np.random.default_rng([seed, epoch])
    total = words = 0.0
    for batch in batches.of(epoch):
        inputs, truth, weights = _hide(batch, batches.text, rate, random)
        count = float(weights.sum())
        if count:
            # The mean over hidden words, whatever the batch's padding.
            total += count * float(model.train_on_batch(inputs, truth, weights / count))
            words += count
    return total / max(words, 1.0)


def _hide(
    batch: Batch, text: Text, rate: float, random: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    tokens, segments = (np.asarray(batch[0][name]) for name in ("tokens", "segments"))
    hidden, positions, truth, weights = hide_tokens(tokens, text, rate, random)
    return {"tokens": hidden, "segments": segments, "positions": positions}, truth, weights
