"""Is a scored log like the one that the model was trained on? By the statistics that travel with the model."""

import json
import pathlib
from typing import Any

import tensorflow_transform as tft

from common.errors import InputError
from common.processes import Workers
from pipeline.config import Monitoring
from pipeline.monitoring.drift import Log, compare
from pipeline.monitoring.statistics import Sampled, generate_statistics, tfdv
from serving.assets import read_log_spec
from serving.layout import Asset, asset_path

SAMPLE_ROWS = 100_000
_BESIDE = "counts.json"


def keep_statistics(statistics: Sampled, rows: int, graph: pathlib.Path) -> None:
    """Puts the training rows' statistics, and how many rows they are of, where TFT's transform graphs have them."""
    path = pathlib.Path(tft.TFTransformOutput(str(graph)).pre_transform_statistics_path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(statistics.statistics.SerializeToString(deterministic=True))
    path.with_name(_BESIDE).write_text(json.dumps({"rows": rows, "rate": statistics.rate}))


def kept_statistics(transform: tft.TFTransformOutput) -> dict[Asset, str | bytes]:
    """Returns the same as files that travel with an export; none where the graph has none."""
    path = pathlib.Path(transform.pre_transform_statistics_path)
    if not path.exists():
        return {}
    return {Asset.TRAINING_STATISTICS: path.read_bytes(), Asset.TRAINING_COUNTS: path.with_name(_BESIDE).read_text()}


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
        The `skew` comparison of `pipeline.monitoring.drift.compare`, by the usual limits.
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
    found = generate_statistics({"log": sample}, SAMPLE_ROWS, 0, Workers(processes=1))["log"]
    drawn = found.statistics.datasets[0].num_examples
    scored = Log(Sampled(found.statistics, min(1.0, drawn / max(1, rows))), rows, rejected)
    return compare("skew", training, scored, read_log_spec(version), Monitoring())
