"""What the training rows have taught, as the transform graph takes it: files of vocabularies, and numbers."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from transforms.features.analyzers import LogSummary
from transforms.log.spec import Categorical, LogSpec, Multivalent, Text

# TFT's own line for a vocabulary that is empty, because a lookup table cannot be.
EMPTY_VOCABULARY = b"49d0cd50-04bb-48c0-bc6f-5b575dce351a"
# As many as scikit-learn's QuantileTransformer has.
NORMALIZE_QUANTILES = 1000


def vocabulary_name(column: str) -> str:
    """Returns the name of a column's vocabulary as an asset: letters, digits and _ only, as TFT wants it."""
    safe = "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in column)
    return f"vocabulary_{safe}"


@dataclasses.dataclass(frozen=True)
class Learned:
    """Vocabularies and numbers of the training rows, for a graph that needs no analyzer of TFT's.

    TFT's analyzers go over the log value by value, each for itself; the summary is made in one pass, column by column.

    Args:
        spec: The description of the log.
        summary: The summary of the training rows.
        folder: An existing folder for the vocabularies' files; TFT copies them when it saves the graph.
    """

    spec: LogSpec
    summary: LogSummary
    folder: pathlib.Path

    def write_vocabularies(self) -> dict[str, str]:
        """Writes each column's vocabulary to a file, one value a line in the order of their ids.

        Returns:
            The file's path by column, for `tft.apply_vocabulary`.
        """
        files: dict[str, str] = {}
        for column in self.spec.vocabulary_columns:
            path = self.folder / vocabulary_name(column)
            values = self._vocabulary(column) or [EMPTY_VOCABULARY]
            path.write_bytes(b"".join(value + b"\n" for value in values))
            files[column] = str(path)
        return files

    def numbers(self) -> dict[str, tf.Tensor]:
        """Returns by column what its transform takes from the training rows, float64 constants.

        A vocabulary: [1], the lines of its file. `standardize`: [2], mean and variance. `min_max`: [2], least and
        greatest. `quantile_bucketize`: [buckets - 1], the boundaries. `quantile_normalize`: [NORMALIZE_QUANTILES], the
        quantiles.
        """
        columns = self.spec.vocabulary_columns + self.spec.measured_columns
        return {column: tf.constant(self._numbers_of(column)) for column in columns}

    def _vocabulary(self, column: str) -> list[bytes]:
        feature: Any = self.spec.feature_by_column[column]
        if isinstance(feature, Text):
            values = self.summary.tokens(feature)
        else:
            values = self.summary.vocabulary(column, feature.top_k, feature.min_count)
        return list(values.to_pylist())

    def _numbers_of(self, column: str) -> np.ndarray:
        feature: Any = self.spec.feature_by_column[column]
        if isinstance(feature, Categorical | Multivalent):
            size = self.summary.vocabulary_size(column, feature.top_k, feature.min_count)
            return np.array([max(size, 1)], np.float64)
        if isinstance(feature, Text):
            return np.array([max(len(self.summary.tokens(feature)), 1)], np.float64)
        measured = self.summary.numbers[column]
        if feature.transform == "standardize":
            return np.array([measured.mean, measured.variance])
        if feature.transform == "min_max":
            return np.array([measured.minimum, measured.maximum]) if measured.count else np.zeros(2)
        if feature.transform == "quantile_bucketize":
            return measured.quantiles(feature.buckets)[1:-1]
        return measured.quantiles(NORMALIZE_QUANTILES - 1)
