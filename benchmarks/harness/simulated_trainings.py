"""Simulated training runs, for error rates of gates and comparisons.

A training run scores a row by its true logit plus an error. The error is a sum of the row's attributes with random
weights of the training run. Thus training runs of one model differ by more than their test rows explain, as real ones
do.
"""

import math

import numpy as np

CLICK_LOGIT, LOGIT_DEVIATION = -1.5, 1.0  # a click-through rate of about 0.24, and an AUC of about 0.74
ATTRIBUTES = 16  # attributes that an error depends on: with fewer, training runs differ more


def draw_log(random: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns rows' true logits, `[rows]`, their labels, `[rows]`, and their attributes, `[rows, ATTRIBUTES]`."""
    logits = random.normal(CLICK_LOGIT, LOGIT_DEVIATION, rows)
    labels = (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return logits, labels, random.normal(size=(rows, ATTRIBUTES))


def draw_trainings(
    random: np.random.Generator, logits: np.ndarray, attributes: np.ndarray, count: int, error: float
) -> list[np.ndarray]:
    """Returns the probabilities, `[rows]` each, of training runs with errors of standard deviation `error`."""
    weights = random.normal(scale=error / math.sqrt(ATTRIBUTES), size=(count, ATTRIBUTES))
    # einsum instead of a BLAS product, whose threads would wait for each other all the time.
    errors = np.einsum("ra,ta->tr", attributes, weights)
    return list(1 / (1 + np.exp(-logits - errors)))
