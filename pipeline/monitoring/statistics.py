"""TFDV's statistics of a checked log, and their plain values for the report."""

import dataclasses
import json
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.monitoring.columns import MOST_SHOWN
from ctrpipe.pipeline.monitoring.faster_tfdv import histograms_on_arrays
from ctrpipe.pipeline.monitoring.validation import (
    BasicStatsGenerator,
    CanonicalizeRecordBatch,
    TopKUniquesSketchStatsGenerator,
    stats_impl,
    tfdv,
)
from ctrpipe.transforms.log.payload import PART_ROWS, ROW_GROUP_ROWS, decoded, payload_files, payload_rows, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import as_lists, is_vector

FILE = "FeatureStats.pb"  # the name that TFX's components use
SUSPECTS = "suspects.json"  # the findings of ctrpipe.transforms.log.suspects, in the artifact
COLUMNS = "columns.json"  # what ctrpipe.pipeline.monitoring.columns says of the training rows, in the artifact
# Of one process, with 40 columns.
ROWS_PER_SECOND = 120_000
ROWS_READ_PER_SECOND = 1_000_000
MERGE_SECONDS = 0.5  # of a split
START_SECONDS = 6.0  # of a process that must load TFDV
PARTS = 8  # file groups per split, approximately; merging the accumulators of a group takes 0.04 s
# Value counts are exact for columns with fewer distinct values than COUNTED_VALUES. With more, a count may be too low
# by rows / COUNTED_VALUES. From HASHED_VALUES on, the number of distinct values is accurate within 2%. Larger tables
# cost time, because TFDV turns them into Python lists.
COUNTED_VALUES = 1 << 12
HASHED_VALUES = 1 << 14
SHOWN_VALUES = 20
RANKED_VALUES = 1000  # maximum number of values that the statistics of a column name
QUANTILES = 40


@dataclasses.dataclass(frozen=True)
class Sampled:
    """The statistics of a uniform sample; `rate` is the share of the rows that were drawn, 1 for all rows."""

    statistics: statistics_pb2.DatasetFeatureStatisticsList
    rate: float


@dataclasses.dataclass(frozen=True)
class _FileGroup:
    """Consecutive files of a split.

    `first` is the row number of their first row in the split, and `rate` the share of rows to draw.

    With `separators`, only sequences are read: their values, and their number of values per row.
    """

    files: tuple[pathlib.Path, ...]
    first: int
    rate: float
    seed: int
    separators: tuple[tuple[str, str], ...] = ()


def generate_statistics(
    splits: Mapping[str, Sequence[pathlib.Path]],
    max_rows: int,
    seed: int,
    workers: Workers,
    separators: Mapping[str, str] = types.MappingProxyType({}),
) -> dict[str, Sampled]:
    """Returns TFDV's statistics of each split.

    Args:
        splits: The payload files of each split in order, at least one.
        max_rows: The statistics of a split with more rows are computed on a sample of about this size. Whether a row is
            drawn depends on its number in the split and on the seed, not on the files.
        seed: Seed of the sample.
        workers: The processes that read the files.
        separators: The separators of sequence columns, by column. If given, the statistics cover only the values of
            these columns, and their lengths in columns named by `length_column`.
    """
    sequences = tuple(separators.items())
    parts = {name: _parts(files, max_rows, seed, sequences) for name, files in splits.items()}
    costs = {part: _seconds(part) for groups in parts.values() for part in groups}
    todo = sorted(costs, key=costs.__getitem__, reverse=True)  # longest first, so no worker ends late
    done = dict(zip(todo, workers.map(_summarise, todo, sum(costs.values()), START_SECONDS), strict=True))
    by_split = [[done[part] for part in groups] for groups in parts.values()]
    # Merge on this machine, because Beam would have to transfer the accumulators.
    here = Workers(processes=1) if workers.beam_args else workers
    merged = here.map(_merge, by_split, MERGE_SECONDS * len(by_split), START_SECONDS)
    return {
        name: Sampled(statistics, groups[0].rate)
        for (name, groups), statistics in zip(parts.items(), merged, strict=True)
    }


def _seconds(part: _FileGroup) -> float:
    return payload_rows(part.files) * (part.rate / ROWS_PER_SECOND + 1 / ROWS_READ_PER_SECOND)


