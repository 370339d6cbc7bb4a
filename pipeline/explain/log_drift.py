"""`ctrpipe drift`: two logs compared column by column, and what a model's answers to them rest on."""

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
    """Compares two logs by the limits of a configuration's `monitoring`.

    Args:
        config: The description of both logs, and the limits.
        data: The log in question: files and globs.
        against: The log to compare it with.
        kind: `drift`: today's log with yesterday's, both with labels. `skew`: the log that was trained on with what
            was served; neither needs labels.
        source: A model of which each column's share of the explanations is compared too.

    Returns:
        The contents of drift.json; `breached` says whether a column is above its limit.

    Raises:
        InputError: a log cannot be read, or the model does not read it.
    """
    workers = config.workers_for()
    limits, rows = config.monitoring, config.statistics.max_rows
    result = compare_logs(config.log_spec, list(data), list(against), kind, limits, rows, config.seed, workers)
    if source:
        from ctrpipe.pipeline.explain.shares import compare_attributions  # what explains, which others do without

        result["attributions"] = compare_attributions(source, data, against, kind, limits, config.seed)
        result["breached"] = result["breached"] or result["attributions"]["breached"]
    return result
