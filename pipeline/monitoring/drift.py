"""Compares a log with an earlier log (drift) or with the serving log (skew), using TFDV's comparators."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from ctrpipe.common.processes import Workers
from ctrpipe.common.significance import cumulated_differ, holm, shares_differ
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.monitoring.faster_tfdv import validate_statistics
from ctrpipe.pipeline.monitoring.statistics import RANKED_VALUES, Sampled, generate_statistics, length_column
from ctrpipe.transforms.log.files import FileState, find_files
from ctrpipe.transforms.log.payload import payload_files, payload_rows
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.unsplit_log import write_whole_log

# The names of the two logs of a comparison.
SIDES = {"drift": ("new", "previous"), "skew": ("training", "serving")}
SHOWN_MOVES = 3
LEVEL = 0.95  # of all columns of a comparison together
CHECKS = 3  # of a column: its distance, its missing values and its frequent values
SHOWN_BINS = 10
_NO_OTHERS = 1e-6  # of the squared range: a rounding error of the variance of two numbers
# A value that is expected in this many rows of both logs is not absent by chance from a log or its ranked values.
FREQUENT_ROWS = 50
FREQUENT_VALUES = RANKED_VALUES // 2
# A value or a range, its shares in both logs, and which of the two, "share" or "other", is only known to be at most so.
Moved = tuple[str, float, float, str]


@dataclasses.dataclass(frozen=True)
class Log:
    """A log's statistics, and its numbers of good and malformed rows."""

    sampled: Sampled
    rows: int
    rejected: int


# Logs ----------------------------------------------------------------------------------------------------------------


def read_log(
    spec: LogSpec,
    patterns: list[str],
    labels: bool,
    max_rows: int,
    seed: int,
    workers: Workers,
    states: Mapping[str, FileState] | None = None,
) -> Log:
    """Reads a raw log, and returns its statistics and its numbers of good and malformed rows.

    Args:
        spec: The description of the log.
        patterns: The log's files and globs.
        labels: Whether to read labels. If so, rows without a label are malformed.
        max_rows: The statistics of a log with more rows are computed on a uniform sample of about this size.
        seed: Seed of the sample.
        workers: The processes that read the files.
        states: See ctrpipe.transforms.log.ingest.ingest.

    Raises:
        InputError: a file cannot be read or has changed, or too many of its rows are malformed.
    """
    files = find_files(patterns)
    with tempfile.TemporaryDirectory(prefix="ctrpipe-", dir=workers.scratch) as name:
        folder = pathlib.Path(name)
        counts = write_whole_log(spec, files, labels, folder, workers, states)
        parts = payload_files(folder)
        statistics = generate_statistics({"log": parts}, max_rows, seed, workers)
        sampled = with_sequences(statistics["log"], parts, spec, max_rows, seed, workers)
    return Log(sampled, counts.rows, counts.rejected)


def with_sequences(
    sampled: Sampled, parts: Sequence[pathlib.Path], spec: LogSpec, max_rows: int, seed: int, workers: Workers
) -> Sampled:
    """Replaces the statistics of sequence texts by statistics of the sequences' values and lengths.

    Args:
        sampled: The statistics of the payload.
        parts: The payload files.
        spec: The description of the log.
        max_rows, seed, workers: The arguments with which the statistics were generated.
    """
    separators = {name: spec.separators[name] for name in spec.columns_of("sequence")}
    if not separators:
        return sampled
    own = generate_statistics({"log": parts}, max_rows, seed, workers, separators)["log"].statistics.datasets[0]
    replaced = statistics_pb2.DatasetFeatureStatisticsList()
    replaced.CopyFrom(sampled.statistics)
    [whole] = replaced.datasets
    kept = [feature for feature in whole.features if feature.path.step[0] not in separators]
    del whole.features[:]
    whole.features.extend([*kept, *own.features])
    return Sampled(replaced, sampled.rate)


# Distances -----------------------------------------------------------------------------------------------------------


