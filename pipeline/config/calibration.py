"""The `calibration` section of a run's configuration."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.section import Section


class Calibration(Section):
    """Calibrates the trained model's click probabilities with rows that the weights were not trained on.

    The correction is fitted after training and is a part of the SavedModel. It is non-decreasing in the model's logit.
    It is taken only if it lowers the log loss of held-out folds of these rows: few clicks can make a correction worse
    than none. Otherwise a simpler method is used (`beta`, `platt`), or none.
    Early stopping uses the same rows to select the weights, but does not train on them. `training.refit` trains on
    these rows, and therefore cannot be combined with `calibration`.

    Example:
        calibration: {method: isotonic, by: [device], on: validation}
    """

    method: Literal["isotonic", "beta", "platt", "histogram"] = pydantic.Field(examples=["isotonic"])
    """`isotonic`: isotonic regression (the non-decreasing curve with the least squared error), linear between its
    points. `beta`: a logistic regression on the logarithms of the probability and of its complement, three numbers.
    `platt`: a logistic regression on the logit, two numbers. `histogram`: the share of clicks in bins of equally many
    rows; all rows of a bin get the same probability. Each method is compared with simpler ones: `isotonic` and
    `histogram` with `beta` and `platt`, `beta` with `platt`.
    """
    clicks_per_step: int = pydantic.Field(50, ge=0)
    """Least number of clicks, and of rows without one, in a step of `isotonic` and in a bin of `histogram`. Steps
    with fewer are joined with their neighbours: a few clicked rows do not prove a rate of 1. 0: the
    steps as they are.
    """
    by: list[str] = pydantic.Field([], examples=[["device"]])
    """Categorical or bucketized numeric feature columns. Each value gets an additional correction, which is smaller
    for a value with fewer clicks (see `shrinkage`).
    """
    on: Literal["validation"] = "validation"
    """The rows that the correction is fitted on."""
    bins: int = pydantic.Field(20, ge=2)
    """Maximum number of bins of `histogram`."""
    shrinkage: float = pydantic.Field(100, gt=0)
    """Amount of evidence, in clicks, that a value of `by` needs. If clicks are rare, a value with this many clicks gets
    half of its deviation from all rows corrected; a value with few clicks gets almost no correction.
    """
