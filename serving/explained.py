"""The names of what the signature `serving_explain` answers, for clients that know no model.

It answers the primary task's probability under the task's name, the row's logit, that of a row without values, and what
each column adds to the logit: their sum is the difference of the two.
"""

from collections.abc import Mapping
from typing import TypeVar

SIGNATURE = "serving_explain"
LOGIT, BASELINE_LOGIT = "logit", "baseline_logit"
PREFIX = "attribution_"  # before the column's name
Values = TypeVar("Values")


def attributions(outputs: Mapping[str, Values]) -> dict[str, Values]:
    """Returns what each column adds, by column."""
    return {name.removeprefix(PREFIX): values for name, values in outputs.items() if name.startswith(PREFIX)}
