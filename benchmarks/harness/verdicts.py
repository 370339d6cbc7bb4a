"""What the interval of a difference says of a paper's claim."""

from typing import Literal

HOLDS, DOES_NOT_HOLD, CANNOT_BE_TOLD = "holds", "does not hold", "cannot be told"
Said = Literal["gain", "no gain", "no loss"]


def verdict(said: Said, interval: tuple[float, float], margin: float) -> str:
    """Returns HOLDS where the whole interval is on the claim's side, DOES_NOT_HOLD where it is on the other side.

    Any other interval gives CANNOT_BE_TOLD. A gain is above 0, no loss above -margin, and no gain below margin.

    Args:
        said: What the claim says of the difference.
        interval: The ends of the difference's interval.
        margin: The largest difference that counts as none.
    """
    low, high = interval
    if said == "no gain":
        low, high = margin - high, margin - low
    elif said == "no loss":
        low, high = low + margin, high + margin
    return HOLDS if low > 0 else DOES_NOT_HOLD if high < 0 else CANNOT_BE_TOLD
