"""Compares a scored log with the training rows, using the statistics in the export."""

import json
import pathlib
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.monitoring.drift import Log, compare
from ctrpipe.pipeline.monitoring.statistics import Sampled, generate_statistics
from ctrpipe.pipeline.monitoring.validation import tfdv
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.layout import Asset, asset_path

SAMPLE_ROWS = 100_000


def statistics_assets(statistics: Sampled, rows: int) -> dict[Asset, str | bytes]:
    """Returns the export's assets with the statistics and the number of the training rows."""
    return {
        Asset.TRAINING_STATISTICS: statistics.statistics.SerializeToString(deterministic=True),
        Asset.TRAINING_COUNTS: json.dumps({"rows": rows, "rate": statistics.rate}),
    }


def compare_with_training(
    version: pathlib.Path, sample: list[pathlib.Path], rows: int, rejected: int
) -> dict[str, Any] | None:
    """Compares a scored log with the training rows.

    Args:
        version: The model version's folder.
        sample: The payload of a uniform sample of the log's good rows.
        rows: The number of good rows in the log.
        rejected: The number of malformed rows in the log.

    Returns:
        The `skew` comparison of `ctrpipe.pipeline.monitoring.drift.compare`, with the default limits. None if the
        export has no statistics or the sample is empty.

    Raises:
        InputError: the export's statistics cannot be read.
    """
    path = asset_path(version, Asset.TRAINING_STATISTICS)
    if not sample or not path.exists():
        return None
    try:
        counts = json.loads(asset_path(version, Asset.TRAINING_COUNTS).read_text())
        statistics = tfdv.load_stats_binary(str(path))
        training = Log(Sampled(statistics, counts["rate"]), counts["rows"], 0)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: cannot be read; push the model again") from error
    summary = generate_statistics({"log": sample}, SAMPLE_ROWS, 0, Workers(processes=1))["log"].statistics
    drawn = summary.datasets[0].num_examples
    scored = Log(Sampled(summary, min(1.0, drawn / max(1, rows))), rows, rejected)
    return compare("skew", training, scored, read_log_spec(version), Monitoring())
