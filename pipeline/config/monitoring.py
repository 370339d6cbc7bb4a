"""The `monitoring` part of a run's configuration."""

from typing import Annotated

import pydantic

from transforms.log.spec import Section


class MaxDistance(Section):
    """The greatest distance between two logs' columns that is no breach, by the columns' kind.

    Example:
        monitoring: {max_distance: {categorical: 0.05, numeric: 0.2}}
    """

    categorical: float = pydantic.Field(0.1, ge=0, le=1)
    """By how much the share of one value may differ (infinity norm, 0 to 1)."""
    numeric: float = pydantic.Field(0.1, ge=0, le=1)
    """The Jensen-Shannon divergence of the two distributions (0 to 1)."""


class Monitoring(Section):
    """Logs that the training rows are compared with, and what counts as too different.

    A column further away than its limit is a breach: the run ends with exit code 1.

    Example:
        monitoring: {previous: ["logs/yesterday.tsv"], max_distance: {categorical: 0.05}, block: true}
    """

    previous: list[str] = pydantic.Field([], examples=[["logs/yesterday.tsv"]])
    """Files and globs of an earlier log, as yesterday's: drift."""
    serving: list[str] = pydantic.Field([], examples=[["logs/served-*.tsv"]])
    """Files and globs of what was served, with or without labels: skew."""
    max_distance: MaxDistance = MaxDistance()
    """Limits of every column that has none of its own."""
    columns: dict[str, Annotated[float, pydantic.Field(ge=0, le=1)]] = pydantic.Field({}, examples=[{"device": 0.02}])
    """Limits of single columns, features or labels. Columns of kind `time` are compared only where they are named here.
    """
    block: bool = False
    """Whether a breach also keeps the model from being pushed."""
