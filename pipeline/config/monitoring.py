"""The `monitoring` part of a run's configuration."""

from typing import Annotated

import pydantic

from ctrpipe.transforms.log.spec import Section


class MaxDistance(Section):
    """The largest distance between two logs' columns that is no breach, by the columns' kind.

    Example:
        monitoring: {max_distance: {categorical: 0.05, numeric: 0.2}}
    """

    categorical: float = pydantic.Field(0.1, ge=0, le=1)
    """The largest difference between the shares of one value (infinity norm, 0 to 1)."""
    numeric: float = pydantic.Field(0.1, ge=0, le=1)
    """The Jensen-Shannon divergence of the two distributions (0 to 1)."""
    attribution: float = pydantic.Field(0.02, ge=0, le=1)
    """The change of a column's share of a model's explanations (0 to 1); `ctrpipe drift --model` compares them."""


class Monitoring(Section):
    """Logs that are compared with the training rows, and the limits of their distances.

    A column whose distance is above its limit is a breach: the run ends with exit code 1.

    Example:
        monitoring: {previous: ["logs/yesterday.tsv"], max_distance: {categorical: 0.05}, block: true}
    """

    previous: list[str] = pydantic.Field([], examples=[["logs/yesterday.tsv"]])
    """Files and globs of an earlier log, such as yesterday's, to detect drift."""
    serving: list[str] = pydantic.Field([], examples=[["logs/served-*.tsv"]])
    """Files and globs of the serving log, with or without labels, to detect skew."""
    max_distance: MaxDistance = MaxDistance()
    """Limits of every column that has none of its own."""
    columns: dict[str, Annotated[float, pydantic.Field(ge=0, le=1)]] = pydantic.Field({}, examples=[{"device": 0.02}])
    """Limits of single columns, features or labels. Columns of kind `time` are compared only where they are named here.
    """
    attributions: dict[str, Annotated[float, pydantic.Field(ge=0, le=1)]] = pydantic.Field(
        {}, examples=[{"device": 0.02}]
    )
    """Limits of single columns' shares of the explanations, in place of `max_distance.attribution`."""
    block: bool = False
    """Whether a breach also keeps the model from being pushed."""
