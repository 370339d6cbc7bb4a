"""`ctrpipe drift`: compares two logs column by column, and optionally a model's attributions on them."""

from collections.abc import Sequence
from typing import Any

from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.monitoring.drift import compare_logs
from ctrpipe.pipeline.run.trained_model import TrainedModel


def drift_of_logs(
    config: RunConfig,
    data: Sequence[str],
    against: Sequence[str],
    kind: str = "drift",
    source: TrainedModel | None = None,
) -> dict[str, Any]:
    """Compares two logs against the limits in the `monitoring` section of a configuration.

    Args:
        config: The description of both logs, and the limits.
        data: The log to check: files and globs.
        against: The log to compare it with.
        kind: `drift` compares a log with an earlier one; both have labels. `skew` compares the training log with the
            serving log; neither needs labels.
        source: A model. Each column's share of its attributions is compared too.

    Returns:
        The contents of drift.json. `breached` is true if a column is above its limit.

    Raises:
        InputError: a log cannot be read, or the model cannot read it.
    """
    workers = config.workers_for()
    limits, rows = config.monitoring, config.statistics.max_rows
    result = compare_logs(config.log_spec, list(data), list(against), kind, limits, rows, config.seed, workers)
    if source:
        from ctrpipe.pipeline.explain.shares import (
            compare_attributions,  # lazy: Keras takes 4 s, and other drifts do not need it
        )

        result["attributions"] = compare_attributions(source, data, against, kind, limits, config.seed)
        result["breached"] = result["breached"] or result["attributions"]["breached"]
    return result
