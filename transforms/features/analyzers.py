"""Summarises the training rows for the transforms: value counts, moments and quantiles.

Works on Arrow arrays, part by part. Imports neither TensorFlow nor Beam, because counting processes must start quickly.
"""

import concurrent.futures
import dataclasses
import math
import pathlib
import pickle
import types
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tfx_bsl import sketches

from ctrpipe.transforms.features.derived.values import sources_of, with_derived
from ctrpipe.transforms.log.epochs import eight_digits
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.log.payload import read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.times import EightDigits
from ctrpipe.transforms.log.vectors import is_vector, vector_array
from ctrpipe.transforms.log.weighted import weights_of, without_weights

# Bound on the error of a quantile's rank, as a share of the rows; measured errors are 40 times smaller.
QUANTILE_ERROR = 1e-3
# The largest number of rows for which the sketch keeps that bound.
_MAX_ROWS = 1 << 36
# A column's buffered values are merged above this number, or above the number of its counted values if that is larger.
_BUFFERED_VALUES = 1 << 18
# Numbers beyond the training rows' range by more than this multiple of its width are clipped.
WIDENED = 1.0
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class ValueCounts:
    """How often each value of a column occurs.

    Attributes:
        values: The distinct values, in the order of their first occurrence.
        counts: int64 [values]; a value's true count is in [count, count + bound].
        bound: Upper bound on the true count of an unlisted value; 0 if counting was exact.
    """

    values: pa.LargeBinaryArray
    counts: np.ndarray
    bound: int = 0


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Count, mean, sum of squared deviations (m2), range and optional quantile sketch of a column's finite numbers."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    sketch: sketches.QuantilesSketch | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """The range of the rows, widened on each side by WIDENED times its width.

        Without rows the range is [0, 0]. A range of a single number has width 1, as in the transforms.
        """
        least, greatest = (self.minimum, self.maximum) if self.count else (0.0, 0.0)
        more = WIDENED * ((greatest - least) or 1.0)
        low, high = np.clip([least - more, greatest + more], -_LARGEST, _LARGEST).astype(np.float32)
        return float(low), float(high)

    @property
    def variance(self) -> float:
        """The variance over the rows; 0 without rows."""
        return self.m2 / self.count if self.count else 0.0

    def quantiles(self, steps: int) -> np.ndarray:
        """Returns the quantiles 0, 1/steps, ..., 1 of the rows, float64 [steps + 1]; zeros without rows.

        Raises:
            ValueError: the column has no sketch.
        """
        if not self.count:
            return np.zeros(steps + 1)
        if self.sketch is None:
            raise ValueError("No quantile sketch was made for this column")
        final = pickle.loads(pickle.dumps(self.sketch))  # a copy: after GetQuantiles a sketch takes no more values
        quantiles: np.ndarray = final.GetQuantiles(steps).values.to_numpy()
        return quantiles


@dataclasses.dataclass(frozen=True)
class LogSummary:
    """Statistics of rows that the transforms use. Can be pickled.

    Attributes:
        values: Value counts of the columns with a vocabulary.
        numbers: Moments and quantiles of the columns whose transform uses them.
        capacity: Number of distinct values of a column up to which counting is exact.
        documents: Document counts of the columns whose tokens are ranked by TF x IDF.
        eight_digits: By column with times of format `auto`, the possible forms of its eight-digit times.
    """

    values: dict[str, ValueCounts]
    numbers: dict[str, Numbers]
    capacity: int
    documents: dict[str, "Documents"] = dataclasses.field(default_factory=dict)
    eight_digits: dict[str, EightDigits] = dataclasses.field(default_factory=dict)

    def vocabulary(self, column: str, top_k: int | None = None, min_count: int = 1) -> pa.LargeBinaryArray:
        """Returns the column's values in descending order of count, then of their bytes, as in TFT.

        Args:
            column: A column with a vocabulary.
            top_k: Maximum number of values; None for all.
            min_count: Minimum count of a value.
        """
        values, counts = self.values[column].values, self.values[column].counts
        kept = self._candidates(column, min_count)
        if top_k is not None and np.count_nonzero(kept) > top_k:
            kept &= counts >= np.partition(counts[kept], -top_k)[-top_k]
        table = pa.table({"value": values.filter(pa.array(kept)), "count": counts[kept]})
        order = pc.sort_indices(table, [("count", "descending"), ("value", "descending")])[:top_k]
        return table["value"].take(order).combine_chunks()

    def tokens(self, feature: Text) -> pa.LargeBinaryArray:
        """Returns the tokens of a text's columns in descending order of count or TF x IDF, then of their bytes.

        TF is the token's count in all values. IDF is ln(values / values with the token), without missing values.
        """
        total = _exact_sum([self.values[column] for column in feature.columns])
        scores = total.counts.astype(np.float64)
        if feature.rank_by == "tf_idf":
            documents = [self.documents[column] for column in feature.columns]
            with_token = _exact_sum([each.counts for each in documents])
            index = pc.index_in(total.values, with_token.values).fill_null(len(with_token.counts)).to_numpy()
            # An unlisted token occurs in at most `bound` values.
            frequency = np.append(with_token.counts, max(with_token.bound, 1))[index]
            scores *= np.log(sum(each.rows for each in documents) / frequency)
        kept = total.counts >= feature.min_count
        table = pa.table({"value": total.values.filter(pa.array(kept)), "score": scores[kept]})
        order = pc.sort_indices(table, [("score", "descending"), ("value", "descending")])[: feature.top_k]
        return table["value"].take(order).combine_chunks()

    def vocabulary_size(self, column: str, top_k: int | None = None, min_count: int = 1) -> int:
        """Returns the length of `vocabulary`, without sorting the values."""
        size = int(np.count_nonzero(self._candidates(column, min_count)))
        return size if top_k is None else min(size, top_k)

    def _candidates(self, column: str, min_count: int) -> np.ndarray:
        kept: np.ndarray = self.values[column].counts >= min_count
        return kept

    def bounds(self) -> dict[str, int]:
        """Returns the error bounds of the columns whose counts are not exact."""
        return {column: counted.bound for column, counted in self.values.items() if counted.bound}


@dataclasses.dataclass(frozen=True)
class Documents:
    """Document counts for IDF: the number of a column's values with each token, and the number of all its values."""

    counts: ValueCounts
    rows: int


