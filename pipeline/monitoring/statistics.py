"""TFDV's statistics of a checked log, and what the report shows of them: plain values."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

import pipeline.monitoring.histogram  # noqa: F401  TFDV's histograms, faster
from common.processes import Workers
from pipeline.monitoring.validation import (
    BasicStatsGenerator,
    CanonicalizeRecordBatch,
    TopKUniquesSketchStatsGenerator,
    stats_impl,
    tfdv,
)
from transforms.log.payload import PART_ROWS, ROW_GROUP_ROWS, payload_files, payload_rows, plain, read_payload
from transforms.log.spec import LogSpec

FILE = "FeatureStats.pb"  # as TFX's components name it
# Of one process, 40 columns.
ROWS_PER_SECOND = 120_000
ROWS_READ_PER_SECOND = 1_000_000
MERGE_SECONDS = 0.5  # of a split
START_SECONDS = 6.0  # of a process that has to load TFDV
PARTS = 8  # of a split, about: merging what is kept of a part takes 0.04 s
# Counts of values are exact for columns of fewer values than COUNTED_VALUES; above, a count may be too low by rows over
# that, and from HASHED_VALUES on the number of different values is right within 2%. TFDV turns them into Python lists.
COUNTED_VALUES = 1 << 12
HASHED_VALUES = 1 << 14
SHOWN_VALUES = 20
MOST_SHOWN = 100  # characters of a value that are shown: a text may be long
RANKED_VALUES = 1000
QUANTILES = 40


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Statistics of `rate` of the rows, which were drawn uniformly; of all of them where `rate` is 1."""

    statistics: statistics_pb2.DatasetFeatureStatisticsList
    rate: float


@dataclasses.dataclass(frozen=True)
class _FileGroup:
    """Neighbouring files of a split, of whose rows a share of `rate` is drawn; `first` is their first row's number."""

    files: tuple[pathlib.Path, ...]
    first: int
    rate: float
    seed: int


def generate_statistics(
    splits: Mapping[str, Sequence[pathlib.Path]], max_rows: int, seed: int, workers: Workers
) -> dict[str, Sampled]:
    """TFDV's statistics of each split.

    Args:
        splits: The payload files of each, one at least, in order.
        max_rows: Above so many rows a split's statistics are those of a sample of about so many: each row is drawn by
            its number and the seed, whatever the files.
        seed: Seed of the sample.
        workers: Where the files are read.
    """
    parts = {name: _parts(files, max_rows, seed) for name, files in splits.items()}
    costs = {part: _seconds(part) for groups in parts.values() for part in groups}
    todo = sorted(costs, key=costs.__getitem__, reverse=True)  # so that all workers end at about the same time
    done = dict(zip(todo, workers.map(_summarise, todo, sum(costs.values()), START_SECONDS), strict=True))
    by_split = [[done[part] for part in groups] for groups in parts.values()]
    # Here and not by Beam, which would have to carry what is merged.
    here = Workers(processes=1) if workers.beam_args else workers
    merged = here.map(_merge, by_split, MERGE_SECONDS * len(by_split), START_SECONDS)
    return {
        name: Sampled(statistics, groups[0].rate)
        for (name, groups), statistics in zip(parts.items(), merged, strict=True)
    }


def _seconds(part: _FileGroup) -> float:
    return payload_rows(part.files) * (part.rate / ROWS_PER_SECOND + 1 / ROWS_READ_PER_SECOND)


