"""The average of a model's weights over a training's evaluations, which is measured, kept and served in their place."""

import contextlib
import pathlib
from collections.abc import Iterator

import numpy as np

from ctrpipe.common.arrays import read_arrays
from ctrpipe.pipeline.training.learner import Learner

AVERAGE = "average.npz"  # in a checkpoint, where there is an average


class WeightAverage:
    """The mean of a learner's weights over about the last `span` evaluations; with a span of 1 those of the last.

    The steps of Adam at a constant rate end somewhere around a minimum, and which of them an evaluation finds there is
    chance; the mean of several is nearer to it (Polyak and Juditsky 1992; Izmailov et al. 2018, "Averaging Weights
    Leads to Wider Optima and Better Generalization"; Kaddour 2022, "Stop Wasting My Time! Saving Days of ImageNet and
    BERT Training with Latest Weight Averaging"). With w_n the weights at the n-th evaluation:

        average_n = average_(n-1) + (w_n - average_(n-1)) / min(n, span)

    That is the mean of all until `span` of them are there, and an exponential moving average from then on, for which
    one copy of the weights is enough.

    Args:
        span: Evaluations, at least 1.
    """

    def __init__(self, span: int):
        self.span = span
        self._weights: list[np.ndarray] | None = None

    def add(self, learner: Learner, number: int) -> None:
        """Counts in the learner's present weights, at the evaluation of this number, counted from 1."""
        if self.span == 1:
            return
        weights = [value.copy() for value in learner.weights()]  # JAX's are views of what the next step reuses
        if self._weights is None:
            self._weights = weights
        else:
            share = np.float32(1 / min(number, self.span))
            # What is not a number with a fraction, such as the state of a random generator, has no mean.
            self._weights = [
                old + (new - old) * share if np.issubdtype(new.dtype, np.floating) else new
                for old, new in zip(self._weights, weights, strict=True)
            ]

    def of(self, weights: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the average, in the order of `weights`; `weights` themselves with a span of 1."""
        return weights if self._weights is None else self._weights

    @contextlib.contextmanager
    def loaded(self, learner: Learner) -> Iterator[None]:
        """Gives the learner the average, and on leaving the weights with which it trains."""
        if self._weights is None:
            yield
            return
        trained = learner.weights()
        learner.load_weights(self._weights)
        yield
        # Each process moves the seeds that it loads by its own number, and so has to load the chief's.
        learner.load_weights(learner.from_chief(trained))

    def save(self, folder: pathlib.Path) -> None:
        """Writes the average to a checkpoint's folder."""
        if self._weights is not None:
            np.savez(folder / AVERAGE, *self._weights)

    def restore(self, learner: Learner, folder: pathlib.Path | None) -> None:
        """Takes the average from a checkpoint in which there was an evaluation.

        Args:
            learner: The learner of the training.
            folder: The checkpoint; None in a process that is not the chief.
        """
        if self.span > 1:
            self._weights = learner.from_chief(read_arrays(folder / AVERAGE) if folder else learner.weights())
