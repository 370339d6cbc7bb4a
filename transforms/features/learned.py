"""What the transform graph needs of the training rows: vocabularies, as files, and numbers."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import write_json
from ctrpipe.transforms.features.analyzers import LogSummary
from ctrpipe.transforms.features.vocabularies import Vocabularies, write_vocabularies
from ctrpipe.transforms.log.spec import LogSpec, Text

# The number of quantiles of scikit-learn's QuantileTransformer by default.
NORMALIZE_QUANTILES = 1000

Numbers = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Former:
    """What stays of a former transform.

    Attributes:
        numbers: Numbers of transforms, by column, as `Learned.numbers` returns them.
        vocabularies: Values by column, those that were seen last first.
        ages: By column how many of them have not been seen for 0, 1, 2, ... trainings.
        max_age: Trainings without a value after which it is left out; 0: none stays that today's rows lack.
        max_values: The most values of a column, today's first, and then those that were seen last; None for no limit.
        counts: Of values in the trainings before, as `read_counts` returns them; None where today's alone count.
        window: How many trainings values are counted over, today's included.
    """

    numbers: Numbers = dataclasses.field(default_factory=dict)
    vocabularies: Mapping[str, pa.Array] = dataclasses.field(default_factory=dict)
    ages: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    max_age: int = 0
    max_values: int | None = None
    counts: pa.Table | None = None
    window: int = 1

    def grown(self, column: str, today: pa.Array) -> tuple[pa.Array, list[int]]:
        """Returns a column's vocabulary with the former values that stay behind today's, and its `ages`."""
        before = self.vocabularies.get(column, pa.array([], pa.binary()))
        ages = np.repeat(np.arange(len(self.ages.get(column, ()))), self.ages.get(column, ())) + 1
        stays = (ages <= self.max_age) & ~np.asarray(pc.is_in(before, value_set=today), bool)
        values = pa.concat_arrays([today, before.filter(pa.array(stays))])[: self.max_values]
        every = np.concatenate([np.zeros(len(today), np.int64), ages[stays]])[: self.max_values]
        return values, np.bincount(every).tolist()


@dataclasses.dataclass(frozen=True)
class Learned:
    """Vocabularies and numbers of the training rows, in place of TFT's analyzers.

    Each of TFT's analyzers reads the log value by value; the summary is made in one pass, column by column.

    Args:
        spec: The description of the log.
        summary: The summary of the training rows.
        folder: An existing folder for the vocabularies' files; TFT copies them when it saves the graph.
        former: What stays of a former transform.
    """

    spec: LogSpec
    summary: LogSummary
    folder: pathlib.Path
    former: Former = Former()

    def write_vocabularies(self) -> Vocabularies:
        """Writes the vocabularies to files, and returns them for the graph."""
        values = {column: list(known.to_pylist()) for column, (known, _) in self._vocabularies.items()}
        return write_vocabularies(self.spec, values, self.folder)

    def ages(self) -> dict[str, list[int]]:
        """Returns by column how many values of its vocabulary have not been seen for 0, 1, 2, ... trainings."""
        return {column: ages for column, (_, ages) in self._vocabularies.items()}

    def numbers(self) -> dict[str, np.ndarray]:
        """Returns by column what its transform takes from the training rows, float64.

        `standardize`: [2], mean and variance. `min_max`: [2], least and greatest. `quantile_bucketize`: [buckets - 1],
        the boundaries. `quantile_normalize`: [NORMALIZE_QUANTILES], the quantiles.
        """
        features = self.spec.feature_by_column
        return {
            name: self.former.numbers[name] if name in self.former.numbers else self._numbers_of(name, features[name])
            for name in self.spec.measured_columns
        }

    @functools.cached_property
    def _vocabularies(self) -> dict[str, tuple[pa.Array, list[int]]]:
        """By column the values of its vocabulary, and how many of them have each age."""
        columns, features = self.spec.vocabulary_columns, self.spec.feature_by_column
        return {name: self._vocabulary(name, features[name]) for name in columns}

    def _vocabulary(self, column: str, feature: Any) -> tuple[pa.Array, list[int]]:
        if isinstance(feature, Text):
            return self.former.grown(feature.columns[0], self.summary.tokens(feature).cast(pa.binary()))
        values = self.summary.vocabulary(column, feature.top_k, feature.min_count)
        return self.former.grown(column, values.cast(pa.binary()))

    def _numbers_of(self, column: str, feature: Any) -> np.ndarray:
        measured = self.summary.numbers[column]
        if feature.transform == "standardize":
            return np.array([measured.mean, measured.variance])
        if feature.transform == "min_max":
            return np.array([measured.minimum, measured.maximum]) if measured.count else np.zeros(2)
        if feature.transform == "quantile_bucketize":
            return measured.quantiles(feature.buckets)[1:-1]
        return measured.quantiles(NORMALIZE_QUANTILES - 1)


def write_numbers(path: pathlib.Path, numbers: Numbers) -> None:
    """Writes what `Learned.numbers` returns to a JSON file."""
    write_json(path, {column: values.tolist() for column, values in numbers.items()})


def read_numbers(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns what `write_numbers` wrote.

    Raises:
        InputError: the file is absent or damaged.
    """
    try:
        return {column: np.array(values, np.float64) for column, values in json.loads(path.read_text()).items()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); train the model again") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged ({one_line(error, 100)}); train the model again") from error


def numbers_that_stay(today: LogSpec, former: LogSpec, numbers: Numbers) -> dict[str, np.ndarray]:
    """Returns the numbers of the columns whose transform is the same in both logs."""
    ours, theirs = today.feature_by_column, former.feature_by_column
    both = (name for name in today.measured_columns if name in numbers)
    return {name: numbers[name] for name in both if _transform(ours[name]) == _transform(theirs[name])}


def _transform(feature: Any) -> tuple[str, str, int | None]:
    return feature.kind, feature.transform, feature.buckets