def _exact_sum(parts: Sequence[ValueCounts]) -> ValueCounts:
    return _sum(parts, sum(len(part.counts) for part in parts))


def _sum(parts: Sequence[ValueCounts], capacity: int) -> ValueCounts:
    """Returns the summed counts of several columns or parts."""
    counter = _ValueCounter(capacity)
    for part in parts:
        counter.add(part)
    return counter.counts()


def summarize(files: Sequence[pathlib.Path], spec: LogSpec, capacity: int | None = None) -> LogSummary:
    """Returns the summary of the rows in parts of the payload.

    Args:
        files: The parts.
        spec: The description of the log.
        capacity: Number of distinct values of a column up to which counting is exact; None: the value of
            `data.max_distinct_values`.
    """
    counter = LogCounter.of_log(spec, capacity)
    if counter.columns:
        for rows in read_payload(files, sources_of(counter.columns, spec), as_dictionaries=True):
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            counter.add(with_derived(columns, counter.columns, spec))
    return counter.summary()


def merge(summaries: Sequence[LogSummary], threads: int = 1) -> LogSummary:
    """Merges the summaries of parts into one summary of all rows.

    Args:
        summaries: The summaries of the parts.
        threads: Number of columns whose counts are summed in parallel.

    Raises:
        ValueError: there is no summary.
    """
    if not summaries:
        raise ValueError("There is no summary to merge")
    first = summaries[0]

    def add_up(column: str) -> ValueCounts:
        return _sum([summary.values[column] for summary in summaries], first.capacity)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        values = dict(zip(first.values, pool.map(add_up, first.values), strict=True))
    sketched = {column: numbers.sketch is not None for column, numbers in first.numbers.items()}
    counter = LogCounter({}, sketched, first.capacity, first.documents, times=first.eight_digits)
    for summary in summaries:
        counter.include(summary)
    return dataclasses.replace(counter.summary(), values=values)


