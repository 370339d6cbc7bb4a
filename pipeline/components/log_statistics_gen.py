"""Replaces TFX's StatisticsGen: computes the same statistics from record batches.

See ctrpipe.pipeline.monitoring.statistics.
"""

import dataclasses
import json
import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples, ExampleStatistics

from ctrpipe.common.files import write_json
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.monitoring.columns import summarise_columns, time_spans
from ctrpipe.pipeline.monitoring.statistics import COLUMNS, SUSPECTS, Sampled, read_statistics, write_statistics
from ctrpipe.transforms.log.payload import payload_files, payload_rows
from ctrpipe.transforms.log.repeats import hash_payload, repeats
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split_suspects import of_all_splits
from ctrpipe.transforms.log.suspects import spread_rows, suspects

RATES = "sample_rate_by_split"  # a property of the artifact, JSON; StatisticsGen writes it too
ROWS = "rows_by_split"  # a property of the artifact, JSON: the number of rows


@component
def LogStatisticsGen(
    examples: InputArtifact[Examples],
    statistics: OutputArtifact[ExampleStatistics],
    max_rows: Parameter[int],
    seed: Parameter[int],
    workers: Parameter[str],
    code_version: Parameter[str],
    spec: Parameter[str],
) -> None:
    """Computes the statistics of each split and column, and warnings about columns that are not useful features.

    Args:
        examples: The payload.
        statistics: `FeatureStats.pb` by split, with the properties RATES and ROWS, and COLUMNS and SUSPECTS.
        max_rows: The statistics of a split with more rows are computed on a sample of this size.
        seed: Seed of the sample.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
        spec: LogSpec as JSON.
    """
    splits = artifact_utils.decode_split_names(examples.split_names)
    source = pathlib.Path(examples.uri)
    log_workers = Workers.from_json(workers)
    rates = write_statistics(source, pathlib.Path(statistics.uri), splits, max_rows, seed, log_workers)
    statistics.split_names = examples.split_names
    statistics.span = examples.span
    statistics.set_string_custom_property(RATES, json.dumps(rates))
    rows = {split: payload_rows(payload_files(source / f"Split-{split}")) for split in splits}
    statistics.set_string_custom_property(ROWS, json.dumps(rows))
    log = LogSpec.model_validate_json(spec)
    of_splits = [split for split in splits if rows[split]]
    read = {split: spread_rows(payload_files(source / f"Split-{split}"), max_rows) for split in of_splits}
    folder = pathlib.Path(statistics.uri)
    train = read.get("train")
    remarks = [] if train is None else [*suspects(log, train), *of_all_splits(log, read)]
    files = {split: payload_files(source / f"Split-{split}") for split in of_splits}
    remarks += repeats(hash_payload(log, files, log_workers))
    columns = [] if train is None else summarise_columns(log, train)
    counted = {"rows": 0 if train is None else train.num_rows, "columns": columns, "times": time_spans(log, read)}
    write_json(folder / COLUMNS, counted)
    write_json(folder / SUSPECTS, [dataclasses.asdict(each) for each in remarks])
    for each in remarks:
        announce(f"Column: {each.column}, {each.split} rows: {each.text}")


def train_statistics(statistics: ExampleStatistics) -> tuple[Sampled, int]:
    """Returns the statistics of the training rows from the artifact, and the number of training rows."""
    rates, rows = (json.loads(statistics.get_string_custom_property(name)) for name in (RATES, ROWS))
    return Sampled(read_statistics(pathlib.Path(statistics.uri), "train"), rates["train"]), rows["train"]
