"""What the transform graph needs of the training rows: vocabularies, as files, and numbers."""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from transforms.features.analyzers import LogSummary
from transforms.features.vocabularies import Vocabularies, write_vocabularies
from transforms.log.spec import LogSpec, Text

# The number of quantiles of scikit-learn's QuantileTransformer by default.
NORMALIZE_QUANTILES = 1000


@dataclasses.dataclass(frozen=True)
class Learned:
    """Vocabularies and numbers of the training rows, in place of TFT's analyzers.

    Each of TFT's analyzers reads the log value by value; the summary is made in one pass, column by column.

    Args:
        spec: The description of the log.
        summary: The summary of the training rows.
        folder: An existing folder for the vocabularies' files; TFT copies them when it saves the graph.
    """

    spec: LogSpec
    summary: LogSummary
    folder: pathlib.Path

    def write_vocabularies(self) -> Vocabularies:
        """Writes the vocabularies to files, and returns them for the graph."""
        columns, features = self.spec.vocabulary_columns, self.spec.feature_by_column
        return write_vocabularies(
            self.spec, {name: self._vocabulary(name, features[name]) for name in columns}, self.folder
        )

    def numbers(self) -> dict[str, np.ndarray]:
        """Returns by column what its transform takes from the training rows, float64.

        `standardize`: [2], mean and variance. `min_max`: [2], least and greatest. `quantile_bucketize`: [buckets - 1],
        the boundaries. `quantile_normalize`: [NORMALIZE_QUANTILES], the quantiles.
        """
        features = self.spec.feature_by_column
        return {name: self._numbers_of(name, features[name]) for name in self.spec.measured_columns}

    def _vocabulary(self, column: str, feature: Any) -> list[bytes]:
        if isinstance(feature, Text):
            values = self.summary.tokens(feature)
        else:
            values = self.summary.vocabulary(column, feature.top_k, feature.min_count)
        return list(values.to_pylist())

    def _numbers_of(self, column: str, feature: Any) -> np.ndarray:
        measured = self.summary.numbers[column]
        if feature.transform == "standardize":
            return np.array([measured.mean, measured.variance])
        if feature.transform == "min_max":
            return np.array([measured.minimum, measured.maximum]) if measured.count else np.zeros(2)
        if feature.transform == "quantile_bucketize":
            return measured.quantiles(feature.buckets)[1:-1]
        return measured.quantiles(NORMALIZE_QUANTILES - 1)