def compare(kind: str, log: Log, other: Log, spec: LogSpec, limits: Monitoring) -> dict[str, Any]:
    """Returns the distance of each column between two logs, and whether it exceeds the column's limit.

    The distance of a categorical column is the largest difference between the shares of one value. The distance of a
    numeric column is the Jensen-Shannon divergence (0 to 1) of the distributions in quantiles. Missing values do not
    count.

    The limit also applies to the difference between the shares of missing values, and to the difference between the
    total shares of the values that are frequent in the other log. The latter detects a thousand values that are
    replaced by others, where no single share changes much.

    A breach is above its limit and statistically significant: the p-values of all columns are corrected for their
    number (Holm). Differences that are not significant are in `chance` and are not breaches.

    The values of a sequence are compared one by one over all rows, and its lengths as numbers. Time and text columns
    are compared only if `limits.columns` names them: two days have no hour in common, and hardly two texts are equal.

    Args:
        kind: `drift` or `skew`.
        log: The new log (drift), or the log of the training rows (skew).
        other: The earlier log (drift), or the serving log (skew).
        spec: The description of both logs.
        limits: The largest allowed distances.

    Returns:
        One comparison of drift.json: kind, breached, the two logs, and the columns, the worst first.
    """
    statistics, others = (_by_column(side.sampled) for side in (log, other))
    thresholds = _thresholds(spec, limits, set(statistics) & set(others))
    distances = _distances(kind, log, other, spec, thresholds)
    columns: list[dict[str, Any]] = []
    for name, threshold in thresholds.items():
        sides = (statistics.get(name), others.get(name))
        column = _Comparison(name, kind, distances.get(name), threshold, sides, (log.sampled, other.sampled))
        columns.append(column.to_dict())
    # Corrected for the number of columns; one that stays within its limit cannot breach it by chance.
    for column_found, p_value in zip(columns, holm([column["p"] for column in columns]), strict=True):
        column_found["p"] = float(p_value)
        column_found["breached"] = bool(column_found["text"] and p_value < 1 - LEVEL)
        if column_found["text"] and not column_found["breached"]:
            column_found["chance"], column_found["text"] = column_found["text"], ""
    columns.sort(key=lambda column: (not column["breached"], -_severity(column)))
    return {
        "kind": kind,
        "breached": any(column["breached"] for column in columns),
        "log": _describe(SIDES[kind][0], log),
        "other": _describe(SIDES[kind][1], other),
        "level": LEVEL,
        "columns": columns,
    }


def _describe(name: str, log: Log) -> dict[str, Any]:
    return {"name": name, "rows": log.rows, "rejected": log.rejected, "rate": log.sampled.rate}


def _by_column(sampled: Sampled) -> dict[str, statistics_pb2.FeatureNameStatistics]:
    return {feature.path.step[0]: feature for feature in sampled.statistics.datasets[0].features}


def _thresholds(spec: LogSpec, limits: Monitoring, shared: set[str]) -> dict[str, float]:
    """Returns the limit of each compared column. A label is compared only if both logs have it."""
    labels = [name for name in spec.label_columns if name in shared]
    numeric = {*spec.numeric_columns, *spec.vector_lengths, *labels}
    sequences = [name for name in spec.columns_of("sequence") if length_column(name) in shared]
    # Statistics without lengths, such as those in a served model, describe sequences as whole texts. Hardly two of them
    # are equal.
    not_alike = {*spec.columns_of("time", "text"), *spec.columns_of("sequence")} - set(sequences)
    thresholds = {}
    for name in spec.feature_columns + labels:
        usual = limits.max_distance.numeric if name in numeric else limits.max_distance.categorical
        if name in limits.columns or name not in not_alike:
            thresholds[name] = limits.columns.get(name, usual)
        if name in sequences:
            thresholds[length_column(name)] = limits.columns.get(name, limits.max_distance.numeric)
    return thresholds


def _distances(kind: str, log: Log, other: Log, spec: LogSpec, thresholds: Mapping[str, float]) -> dict[str, float]:
    """Returns TFDV's distance for each column that has values in both logs."""
    schema = raw_schema(spec)
    numeric = {*spec.numeric_columns, *spec.vector_lengths, *spec.label_columns}
    for name in map(length_column, spec.columns_of("sequence")):
        schema.feature.add(name=name, type=schema_pb2.FLOAT)
        numeric.add(name)
    for feature in schema.feature:
        if feature.name not in thresholds:
            continue
        comparator = feature.drift_comparator if kind == "drift" else feature.skew_comparator
        if feature.name in numeric:
            divergence = comparator.jensen_shannon_divergence
            divergence.threshold = thresholds[feature.name]
            # With bins of equal width, two samples of one long-tailed log have a large distance.
            divergence.source.type = divergence.source.QUANTILES
        else:
            comparator.infinity_norm.threshold = thresholds[feature.name]
    role = {"drift": "previous_statistics", "skew": "serving_statistics"}[kind]
    anomalies = validate_statistics(log.sampled.statistics, schema, **{role: other.sampled.statistics})
    distances = {}
    for info in anomalies.drift_skew_info:
        (measured,) = info.drift_measurements if kind == "drift" else info.skew_measurements
        distances[info.path.step[0]] = measured.value
    return distances


