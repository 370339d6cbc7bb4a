"""Shapley values of one row's columns, for any model that can be evaluated.

References:
    Strumbelj and Kononenko, "Explaining prediction models and individual predictions with feature contributions", 2014;
    Lundberg and Lee, "A Unified Approach to Interpreting Model Predictions", 2017.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Maps to logits, [n]: a mask of the columns that have the row's values, bool [n, columns], and the index of the
# background row that fills the other columns, int64 [n].
Logits = Callable[[npt.NDArray[np.bool_], npt.NDArray[np.int64]], Floats]


@dataclasses.dataclass(frozen=True)
class Attribution:
    """The contribution of each column to a row's logit.

    Attributes:
        columns: Contribution of each column, float64 `[C]`; they sum to `logit - baseline`.
        errors: Standard errors of the contributions over the drawn orders, float64 `[C]`.
        logit: The logit of the row.
        baseline: The mean logit of the background rows used.
    """

    columns: Floats
    errors: Floats
    logit: float
    baseline: float


def draw_orders(columns: int, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Returns `count` random orders of the columns, rounded up to an even number, `[count, columns]`.

    Each order is followed by its reverse: their errors are opposite if the model is nearly additive.
    """
    drawn = [random.permutation(columns) for _ in range(-(-count // 2))]
    return np.array([order for each in drawn for order in (each, each[::-1])]).reshape(-1, columns)


def shapley(logits: Logits, orders: npt.NDArray[np.int64], background: npt.NDArray[np.int64]) -> Attribution:
    """Returns the mean over orders of the change that each column makes after the columns before it.

    With all orders of the columns, the mean is the exact Shapley value.

    Args:
        logits: Evaluates the model; called once, with (columns + 1) rows per order.
        orders: Permutations of the columns, `[orders, columns]`: all of them, or those from `draw_orders`; an even
            number.
        background: The index of each order's background row, `[orders]`.
    """
    count, columns = orders.shape
    place = np.argsort(orders, axis=1)
    present = place[:, None, :] < np.arange(columns + 1)[None, :, None]
    asked = logits(present.reshape(-1, columns), np.repeat(background, columns + 1))
    values = np.asarray(asked, np.float64).reshape(count, columns + 1)
    changes = np.take_along_axis(np.diff(values, axis=1), place, axis=1)
    of_pairs = changes.reshape(-1, 2, columns).mean(axis=1)  # an order and its reverse are drawn together
    errors = np.full(columns, np.nan)
    if len(of_pairs) > 1:
        errors = of_pairs.std(axis=0, ddof=1) / np.sqrt(len(of_pairs))
    return Attribution(changes.mean(axis=0), errors, float(values[:, -1].mean()), float(values[:, 0].mean()))
