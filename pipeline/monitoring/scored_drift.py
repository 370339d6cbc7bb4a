"""Compares a scored log with the training rows, by the statistics that the export contains."""

import json
import pathlib
from typing import Any

from common.errors import InputError
from common.processes import Workers
from pipeline.config import Monitoring
from pipeline.monitoring.drift import Log, compare
from pipeline.monitoring.statistics import Sampled, generate_statistics
from pipeline.monitoring.validation import tfdv
from serving.assets import read_log_spec
from serving.layout import Asset, asset_path

SAMPLE_ROWS = 100_000


def statistics_assets(statistics: Sampled, rows: int) -> dict[Asset, str | bytes]:
    """Returns the export's assets with the training rows' statistics and their number of rows."""
    return {
        Asset.TRAINING_STATISTICS: statistics.statistics.SerializeToString(deterministic=True),
        Asset.TRAINING_COUNTS: json.dumps({"rows": rows, "rate": statistics.rate}),
    }


def compare_with_training(
    version: pathlib.Path, sample: list[pathlib.Path], rows: int, rejected: int
) -> dict[str, Any] | None:
    """Returns the comparison of a scored log with the training rows; None where the export has no statistics.

    Args:
        version: The model version's folder.
        sample: The payload of a uniform sample of the log's good rows.
        rows: The number of the log's good rows.
        rejected: The number of its malformed rows.

    Returns:
        The `skew` comparison of `pipeline.monitoring.drift.compare`, by the default limits.

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
