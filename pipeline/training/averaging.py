"""Averages a model's weights over the evaluations of a training run.

The average is evaluated, saved and served instead of the last weights.
"""

import contextlib
import pathlib
from collections.abc import Iterator

import numpy as np

from ctrpipe.common.arrays import read_arrays
from ctrpipe.pipeline.training.learner import Learner

AVERAGE = "average.npz"  # in a checkpoint, if there is an average


class WeightAverage:
    """Mean of a learner's weights over about the last `span` evaluations.

    With a constant learning rate, Adam's steps end at a random point around a minimum. The mean of the weights at
    several evaluations is closer to the minimum (Polyak and Juditsky 1992; Izmailov et al. 2018,
    "Averaging Weights Leads to Wider Optima and Better Generalization"; Kaddour 2022, "Stop Wasting My Time! Saving
    Days of ImageNet and BERT Training with Latest Weight Averaging"). With w_n the weights at the n-th evaluation:

        average_n = average_(n-1) + (w_n - average_(n-1)) / min(n, span)

    This is the mean of all weights for the first `span` evaluations and an exponential moving average afterwards. It
    needs only one copy of the weights.

    Args:
        span: Number of evaluations, at least 1. 1 disables averaging: the last weights are used.
    """

    def __init__(self, span: int):
        self.span = span
        self._weights: list[np.ndarray] | None = None

    def add(self, learner: Learner, number: int) -> None:
        """Adds the learner's current weights, at the evaluation with this number, counted from 1."""
        if self.span == 1:
            return
        weights = [value.copy() for value in learner.weights()]  # the next step reuses JAX's memory
        if self._weights is None:
            self._weights = weights
        else:
            share = np.float32(1 / min(number, self.span))
            # Weights that are not floats, such as the state of a random generator, have no mean.
            self._weights = [
                old + (new - old) * share if np.issubdtype(new.dtype, np.floating) else new
                for old, new in zip(self._weights, weights, strict=True)
            ]

    def of(self, weights: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the average, in the order of `weights`, or `weights` themselves if the span is 1."""
        return weights if self._weights is None else self._weights

    @contextlib.contextmanager
    def loaded(self, learner: Learner) -> Iterator[None]:
        """Loads the average into the learner, and restores the trained weights on exit."""
        if self._weights is None:
            yield
            return
        trained = learner.weights()
        learner.load_weights(self._weights)
        yield
        # Each process offsets the seeds that it loads by its own number, so all of them must load the chief's.
        learner.load_weights(learner.from_chief(trained))

    def save(self, folder: pathlib.Path) -> None:
        """Writes the average to a checkpoint folder."""
        if self._weights is not None:
            np.savez(folder / AVERAGE, *self._weights)

    def restore(self, learner: Learner, folder: pathlib.Path | None) -> None:
        """Reads the average from a checkpoint that was written after at least one evaluation.

        Args:
            learner: The learner of the training run.
            folder: The checkpoint; None in a process that is not the chief.
        """
        if self.span > 1:
            self._weights = learner.from_chief(read_arrays(folder / AVERAGE) if folder else learner.weights())