def _severity(column: Mapping[str, Any]) -> float:
    others = [abs(column[name] - column[f"other_{name}"]) for name in ("missing", "known")]
    return float(max(column["distance"] or 0.0, *others) / max(column["threshold"], 1e-9))


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """Comparison of one column in two logs. A side is None if its log lacks the column."""

    name: str
    kind: str
    distance: float | None
    threshold: float
    sides: tuple[statistics_pb2.FeatureNameStatistics | None, statistics_pb2.FeatureNameStatistics | None]
    logs: tuple[Sampled, Sampled]

    def to_dict(self) -> dict[str, Any]:
        missing, other_missing = self._missing(0), self._missing(1)
        known, other_known = self._known() if self._is_text() and 1.0 not in (missing, other_missing) else (1.0, 1.0)
        faults = list(self._faults(missing, other_missing, known, other_known))
        fault, p_value = min(faults, key=lambda one: one[1], default=("", 1.0))
        return {
            "column": self.name,
            "measure": "infinity_norm" if self._is_text() else "jensen_shannon_divergence",
            "distance": self._measured,
            "missing": missing,
            "other_missing": other_missing,
            "known": known,
            "other_known": other_known,
            "threshold": self.threshold,
            "breached": False,
            "p": min(CHECKS * p_value, 1.0),
            "text": fault,
            "chance": "",
            "moved": [] if 1.0 in (missing, other_missing) else list(self._moves()),
        }

    @property
    def _measured(self) -> float | None:
        """The distance. TFDV's distance of values covers only the ranked values, as if a log had no others."""
        if self.distance is None or not self._is_text():
            return self.distance
        shares = _nearest_shares(self._values(0), self._values(1))
        return max((abs(share - other) for _, share, other, _ in shares), default=0.0)

    def _faults(
        self, missing: float, other_missing: float, known: float, other_known: float
    ) -> Iterator[tuple[str, float]]:
        """Yields each reason why the column is above its limit, with the p-value of equal distributions."""
        name, other = SIDES[self.kind]
        rows = [int(log.statistics.datasets[0].num_examples) for log in self.logs]
        if (missing == 1) != (other_missing == 1):
            yield f"no value in the {name if missing == 1 else other} log", shares_differ(missing, other_missing, rows)
            return
        if (self._measured or 0.0) > self.threshold:
            yield f"the distance is above {self.threshold:g}", self._chance_of_distance()
        if abs(missing - other_missing) > self.threshold:
            text = f"missing in {missing:.1%} of the rows, in {other_missing:.1%} of the {other} log"
            yield text, shares_differ(missing, other_missing, rows)
        if abs(known - other_known) > self.threshold:
            text = f"the frequent values of the {other} log, {other_known:.1%} of it, are {known:.1%} of the {name} log"
            yield text, shares_differ(known, other_known, self._rows_with_values())

    def _chance_of_distance(self) -> float:
        """Returns the p-value of equal distributions for the distance of the column."""
        values, others = self._values(0), self._values(1)
        if not self._is_text():
            return cumulated_differ(_cumulated(values), _cumulated(others), self._rows_with_values())
        shares = _nearest_shares(values, others)
        tests = (shares_differ(share, other, self._rows_with_values()) for _, share, other, _ in _far(shares))
        return min(len(shares) * min(tests, default=1.0), 1.0)

    def _rows_with_values(self) -> list[int]:
        """Returns the numbers of rows with a value in the statistics, however many values a row has."""
        return [int(self._values(side).common_stats.num_non_missing) for side in (0, 1)]

    def _known(self) -> tuple[float, float]:
        """Returns the total shares, in both logs, of the values that are frequent in the other log."""
        values, others = self._values(0), self._values(1)
        rows = min(side.common_stats.num_non_missing for side in (values, others))
        known = other_known = 0.0
        shares = {name: share for name, share, _ in _shares_of_values(values, others)}
        for bucket in others.rank_histogram.buckets[:FREQUENT_VALUES]:
            share = bucket.sample_count / others.common_stats.tot_num_values
            if share * rows >= FREQUENT_ROWS:
                known += shares[bucket.label]
                other_known += share
        return known, other_known

    def _is_text(self) -> bool:
        return any(side is not None and side.WhichOneof("stats") == "string_stats" for side in self.sides)

    def _values(self, index: int) -> statistics_pb2.StringStatistics | statistics_pb2.NumericStatistics:
        side = self.sides[index]
        assert side is not None
        return getattr(side, side.WhichOneof("stats"))

    def _missing(self, index: int) -> float:
        """Returns the share of rows without a value."""
        rows = self.logs[index].statistics.datasets[0].num_examples
        if self.sides[index] is None:
            return 1.0
        return float((rows - self._values(index).common_stats.num_non_missing) / rows)

    def _moves(self) -> Iterator[dict[str, Any]]:
        """Yields the values or numeric ranges whose share of the rows with a value changed most."""
        values, others = self._values(0), self._values(1)
        if self._is_text():
            shares = _nearest_shares(values, others)
        else:
            shares = _shares_of_two(values, others) or _shares_of_bins(values, others)
        for name, share, other, most in _far([row for row in shares if row[1] != row[2]]):
            yield {"value": name, "share": share, "other": other, **({"most": most} if most else {})}


