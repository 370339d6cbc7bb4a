"""In place of TFX's StatisticsGen: the same statistics, from record batches (see pipeline.monitoring.statistics)."""

import json
import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples, ExampleStatistics

from common.processes import Workers
from pipeline.monitoring.statistics import write_statistics

RATES = "sample_rate_by_split"  # the property, JSON, in which StatisticsGen says the same


@component
def LogStatisticsGen(
    examples: InputArtifact[Examples],
    statistics: OutputArtifact[ExampleStatistics],
    max_rows: Parameter[int],
    seed: Parameter[int],
    workers: Parameter[str],
):
    """`max_rows`: of a split of more rows, a sample of so many; `workers`: see Workers.from_json."""
    splits = artifact_utils.decode_split_names(examples.split_names)
    log_workers = Workers.from_json(workers)
    folders = pathlib.Path(examples.uri), pathlib.Path(statistics.uri)
    rates = write_statistics(*folders, splits, max_rows, seed, log_workers)
    statistics.split_names = examples.split_names
    statistics.span = examples.span
    statistics.set_string_custom_property(RATES, json.dumps(rates))
