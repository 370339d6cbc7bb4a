"""The output names of the signature `serving_explain`, for clients that do not know the model.

The outputs are the primary task's probability under the task's name, the row's logit, the baseline logit of a row
without values, and one attribution for each column. The attributions add up to the logit minus the baseline logit.
"""

from collections.abc import Mapping
from typing import TypeVar

SIGNATURE = "serving_explain"
LOGIT, BASELINE_LOGIT = "logit", "baseline_logit"
PREFIX = "attribution_"  # before the column's name
Values = TypeVar("Values")


def attributions(outputs: Mapping[str, Values]) -> dict[str, Values]:
    """Returns the attributions by column."""
    return {name.removeprefix(PREFIX): values for name, values in outputs.items() if name.startswith(PREFIX)}