def _shares_of_values(
    values: statistics_pb2.StringStatistics, others: statistics_pb2.StringStatistics
) -> list[tuple[str, float, float]]:
    shares: list[dict[str, float]] = []
    for side in (values, others):
        present = side.common_stats.tot_num_values  # a row of a sequence has several values
        shares.append({bucket.label: bucket.sample_count / present for bucket in side.rank_histogram.buckets})
    names = dict.fromkeys([*shares[0], *shares[1]])
    return [(name, shares[0].get(name, 0.0), shares[1].get(name, 0.0)) for name in names]


def _nearest_shares(values: statistics_pb2.StringStatistics, others: statistics_pb2.StringStatistics) -> list[Moved]:
    """Returns the shares of the ranked values in both logs.

    If a log does not rank a value, although it has more values than it ranks, the value's share there is at most the
    last ranked share. The share nearest to the other log's share, within this bound, is used.
    """
    most = [
        side.rank_histogram.buckets[-1].sample_count / side.common_stats.tot_num_values
        if side.unique > len(side.rank_histogram.buckets) > 0
        else 0.0
        for side in (values, others)
    ]
    ranked = [{bucket.label for bucket in side.rank_histogram.buckets} for side in (values, others)]
    rows: list[Moved] = []
    for name, share, other in _shares_of_values(values, others):
        if most[0] and name not in ranked[0]:
            rows.append((name, min(most[0], other), other, "share"))
        elif most[1] and name not in ranked[1]:
            rows.append((name, share, min(most[1], share), "other"))
        else:
            rows.append((name, share, other, ""))
    return rows


def _far(shares: list[Moved]) -> list[Moved]:
    """Returns the values whose share moved most."""
    return sorted(shares, key=lambda row: -abs(row[1] - row[2]))[:SHOWN_MOVES]


def _shares_of_two(values: statistics_pb2.NumericStatistics, others: statistics_pb2.NumericStatistics) -> list[Moved]:
    """Returns the shares of a column's two numbers, such as a label's 0 and 1; [] if it has others."""
    low, high = min(values.min, others.min), max(values.max, others.max)
    # Of numbers from `low` to `high`, the variance is the largest that their mean allows only if there are no others. A
    # far outlier leaves too little room for this test; the ends of the buckets then show the other numbers.
    rest = [(high - side.mean) * (side.mean - low) - side.std_dev**2 for side in (values, others)]
    ends = {end for side in (values, others) for end in _cumulated(side)[0][1:].tolist()}
    if low == high or not ends <= {low, high} or max(rest) > _NO_OTHERS * (high - low) ** 2:
        return []
    share, other = ((side.mean - low) / (high - low) for side in (values, others))
    return [(f"{low:.6g}", 1.0 - share, 1.0 - other, ""), (f"{high:.6g}", share, other, "")]