class LogCounter:
    """Summarises rows batch by batch. Can be pickled.

    Args:
        separators: Maps each column with a vocabulary to the separator of its tokens; None for a column without tokens.
        sketched: Maps each column whose moments are computed to whether its quantiles are computed too.
        capacity: Number of distinct values of a column up to which counting is exact.
        documents: The columns whose tokens need document counts.
        owners: Maps each column with a vocabulary to the column under which its values are counted. Columns that share
            a vocabulary are counted together. None: each column is counted on its own.
        times: The columns of times whose eight digits may be a date or an hour (format `auto`).
        weights: Maps each column whose tokens have weights to the separator between a token and its weight.
        within: Maps each column whose tokens hold several values to the separator of these values.
    """

    def __init__(
        self,
        separators: dict[str, str | None],
        sketched: dict[str, bool],
        capacity: int,
        documents: Collection[str] = (),
        owners: Mapping[str, str] | None = None,
        times: Collection[str] = (),
        weights: Mapping[str, str] = types.MappingProxyType({}),
        within: Mapping[str, str] = types.MappingProxyType({}),
    ):
        self._separators = separators
        self._weights = weights
        self._within = within
        self._capacity = capacity
        self._documents = {column: _ValueCounter(capacity) for column in documents}
        self._document_rows = dict.fromkeys(documents, 0)
        self._owners = owners or {column: column for column in separators}
        self._values = {column: _ValueCounter(capacity) for column in dict.fromkeys(self._owners.values())}
        self._eight_digits = dict.fromkeys(times, EightDigits())
        self._numbers = {column: _NumberCounter(with_sketch) for column, with_sketch in sketched.items()}

    @classmethod
    def of_log(cls, spec: LogSpec, capacity: int | None = None) -> "LogCounter":
        """Returns a counter for all statistics that the log's transforms use."""
        vocabularies, features = spec.counted_columns, spec.feature_by_column
        return cls(
            {name: features[name].list_separator for name in vocabularies},
            {name: name in spec.quantile_columns for name in [*spec.measured_columns, *spec.data.number_columns]},
            capacity or spec.data.max_distinct_values,
            [name for name in vocabularies if features[name].counts_documents],
            vocabularies,
            [name for name, time_format in spec.time_formats.items() if time_format == "auto"],
            {name: each.weight_separator for name, each in features.items() if each.weight_separator},
            {name: each.inner_separator(name) for name, each in features.items() if each.inner_separator(name)},
        )

    @property
    def columns(self) -> list[str]:
        """The columns that are counted or measured."""
        return [*self._separators, *self._numbers, *self._eight_digits]

    def add(self, rows: Mapping[str, pa.Array]) -> None:
        """Adds rows, one [N] array per column: binary or dictionary arrays for vocabularies, floats for numbers.

        Nulls, empty values and numbers that are not finite count as missing.
        """
        for column, separator in self._separators.items():
            signs = (separator, self._weights.get(column), self._within.get(column))
            self._values[self._owners[column]].add(_count(rows[column], *signs))
        for column, documents in self._documents.items():
            batch = _count_documents(rows[column], self._separators[column] or "")
            documents.add(batch.counts)
            self._document_rows[column] += batch.rows
        for column, numbers in self._numbers.items():
            numbers.add(self._measured(column, rows[column]))
        for column, digits in self._eight_digits.items():
            self._eight_digits[column] = digits | eight_digits(rows[column])

    def _measured(self, column: str, values: pa.Array) -> pa.Array:
        """Returns a column's numbers. For lists with weights, returns the weights of the distinct lists: only their
        range is used.
        """
        if column not in self._weights:
            return values
        weights, _ = weights_of(pc.unique(values), self._separators[column] or "", self._weights[column])
        return pa.array(weights)

    def include(self, summary: LogSummary) -> None:
        """Adds rows that are already summarised."""
        for column, counter in self._values.items():
            counter.add(summary.values[column])
        for column, documents in self._documents.items():
            documents.add(summary.documents[column].counts)
            self._document_rows[column] += summary.documents[column].rows
        for column, numbers in self._numbers.items():
            numbers.merge(summary.numbers[column])
        for column, digits in self._eight_digits.items():
            self._eight_digits[column] = digits | summary.eight_digits[column]

    def summary(self) -> LogSummary:
        """Returns the summary of all added rows."""
        return LogSummary(
            {column: counter.counts() for column, counter in self._values.items()},
            {column: counter.numbers() for column, counter in self._numbers.items()},
            self._capacity,
            {
                column: Documents(counter.counts(), self._document_rows[column])
                for column, counter in self._documents.items()
            },
            dict(self._eight_digits),
        )


class _ValueCounter:
    """Sums counts of a column's values: exact up to `capacity` distinct values, then a Misra-Gries summary.

    Above `capacity` values, the `capacity` largest counts are kept, minus the next largest one (Agarwal et al.,
    "Mergeable Summaries", 2012). The subtracted counts sum to at most rows / (capacity + 1), for any division of the
    rows into batches and parts.
    """

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._values = pa.array([], pa.large_binary())
        self._counts = np.zeros(0, np.int64)
        self._bound = 0
        self._buffered: list[ValueCounts] = []
        self._buffered_values = 0

    def add(self, part: ValueCounts) -> None:
        self._buffered.append(part)
        self._buffered_values += len(part.counts)
        if self._buffered_values > max(_BUFFERED_VALUES, len(self._counts)):
            self._merge()
            # Pruning at twice the capacity happens less often and loses less.
            self._prune(2 * self._capacity)

    def counts(self) -> ValueCounts:
        self._merge()
        self._prune(self._capacity)
        return ValueCounts(self._values, self._counts, self._bound)

    def _merge(self) -> None:
        if not self._buffered:
            return
        values = pa.concat_arrays([self._values, *(part.values for part in self._buffered)]).dictionary_encode()
        counts = np.concatenate([self._counts, *(part.counts for part in self._buffered)])
        self._bound += sum(part.bound for part in self._buffered)
        self._buffered, self._buffered_values = [], 0
        self._values = values.dictionary
        # np.bincount sums in float64, which is exact up to 2^53.
        self._counts = np.bincount(values.indices, counts, len(self._values)).astype(np.int64)

    def _prune(self, limit: int) -> None:
        if len(self._counts) <= limit:
            return
        next_count = np.partition(self._counts, -self._capacity - 1)[-self._capacity - 1]
        kept = self._counts > next_count
        self._values = self._values.filter(pa.array(kept))
        self._counts = self._counts[kept] - next_count
        self._bound += int(next_count)


