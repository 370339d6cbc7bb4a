"""Corrects the differences of multiple comparisons: of twenty, one is significant at 5% by chance.

References:
    Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from collections.abc import Sequence
from typing import Any

from ctrpipe.common.significance import holm
from ctrpipe.pipeline.compare.rows_and_seeds import LEVEL, interval_of
from ctrpipe.pipeline.compare.sides import verdict_of


def correct(differences: Sequence[dict[str, Any]]) -> None:
    """Corrects differences of `Compared.to_json` in place for multiple comparisons.

    `p` is adjusted by Holm's method, and the verdict follows it. The intervals are simultaneous, each with the level
    1 - (1 - LEVEL) / count (Bonferroni). They may thus include 0 although Holm's sharper method finds a difference.
    `corrected_for` is the number of defined differences.
    """
    defined = [one for one in differences if one["difference"] is not None]
    tested = [one for one in defined if one["p"] is not None]
    adjusted = holm([one["p"] for one in tested])
    for one, p_value in zip(tested, adjusted, strict=True):
        one["p"] = float(p_value)
        one["verdict"] = verdict_of(one["difference"], one["p"], one.get("lower_is_better", False))
        level = 1 - (1 - LEVEL) / len(defined)
        one["interval"] = interval_of(one["difference"], one["standard_error"], one["freedom"], level)
    for one in differences:
        one["corrected_for"] = len(defined)
