"""The `monitoring` section of a run's configuration."""

from typing import Annotated

import pydantic

from ctrpipe.transforms.log.section import Section


class MaxDistance(Section):
    """Maximum distance between the same column of two logs, by the kind of the column.

    Example:
        monitoring: {max_distance: {categorical: 0.05, numeric: 0.2}}
    """

    categorical: float = pydantic.Field(0.1, ge=0, le=1)
    """Maximum L-infinity distance: the largest difference between the shares of one value, 0 to 1."""
    numeric: float = pydantic.Field(0.1, ge=0, le=1)
    """Maximum Jensen-Shannon divergence of the two distributions, 0 to 1."""
    attribution: float = pydantic.Field(0.02, ge=0, le=1)
    """Maximum change of a column's share of the model's explanations, 0 to 1; compared by `ctrpipe drift --model`."""


class Monitoring(Section):
    """Compares other logs with the training rows, to detect drift and skew.

    A column is a breach if its distance exceeds its limit and is significant for logs of these sizes. The run then ends
    with exit code 1.

    Example:
        monitoring: {previous: ["logs/yesterday.tsv"], max_distance: {categorical: 0.05}, block: true}
    """

    previous: list[str] = pydantic.Field([], examples=[["logs/yesterday.tsv"]])
    """Files and globs of an earlier log, such as the previous day's, to detect drift."""
    serving: list[str] = pydantic.Field([], examples=[["logs/served-*.tsv"]])
    """Files and globs of the serving log, with or without labels, to detect skew."""
    max_distance: MaxDistance = MaxDistance()
    """Limits for every column without a limit of its own."""
    columns: dict[str, Annotated[float, pydantic.Field(ge=0, le=1)]] = pydantic.Field({}, examples=[{"device": 0.02}])
    """Limits of individual feature or label columns. A column of kind `time` is compared only if it is listed here."""
    attributions: dict[str, Annotated[float, pydantic.Field(ge=0, le=1)]] = pydantic.Field(
        {}, examples=[{"device": 0.02}]
    )
    """Limits of individual columns' shares of the explanations, instead of `max_distance.attribution`."""
    block: bool = False
    """Whether a breach also blocks the push of the model."""
