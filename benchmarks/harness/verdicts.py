"""Derives a verdict on a paper's claim from the interval of a difference."""

from typing import Literal

HOLDS, DOES_NOT_HOLD, CANNOT_BE_TOLD = "holds", "does not hold", "cannot be told"
Said = Literal["gain", "no gain", "no loss"]


def verdict(said: Said, interval: tuple[float, float], margin: float) -> str:
    """Returns HOLDS if the whole interval is on the claim's side, and DOES_NOT_HOLD if it is on the other side.

    Other intervals give CANNOT_BE_TOLD. A gain is above 0, no loss is above -margin, and no gain is below margin.

    Args:
        said: The claim about the difference.
        interval: The ends of the difference's interval.
        margin: The largest difference that counts as none.
    """
    low, high = interval
    if said == "no gain":
        low, high = margin - high, margin - low
    elif said == "no loss":
        low, high = low + margin, high + margin
    return HOLDS if low > 0 else DOES_NOT_HOLD if high < 0 else CANNOT_BE_TOLD
