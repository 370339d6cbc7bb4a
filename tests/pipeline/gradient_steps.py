"""Learners whose steps show their gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np

# With these an update of Adam is -g / (1 + |g| / 10^6): the gradient g, but for a millionth.
SHOWS_GRADIENTS = {"adam_beta_1": 0.0, "adam_beta_2": 0.0, "adam_epsilon": 1e6, "learning_rate": 1e6}


def table_l2_error(learner: Callable[..., Any], batch: Any, strength: float) -> float:
    """Returns how far a step with a penalty on whole tables is from a step without it, less `strength` times the table.

    Args:
        learner: Makes a learner of the same untrained model with these settings of `training`.
        batch: The step's rows.
        strength: The penalty's.
    """
    tables = []
    for penalty in (0.0, strength):
        made = learner(table_l2=penalty, gradient_clip_norm=None, **SHOWS_GRADIENTS)
        before = [np.asarray(table.table) for table in made.network.tables()]
        made.fit([batch])
        tables.append([np.asarray(table.table) for table in made.network.tables()])
    assert max(np.abs(values).max() for values in before) > 0
    errors = [
        np.abs(penalised - plain + strength * old).max() for plain, penalised, old in zip(*tables, before, strict=True)
    ]
    return float(max(errors))
