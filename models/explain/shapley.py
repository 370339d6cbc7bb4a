"""Shapley values of one row's columns, for any model that can be asked.

References:
    Strumbelj and Kononenko, "Explaining prediction models and individual predictions with feature contributions", 2014;
    Lundberg and Lee, "A Unified Approach to Interpreting Model Predictions", 2017.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Maps which columns have the row's values, bool [n, columns], and the number of the background row that the others are
# taken from, int64 [n], to logits, [n].
Logits = Callable[[npt.NDArray[np.bool_], npt.NDArray[np.int64]], Floats]


@dataclasses.dataclass(frozen=True)
class Attribution:
    """What each column adds to a row's logit.

    Attributes:
        columns: By column, float64 `[C]`; their sum is `logit - baseline`.
        errors: Their standard errors over the orders that were drawn, float64 `[C]`.
        logit: The row's.
        baseline: The mean logit of the background rows that were used.
    """

    columns: Floats
    errors: Floats
    logit: float
    baseline: float


def draw_orders(columns: int, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Returns `count` orders of the columns, rounded up to an even number, `[count, columns]`.

    Each is followed by its reverse, whose error goes the other way where a model is near to additive.
    """
    drawn = [random.permutation(columns) for _ in range(-(-count // 2))]
    return np.array([order for each in drawn for order in (each, each[::-1])]).reshape(-1, columns)


def shapley(logits: Logits, orders: npt.NDArray[np.int64], background: npt.NDArray[np.int64]) -> Attribution:
    """Returns the mean, over orders, of what a column changes when it comes after those before it.

    With all orders of the columns it is the Shapley value itself.

    Args:
        logits: Asks the model; called once, with (columns + 1) rows an order.
        orders: Permutations of the columns, `[orders, columns]`, from `draw_orders` where they are not all; an even
            number.
        background: The number of the background row of each order, `[orders]`.
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
