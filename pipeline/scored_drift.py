"""Is the log that was scored like the one that the model was trained on? By the statistics that travel with the model."""

import json
import pathlib
from typing import Any

from pipeline.config import Monitoring
from pipeline.drift import Log, compare
from pipeline.statistics import Sampled, generate_statistics, tfdv
from serving.layout import read_log_spec
from transforms.errors import InputError
from transforms.parallel import Workers

STATISTICS, COUNTS = "training_statistics.pb", "training_statistics.json"  # in assets.extra
SAMPLE_ROWS = 100_000


def training_statistics(statistics: pathlib.Path, counts: pathlib.Path) -> dict[str, str | bytes]:
    """What an export carries: TFDV's statistics of the training rows, and how many rows they are of.

    Empty where there are none, as for a transform that was made without.
    """
    if not statistics.exists():
        return {}
    return {STATISTICS: statistics.read_bytes(), COUNTS: counts.read_text()}


def compare_with_training(
    version: pathlib.Path, sample: list[pathlib.Path], rows: int, rejected: int
) -> dict[str, Any] | None:
    """How far each column of a scored log is from the training rows; None where the model carries no statistics.

    Args:
        version: The model version's folder.
        sample: The payload of a uniform sample of the log's good rows.
        rows: How many of them there are.
        rejected: And malformed ones.

    Returns:
        The `skew` comparison of `pipeline.drift.compare`, by the usual limits.
    """
    assets = version / "assets.extra"
    if not sample or not (assets / STATISTICS).exists():
        return None
    try:
        counts = json.loads((assets / COUNTS).read_text())
        statistics = tfdv.load_stats_binary(str(assets / STATISTICS))
        training = Log(Sampled(statistics, counts["rate"]), counts["rows"], 0)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{assets / STATISTICS}: cannot be read; push the model again") from error
    found = generate_statistics({"log": sample}, SAMPLE_ROWS, 0, Workers(processes=1))["log"]
    drawn = found.statistics.datasets[0].num_examples
    scored = Log(Sampled(found.statistics, min(1.0, drawn / max(1, rows))), rows, rejected)
    return compare("skew", training, scored, read_log_spec(version), Monitoring())