def _shares_of_bins(values: statistics_pb2.NumericStatistics, others: statistics_pb2.NumericStatistics) -> list[Moved]:
    """Returns the names of ranges and their shares in both logs.

    Each range holds about a tenth of the other log's numbers. The two open ends are additional ranges.
    """
    ends, shares = _cumulated(others)
    edges = np.unique(ends[np.searchsorted(shares, np.arange(SHOWN_BINS) / SHOWN_BINS)])
    cumulated = [np.interp(edges, *_cumulated(side), left=0.0, right=1.0) for side in (values, others)]
    parts = [np.diff(np.concatenate([[0.0], side, [1.0]])) for side in cumulated]
    names = [f"{max(edge, others.min):.6g}" for edge in edges]
    texts = [f"below {names[0]}"]
    texts += [low if low == high else f"{low} to {high}" for low, high in zip(names[:-1], names[1:], strict=True)]
    texts += [f"above {names[-1]}"]
    return [(text, float(share), float(other), "") for text, share, other in zip(texts, *parts, strict=True)]


def _cumulated(values: statistics_pb2.NumericStatistics) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cumulative distribution of a numeric column.

    The first point lies below all numbers, the others are the distinct ends of TFDV's quantile buckets. The second
    array has the share of the numbers up to each point.
    """
    histogram = next(each for each in values.histograms if each.type == each.QUANTILES)
    ends = [np.nextafter(values.min, -np.inf)] + [bucket.high_value for bucket in histogram.buckets]
    counts = np.cumsum([0.0] + [bucket.sample_count for bucket in histogram.buckets])
    last = np.append(np.diff(ends) > 0, True)
    return np.array(ends)[last], counts[last] / counts[-1]


def compare_logs(
    spec: LogSpec,
    data: list[str],
    against: list[str],
    kind: str,
    limits: Monitoring,
    max_rows: int,
    seed: int,
    workers: Workers,
) -> dict[str, Any]:
    """Compares two raw logs with `compare`. For `skew`, labels are not read.

    Returns:
        The contents of drift.json: breached, and one comparison.

    Raises:
        InputError: a log cannot be read, or a column's types in the two cannot be compared.
    """
    reader, files = LogReader(spec, labels=kind == "drift"), [*find_files(data), *find_files(against)]
    for path in files:
        reader.check_columns(path)
    reader.check_types(files)
    log, other = (read_log(spec, patterns, kind == "drift", max_rows, seed, workers) for patterns in (data, against))
    return _together([compare(kind, log, other, spec, limits)])


def compare_training_rows(
    examples: pathlib.Path,
    statistics: Sampled,
    spec: LogSpec,
    limits: Monitoring,
    max_rows: int,
    seed: int,
    workers: Workers,
    states: Mapping[str, FileState] | None = None,
) -> dict[str, Any]:
    """Compares the training split of a payload with each log in `limits`.

    Args:
        examples: The payload's folder.
        statistics: The statistics of its training split.
        spec: The description of the log.
        limits: The logs, and the largest allowed distances.
        max_rows: See read_log.
        seed: See read_log.
        workers: The processes that read the logs.
        states: See read_log.

    Returns:
        The contents of drift.json: breached, and the comparisons.

    Raises:
        InputError: a log cannot be read.
    """
    # 0 malformed rows: no split contains them, and metrics.json counts them.
    parts = payload_files(examples / "Split-train")
    statistics = with_sequences(statistics, parts, spec, max_rows, seed, workers)
    log = Log(statistics, payload_rows(parts), 0)
    comparisons = []
    for kind, patterns in (("drift", limits.previous), ("skew", limits.serving)):
        if patterns:
            other = read_log(spec, patterns, kind == "drift", max_rows, seed, workers, states)
            comparisons.append(compare(kind, log, other, spec, limits))
    return _together(comparisons)


def _together(comparisons: list[dict[str, Any]]) -> dict[str, Any]:
    return {"breached": any(comparison["breached"] for comparison in comparisons), "comparisons": comparisons}
