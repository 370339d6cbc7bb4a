"""Learners whose steps show their gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np

# With these an update of Adam is -g / (1 + |g| / 10^6): the gradient g, but for a millionth.
SHOWS_GRADIENTS = {"adam_beta_1": 0.0, "adam_beta_2": 0.0, "adam_epsilon": 1e6, "learning_rate": 1e6}


def l2_error(learner: Callable[..., Any], batch: Any, table: float, network: float) -> float:
    """Returns how far a step with penalties is from a step without, less each weight times its penalty's strength.

    Args:
        learner: Makes a learner of the same untrained model with these settings of `training`.
        batch: The step's rows.
        table: `table_l2`, on whole tables.
        network: `network_l2`, on weights that are called kernels or vectors; there is none on any other.
    """
    after = []
    for penalties in ({}, {"table_l2": table, "network_l2": network}):
        made = learner(gradient_clip_norm=None, **penalties, **SHOWS_GRADIENTS)
        tables = {id(each.table) for each in made.network.tables()}
        weights = made.network.trainable_variables
        strengths = [
            table if id(weight) in tables else network * weight.name.startswith(("kernel", "vectors"))
            for weight in weights
        ]
        before = [np.asarray(weight) for weight in weights]
        made.fit([batch])
        after.append([np.asarray(weight) for weight in weights])
    assert {table, network} <= {
        each for each, old in zip(strengths, before, strict=True) if not each or np.abs(old).max() > 0
    }
    errors = [
        np.abs(penalised - plain + strength * old).max()
        for plain, penalised, old, strength in zip(*after, before, strengths, strict=True)
    ]
    return float(max(errors))