def length_column(sequence: str) -> str:
    """Returns the name of the column with a sequence's lengths in the statistics."""
    return f"{sequence} (length)"


def _parts(
    files: Sequence[pathlib.Path], max_rows: int, seed: int, separators: tuple[tuple[str, str], ...]
) -> list[_FileGroup]:
    rows = [payload_rows([file]) for file in files]
    rate = min(1.0, max_rows / max(1, sum(rows)))
    # The sample of a group is kept in memory, so it has at most as many rows as a file.
    size = max(1, min(-(-len(files) // PARTS), PART_ROWS * len(files) // max(1, min(max_rows, sum(rows)))))
    starts = range(0, len(files), size)
    return [
        _FileGroup(tuple(files[start : start + size]), sum(rows[:start]), rate, seed, separators) for start in starts
    ]


def _generators() -> list[Any]:
    """Returns TFDV's default generators that can merge accumulators, and therefore run without Beam."""
    basic = BasicStatsGenerator(num_quantiles_histogram_buckets=QUANTILES)
    values = TopKUniquesSketchStatsGenerator(
        num_top_values=SHOWN_VALUES,
        num_rank_histogram_buckets=RANKED_VALUES,
        num_misragries_buckets=COUNTED_VALUES,
        num_kmv_buckets=HASHED_VALUES,
        length_counter_sampling_rate=0.0,  # disables an unused Beam metric of value lengths
    )
    return [basic, values]


def _summarise(part: _FileGroup) -> list[Any]:
    """Returns the accumulators of TFDV's generators for one group of files.

    `_merge` merges those of several groups.
    """
    generators = _generators()
    kept = [generator.create_accumulator() for generator in generators]
    for batch in _sample(part):
        rows = CanonicalizeRecordBatch(_sequences(batch, part.separators) if part.separators else batch)
        kept = [generator.add_input(before, rows) for generator, before in zip(generators, kept, strict=True)]
    return [generator.compact(all_rows) for generator, all_rows in zip(generators, kept, strict=True)]


def _sequences(batch: pa.RecordBatch, separators: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    """Returns the values of sequences as lists, null if a row has none, and their lengths."""
    columns: dict[str, pa.Array] = {}
    for name, separator in separators:
        columns[name] = pc.split_pattern(batch[name], separator.encode())
        columns[length_column(name)] = pc.list_value_length(columns[name]).fill_null(0).cast(pa.float32())
    return pa.RecordBatch.from_pydict(columns)


def _with_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows with vectors as lists, whose elements TFDV counts as the values of the column."""
    columns = [as_lists(column) if is_vector(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _sample(part: _FileGroup) -> list[pa.RecordBatch]:
    """Returns the sampled rows of a group, in few batches: a batch of any size costs TFDV 10 ms."""
    names = [name for name, _ in part.separators] or None
    if part.rate >= 1:
        return [_with_lists(batch) for batch in read_payload(part.files, names)]
    draw = np.random.PCG64(part.seed)
    draw.advance(part.first)  # one random number per row of the split
    random = np.random.Generator(draw)
    drawn = []
    for batch in read_payload(part.files, names, as_dictionaries=True):
        rows = batch.filter(pa.array(random.random(batch.num_rows) < part.rate))
        columns = [decoded(column) for column in rows.columns]
        drawn.append(pa.RecordBatch.from_arrays(columns, names=rows.schema.names))
    few = pa.Table.from_batches(drawn).combine_chunks().to_batches(ROW_GROUP_ROWS)
    return [_with_lists(batch) for batch in few]


def _merge(parts: list[list[Any]]) -> statistics_pb2.DatasetFeatureStatisticsList:
    generators = _generators()
    if not parts:
        parts = [[generator.create_accumulator() for generator in generators]]
    kept = [
        generator.merge_accumulators(accumulators)
        for generator, accumulators in zip(generators, zip(*parts, strict=True), strict=True)
    ]
    with histograms_on_arrays():
        return stats_impl.extract_statistics_output(kept, generators)


# As TFX's artifact ---------------------------------------------------------------------------------------------------


def write_statistics(
    examples: pathlib.Path, output: pathlib.Path, splits: Sequence[str], max_rows: int, seed: int, workers: Workers
) -> dict[str, float]:
    """Writes `<output>/Split-<name>/FeatureStats.pb` for each split of a payload, as TFX's StatisticsGen does.

    Returns:
        The share of rows drawn, by split.
    """
    files = {name: payload_files(examples / f"Split-{name}") for name in splits}
    rates = {}
    for name, sampled in generate_statistics(files, max_rows, seed, workers).items():
        folder = output / f"Split-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(sampled.statistics.SerializeToString(deterministic=True))
        rates[name] = sampled.rate
    return rates


def read_statistics(artifact: pathlib.Path, split: str) -> statistics_pb2.DatasetFeatureStatisticsList:
    return tfdv.load_stats_binary(str(artifact / f"Split-{split}" / FILE))


# As plain values -----------------------------------------------------------------------------------------------------


def summarise_statistics(
    statistics: pathlib.Path,
    anomalies: pathlib.Path,
    counts: dict[str, Any],
    spec: LogSpec,
    rates: Mapping[str, float],
    all_unknown: Mapping[str, Sequence[str]],
    clipped: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """Returns the contents of report_data/statistics.json.

    Args:
        statistics: Folder of the statistics artifact.
        anomalies: Folder of ExampleValidator's artifact.
        counts: The contents of counts.json, written by ingestion.
        spec: The description of the log.
        rates: The share of rows drawn, by split.
        all_unknown: The fields whose values are all out of vocabulary, by split.
        clipped: The number of rows whose number is clipped to the limits of the transform, by split and column.
    """
    splits = {
        name: {
            "rows": rows,
            "positives": counts["positives"][name],
            "rate": rates[name],
            "span": counts.get("spans", {}).get(name, []),
        }
        for name, rows in counts["rows"].items()
    }
    counted = json.loads((statistics / COLUMNS).read_text(encoding="utf-8"))
    anomalies_shown = []
    for folder in sorted(anomalies.glob("Split-*")):
        binary = anomalies_pb2.Anomalies.FromString((folder / "SchemaDiff.pb").read_bytes())
        for column, info in binary.anomaly_info.items():
            anomalies_shown.append(
                {"column": column, "split": folder.name.removeprefix("Split-"), "text": info.description}
            )
    anomalies_shown += _soft_failures(statistics, spec, [name for name, rows in counts["rows"].items() if rows])
    for split, fields in all_unknown.items():
        text = "every value is unknown: none is in the vocabulary of the training rows"
        anomalies_shown += [{"column": field, "split": split, "text": text} for field in fields]
    for split, numbers in clipped.items():
        for column, count in numbers.items():
            share = f"{count:,} of {counts['rows'][split]:,} rows"
            text = f"clipped in {share}, where the number lies far beyond the range of the training rows"
            anomalies_shown.append({"column": column, "split": split, "text": text})
    anomalies_shown += json.loads((statistics / SUSPECTS).read_text(encoding="utf-8"))
    letters = {"rows": counts["rejected"], "reasons": counts["reasons"]}
    of_columns = {"columns": counted["columns"], "counted_rows": counted["rows"], "times": counted["times"]}
    return {"splits": splits, **of_columns, "anomalies": anomalies_shown, "dead_letters": letters}


def _soft_failures(statistics: pathlib.Path, spec: LogSpec, splits: Sequence[str]) -> list[dict[str, str]]:
    """Returns the feature columns without information: one value in all training rows, or none in a split."""
    failures = []
    for split in splits:
        dataset = read_statistics(statistics, split).datasets[0]
        features = {feature.path.step[0]: feature for feature in dataset.features}
        for column in spec.feature_columns:
            text = _soft_failure(features.get(column), split, dataset.num_examples)
            if text:
                failures.append({"column": column, "split": split, "text": text})
    return failures


def _soft_failure(feature: statistics_pb2.FeatureNameStatistics, split: str, rows: float) -> str:
    stats = feature and feature.WhichOneof("stats")
    values = getattr(feature, stats) if stats else None
    if values is None or not values.common_stats.num_non_missing:
        return "every value is missing"
    if split != "train" or values.common_stats.num_non_missing < rows:
        return ""
    if stats == "string_stats":
        return f"one value in all rows: {values.top_values[0].value[:MOST_SHOWN]}" if values.unique == 1 else ""
    return f"one value in all rows: {values.min:g}" if values.min == values.max else ""
