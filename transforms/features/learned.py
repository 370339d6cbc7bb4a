"""What the transform graph has from the training rows: files of vocabularies, and numbers.

Either from a summary that is made already, or by TensorFlow Transform's analyzers for a whole log: one for all
vocabularies, one for all numbers. Each of TFT's own analyzers goes over the log value by value; these go over it once,
column by column.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.io.filesystems import CompressionTypes, FileSystems

from transforms.features.analyzers import LogCounter, LogSummary
from transforms.log.spec import Categorical, LogSpec, Multivalent, Text

# TFT's own line for a vocabulary that is empty, because a lookup table cannot be.
EMPTY_VOCABULARY = b"49d0cd50-04bb-48c0-bc6f-5b575dce351a"
# As many as scikit-learn's QuantileTransformer has.
NORMALIZE_QUANTILES = 1000


def vocabulary_name(column: str) -> str:
    """The asset's name for a column's vocabulary, of letters, digits and _ only: TFT drops or merges the others."""
    safe = "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in column)
    return f"vocabulary_{safe}"


@dataclasses.dataclass(frozen=True)
class Learned:
    """What the training rows have taught, for a graph that needs no analyzer.

    Args:
        summary: Of the training rows.
        folder: An existing folder for the vocabularies' files, until the graph is saved.
    """

    summary: LogSummary
    folder: pathlib.Path

    def write(self, spec: LogSpec) -> None:
        """Writes the vocabularies' files."""
        for column in spec.vocabulary_columns:
            (self.folder / vocabulary_name(column)).write_bytes(_vocabulary_lines(self.summary, column, spec))


def vocabulary_files(
    inputs: dict[str, tf.Tensor], spec: LogSpec, learned: Learned | None
) -> dict[str, tf.Tensor | str]:
    """By column with a vocabulary its file, for `tft.apply_vocabulary`.

    Args:
        inputs: [N] strings by column.
        spec: The description of the log.
        learned: From the training rows, its files written; None: the rows that TFT analyses are counted.
    """
    columns = spec.vocabulary_columns
    if learned is not None:
        return {column: str(learned.folder / vocabulary_name(column)) for column in columns}
    if not columns:
        return {}
    files = tft.experimental.ptransform_analyzer(
        [tf.reshape(inputs[column], [-1]) for column in columns],
        WriteVocabularies(spec.model_dump_json()),
        [tf.string] * len(columns),
        [[]] * len(columns),
        [EMPTY_VOCABULARY] * len(columns),
        name="vocabularies",
    )
    return dict(zip(columns, files, strict=True))


def numbers(inputs: dict[str, tf.Tensor], spec: LogSpec, learned: Learned | None) -> dict[str, tf.Tensor]:
    """By column what its transform takes from the training rows, float64; arguments as for `vocabulary_files`.

    A vocabulary: [1], the lines of its file. `standardize`: [2], mean and variance. `min_max`: [2], least and greatest.
    `quantile_bucketize`: [buckets - 1], the boundaries. `quantile_normalize`: [NORMALIZE_QUANTILES], the quantiles.
    """
    columns = spec.vocabulary_columns + spec.measured_columns
    if learned is not None:
        return {column: tf.constant(_column_numbers(learned.summary, column, spec)) for column in columns}
    if not columns:
        return {}
    empty = LogCounter.of_log(spec).summary()
    widths = [len(_column_numbers(empty, column, spec)) for column in columns]
    (joined,) = tft.experimental.ptransform_analyzer(
        [tf.reshape(inputs[column], [-1]) for column in columns],
        JoinNumbers(spec.model_dump_json()),
        [tf.float64],
        [[sum(widths)]],
        name="numbers",
    )
    return dict(zip(columns, tf.split(joined, widths), strict=True))


def _vocabulary_lines(summary: LogSummary, column: str, spec: LogSpec) -> bytes:
    feature: Any = spec.feature_by_column[column]
    if isinstance(feature, Text):
        found = summary.tokens(feature)
    else:
        found = summary.vocabulary(column, feature.top_k, feature.min_count)
    values = found.to_pylist() or [EMPTY_VOCABULARY]
    return b"".join(value + b"\n" for value in values)


def _column_numbers(summary: LogSummary, column: str, spec: LogSpec) -> np.ndarray:
    feature: Any = spec.feature_by_column[column]
    if isinstance(feature, Categorical | Multivalent):
        return np.array([max(summary.vocabulary_size(column, feature.top_k, feature.min_count), 1)], np.float64)
    if isinstance(feature, Text):
        return np.array([max(len(summary.tokens(feature)), 1)], np.float64)
    found = summary.numbers[column]
    if feature.transform == "standardize":
        return np.array([found.mean, found.variance])
    if feature.transform == "min_max":
        return np.array([found.minimum, found.maximum]) if found.count else np.zeros(2)
    if feature.transform == "quantile_bucketize":
        return found.quantiles(feature.buckets)[1:-1]
    return found.quantiles(NORMALIZE_QUANTILES - 1)


class WriteVocabularies(tft_beam.experimental.PTransformAnalyzer):
    """Batches of the columns with a vocabulary -> for each the path of a text file, one value a line, as the ids go."""

    def __init__(self, spec: str):
        super().__init__()
        self._spec = spec

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        columns = LogSpec.model_validate_json(self._spec).vocabulary_columns
        tags = [vocabulary_name(column) for column in columns]
        summary = batches | beam.CombineGlobally(_Count(self._spec, columns))
        written = summary | beam.FlatMap(_write, self._spec, self.base_temp_dir).with_outputs(*tags)
        return tuple(written[tag] for tag in tags)


def _write(summary: LogSummary, spec: str, folder: str) -> Iterator[beam.pvalue.TaggedOutput]:
    log = LogSpec.model_validate_json(spec)
    FileSystems.mkdirs(folder)
    for column in log.vocabulary_columns:
        path = FileSystems.join(folder, vocabulary_name(column))
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(_vocabulary_lines(summary, column, log))
        yield beam.pvalue.TaggedOutput(vocabulary_name(column), np.array(path))


class JoinNumbers(beam.PTransform):
    """Batches of all columns that are analysed -> the numbers of all, one column behind the other."""

    def __init__(self, spec: str):
        super().__init__()
        self._spec = spec

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        spec = LogSpec.model_validate_json(self._spec)
        columns = spec.vocabulary_columns + spec.measured_columns
        return batches | beam.CombineGlobally(_Count(self._spec, columns)) | beam.Map(_join, self._spec)


def _join(summary: LogSummary, spec: str) -> np.ndarray:
    log = LogSpec.model_validate_json(spec)
    columns = log.vocabulary_columns + log.measured_columns
    return np.concatenate([_column_numbers(summary, column, log) for column in columns])


class _Count(beam.CombineFn):
    """Tuples of [N] arrays, one for each column -> LogSummary."""

    def __init__(self, spec: str, columns: list[str]):
        self._spec = spec
        self._columns = columns

    def create_accumulator(self) -> LogCounter:
        return LogCounter.of_log(LogSpec.model_validate_json(self._spec), columns=self._columns)

    def add_input(self, counter: LogCounter, batch: tuple[np.ndarray, ...]) -> LogCounter:
        arrays = [pa.array(values, pa.binary() if values.dtype == object else None) for values in batch]
        counter.add(dict(zip(self._columns, arrays, strict=True)))
        return counter

    def merge_accumulators(self, counters: Iterable[LogCounter]) -> LogCounter:
        together = self.create_accumulator()
        for counter in counters:
            together.include(counter.summary())
        return together

    def extract_output(self, counter: LogCounter) -> LogSummary:
        return counter.summary()
