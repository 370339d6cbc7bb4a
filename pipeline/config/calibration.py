"""The `calibration` part of a run's configuration."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.spec import Section


class Calibration(Section):
    """Corrects the probabilities of the trained model by rows that its weights were not trained on.

    The correction never lowers a probability where the model's logit rises, and is a part of the SavedModel. It is
    fitted after the training. Early stopping has chosen the weights by the same rows, but has changed none; with
    `training.refit` the weights have learned them, so the two do not go together.

    Example:
        calibration: {method: isotonic, by: [device], on: validation}
    """

    method: Literal["isotonic", "platt", "histogram"] = pydantic.Field(examples=["isotonic"])
    """`isotonic`: the rising curve of the least squared error, straight between its points. `platt`: a logistic
    regression on the logit. `histogram`: the share of clicks in bins of equally many rows, so that rows of a bin are
    tied.
    """
    by: list[str] = pydantic.Field([], examples=[["device"]])
    """Feature columns, categorical or numeric in buckets: each of their values gets a correction of its own on top, as
    far as its rows can support one.
    """
    on: Literal["validation"] = "validation"
    """The rows by which it is fitted."""
    bins: int = pydantic.Field(20, ge=2)
    """The most bins of `histogram`."""
    shrinkage: float = pydantic.Field(100, gt=0)
    """How much evidence a value of `by` needs: with so many clicks, where clicks are rare, half of its deviation from
    all rows is corrected; with few, next to nothing is.
    """