def _count(
    values: pa.Array, separator: str | None, before_weight: str | None = None, within: str | None = None
) -> ValueCounts:
    """Returns the counts of a batch's values or, with a separator, of their tokens without their weights."""
    encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.large_binary())
    counts = np.bincount(encoded.indices.drop_null(), minlength=len(distinct))
    if separator is not None:
        if within is not None:
            distinct = pc.replace_substring(distinct, within, separator)
        tokens = pc.split_pattern(distinct, separator)
        counts = np.repeat(counts, pc.list_value_length(tokens))
        distinct = tokens.values
    if before_weight is not None:
        names = without_weights(distinct, before_weight).dictionary_encode()
        distinct = names.dictionary
        counts = np.bincount(names.indices, counts, len(distinct)).astype(np.int64)
    kept = pc.not_equal(distinct, b"").to_numpy(zero_copy_only=False) & (counts > 0)
    if not kept.all():
        distinct, counts = distinct.filter(pa.array(kept)), counts[kept]
    return ValueCounts(distinct, counts)


def _count_documents(values: pa.Array, separator: str) -> Documents:
    """Returns the number of a batch's values with each token."""
    encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.large_binary())
    counts = np.bincount(encoded.indices.drop_null(), minlength=len(distinct))
    split = pc.split_pattern(distinct, separator)
    parents = pc.list_parent_indices(split).to_numpy()
    tokens = split.flatten().dictionary_encode()
    pairs = np.unique(parents * len(tokens.dictionary) + tokens.indices.to_numpy())
    parents, token = np.divmod(pairs, max(len(tokens.dictionary), 1))
    frequency = np.bincount(token, counts[parents], len(tokens.dictionary)).astype(np.int64)
    is_token = pc.not_equal(tokens.dictionary, b"").to_numpy(zero_copy_only=False) & (frequency > 0)
    is_value = pc.not_equal(distinct, b"").to_numpy(zero_copy_only=False)
    return Documents(
        ValueCounts(tokens.dictionary.filter(pa.array(is_token)), frequency[is_token]), int(counts[is_value].sum())
    )


class _NumberCounter:
    """Computes moments and a quantile sketch of one column's numbers, or of all elements of its vectors."""

    def __init__(self, with_sketch: bool):
        self._moments = Numbers()
        self._sketch = sketches.QuantilesSketch(QUANTILE_ERROR, _MAX_ROWS, 1) if with_sketch else None

    def add(self, values: pa.Array) -> None:
        known = values.drop_null()
        floats = vector_array(known).reshape(-1) if is_vector(known.type) else known.to_numpy(zero_copy_only=False)
        numbers = floats.astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return
        mean = float(numbers.mean())
        m2 = float(((numbers - mean) ** 2).sum())
        self._moments = _combine(
            self._moments, Numbers(len(numbers), mean, m2, float(numbers.min()), float(numbers.max()))
        )
        if self._sketch is not None:
            self._sketch.AddValues(pa.array(numbers))

    def merge(self, other: Numbers) -> None:
        self._moments = _combine(self._moments, other)
        if self._sketch is not None:
            self._sketch.Merge(other.sketch)

    def numbers(self) -> Numbers:
        if self._sketch is not None:
            self._sketch.Compact()
        return dataclasses.replace(self._moments, sketch=self._sketch)


def _combine(first: Numbers, second: Numbers) -> Numbers:
    """Returns the moments of the union of two sets of rows (Chan, Golub and LeVeque, 1983)."""
    count = first.count + second.count
    share = second.count / count if count else 0.0
    step = second.mean - first.mean
    return Numbers(
        count,
        first.mean + step * share,
        first.m2 + second.m2 + step * step * first.count * share,
        min(first.minimum, second.minimum),
        max(first.maximum, second.maximum),
    )