def _parts(files: Sequence[pathlib.Path], max_rows: int, seed: int) -> list[_FileGroup]:
    rows = [payload_rows([file]) for file in files]
    rate = min(1.0, max_rows / max(1, sum(rows)))
    # No part keeps more rows in memory than a file has.
    size = max(1, min(-(-len(files) // PARTS), PART_ROWS * len(files) // max(1, min(max_rows, sum(rows)))))
    starts = range(0, len(files), size)
    return [_FileGroup(tuple(files[start : start + size]), sum(rows[:start]), rate, seed) for start in starts]


def _generators() -> list[Any]:
    """TFDV's default statistics: the ones that merge, and so need no Beam."""
    basic = BasicStatsGenerator(num_quantiles_histogram_buckets=QUANTILES)
    values = TopKUniquesSketchStatsGenerator(
        num_top_values=SHOWN_VALUES,
        num_rank_histogram_buckets=RANKED_VALUES,
        num_misragries_buckets=COUNTED_VALUES,
        num_kmv_buckets=HASHED_VALUES,
        length_counter_sampling_rate=0.0,  # a counter of Beam that nobody reads, value by value
    )
    return [basic, values]


def _summarise(part: _FileGroup) -> list[Any]:
    """Returns what TFDV's generators keep of some files; it pickles, and merges with that of others."""
    generators = _generators()
    kept = [generator.create_accumulator() for generator in generators]
    for batch in _sample(part):
        rows = CanonicalizeRecordBatch(batch)
        kept = [generator.add_input(before, rows) for generator, before in zip(generators, kept, strict=True)]
    return [generator.compact(all_rows) for generator, all_rows in zip(generators, kept, strict=True)]


def _sample(part: _FileGroup) -> list[pa.RecordBatch]:
    """Returns the part's rows that are drawn, in few batches: each costs TFDV 10 ms, however small."""
    if part.rate >= 1:
        return list(read_payload(part.files))
    draw = np.random.PCG64(part.seed)
    draw.advance(part.first)  # one number a row of the split
    random = np.random.Generator(draw)
    drawn = []
    for batch in read_payload(part.files, as_dictionaries=True):
        rows = batch.filter(pa.array(random.random(batch.num_rows) < part.rate))
        columns = [plain(column) for column in rows.columns]
        drawn.append(pa.RecordBatch.from_arrays(columns, names=rows.schema.names))
    few: list[pa.RecordBatch] = pa.Table.from_batches(drawn).combine_chunks().to_batches(ROW_GROUP_ROWS)
    return few


def _merge(parts: list[list[Any]]) -> statistics_pb2.DatasetFeatureStatisticsList:
    generators = _generators()
    if not parts:
        parts = [[generator.create_accumulator() for generator in generators]]
    kept = [
        generator.merge_accumulators(accumulators)
        for generator, accumulators in zip(generators, zip(*parts, strict=True), strict=True)
    ]
    return stats_impl.extract_statistics_output(kept, generators)


# As TFX's artifact ---------------------------------------------------------------------------------------------------


def write_statistics(
    examples: pathlib.Path, output: pathlib.Path, splits: Sequence[str], max_rows: int, seed: int, workers: Workers
) -> dict[str, float]:
    """Writes `<output>/Split-<name>/FeatureStats.pb` of each split of a payload, as TFX's StatisticsGen does.

    Returns:
        By split, the share of the rows that the statistics are of.
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
) -> dict[str, Any]:
    """Returns the contents of report_data/statistics.json.

    Args:
        statistics: Folder of the statistics artifact.
        anomalies: Folder of ExampleValidator's artifact.
        counts: What ingestion counted.
        spec: The description of the log.
        rates: By split, the share of the rows that the statistics are of.
    """
    splits = {
        name: {"rows": rows, "positives": counts["positives"][name], "rate": rates[name]}
        for name, rows in counts["rows"].items()
    }
    train = read_statistics(statistics, "train").datasets[0]
    kinds: dict[str, str] = {column: feature.kind for feature in spec.features for column in feature.columns}
    columns = [_column(feature, kinds, train.num_examples) for feature in train.features]
    order = {name: index for index, name in enumerate(spec.label_columns + spec.feature_columns)}
    columns.sort(key=lambda column: order.get(column["name"], len(order)))
    anomalies_shown = []
    for folder in sorted(anomalies.glob("Split-*")):
        binary = anomalies_pb2.Anomalies.FromString((folder / "SchemaDiff.pb").read_bytes())
        for column, info in binary.anomaly_info.items():
            anomalies_shown.append(
                {"column": column, "split": folder.name.removeprefix("Split-"), "text": info.description}
            )
    letters = {"rows": counts["rejected"], "reasons": counts["reasons"]}
    return {"splits": splits, "columns": columns, "anomalies": anomalies_shown, "dead_letters": letters}


def _column(feature: Any, kinds: dict[str, str], rows: int) -> dict[str, Any]:
    name = feature.path.step[0]
    is_text = feature.WhichOneof("stats") == "string_stats"
    values = feature.string_stats if is_text else feature.num_stats
    present = values.common_stats.num_non_missing
    return {
        "name": name,
        "kind": kinds.get(name, "label"),
        "missing_rate": 1 - present / rows if rows else None,
        "unique": values.unique if is_text else None,
        "mean": None if is_text else values.mean,
        "top": [[top.value[:MOST_SHOWN], int(top.frequency)] for top in values.top_values[:5]] if is_text else [],
    }
