"""The vocabularies and numbers that the transform graph learns from the training rows."""

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
from ctrpipe.transforms.features.analyzers import Numbers as Measured
from ctrpipe.transforms.features.kinds.every import transform_of
from ctrpipe.transforms.features.start_vectors import write_start_vectors
from ctrpipe.transforms.features.vocabularies import Vocabularies, write_vocabularies
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.times import EightDigits

NUMBERS = "numbers.json"  # file of the result of Learned.numbers, in the folder of the transform graph
Numbers = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Former:
    """The state of the previous transform that a warm start keeps.

    Attributes:
        numbers: Numbers of the kept transforms by column, as `Learned.numbers` returns them.
        limits: By column, the limits of the previous transform (`Learned.limits`); the model has seen numbers within
            them.
        vocabularies: Vocabulary by column, the most recently seen values first.
        ages: By column, how many values of the vocabulary have not been seen for 0, 1, 2, ... training runs.
        max_age: A value is kept for this many training runs without an occurrence; 0: only current values are kept.
        max_values: Maximum vocabulary size of a column: current values come first, then the most recently seen ones.
            None for no limit.
        counts: Value counts of earlier training runs, as `read_counts` returns them; None: only current counts are
            used.
        window: Number of training runs to count values over, the current one included.
    """

    numbers: Numbers = dataclasses.field(default_factory=dict)
    limits: Numbers = dataclasses.field(default_factory=dict)
    vocabularies: Mapping[str, pa.Array] = dataclasses.field(default_factory=dict)
    ages: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    max_age: int = 0
    max_values: int | None = None
    counts: pa.Table | None = None
    window: int = 1

    def grown(self, column: str, today: pa.Array) -> tuple[pa.Array, list[int]]:
        """Returns a column's vocabulary, the current values followed by the kept former ones, and its `ages`."""
        before = self.vocabularies.get(column, pa.array([], pa.binary()))
        ages = np.repeat(np.arange(len(self.ages.get(column, ()))), self.ages.get(column, ())) + 1
        stays = (ages <= self.max_age) & ~np.asarray(pc.is_in(before, value_set=today), bool)
        values = pa.concat_arrays([today, before.filter(pa.array(stays))])[: self.max_values]
        every = np.concatenate([np.zeros(len(today), np.int64), ages[stays]])[: self.max_values]
        return values, np.bincount(every).tolist()


@dataclasses.dataclass(frozen=True)
class Learned:
    """Learns vocabularies and numbers from the summary of the training rows, in place of TFT's analyzers.

    The summary needs one pass over the columns, whereas each TFT analyzer reads the log value by value.

    Args:
        spec: The description of the log.
        summary: The summary of the training rows.
        folder: An existing folder for the vocabulary files; TFT copies them when it saves the graph.
        former: The state of the previous transform to keep.
    """

    spec: LogSpec
    summary: LogSummary
    folder: pathlib.Path
    former: Former = Former()

    def write_vocabularies(self) -> Vocabularies:
        """Writes the vocabularies to files and returns their lookup tables for the graph."""
        values = {column: list(known.to_pylist()) for column, (known, _) in self._vocabularies.items()}
        return write_vocabularies(self.spec, values, self.folder)

    def ages(self) -> dict[str, list[int]]:
        """Returns by column how many values of the vocabulary have not been seen for 0, 1, 2, ... training runs."""
        return {column: ages for column, (_, ages) in self._vocabularies.items()}

    def write_start_vectors(self, path: pathlib.Path) -> None:
        """Writes the vectors that embeddings start from, if there are any."""
        write_start_vectors(path, self.spec, {column: values for column, (values, _) in self._vocabularies.items()})

    def numbers(self) -> dict[str, np.ndarray]:
        """Returns the numbers of each measured column's transform, float64 [numbers].

        For a column of times it is [1]: 1 if times of eight digits are YYYYMMDD, 0 if they are YYMMDDHH. For the label
        of a regression task it is [2]: `center` and `scale` of NumberTask. For lists with weights it is [2], as in
        `limits`.

        Raises:
            InputError: the training rows do not determine the form of eight digits, or have no label of a regression
                task.
        """
        features, former = self.spec.feature_by_column, self.former.numbers
        dates = {name: self.summary.eight_digits.get(name, EightDigits()) for name in self.spec.columns_of("time")}
        weighted = [name for name in self.spec.measured_columns if features[name].weight_separator]
        return (
            {name: np.array([float(digits.are_dates(name))]) for name, digits in dates.items()}
            | {
                name: former[name]
                if name in former
                else transform_of(features[name], self.spec).numbers(self.summary.numbers[name])
                for name in self.spec.measured_columns
                if name not in weighted
            }
            | {name: limits for name, limits in self.limits().items() if name in weighted}
            | {
                name: former[name] if name in former else _of_label(name, predicts, self.summary.numbers[name])
                for name, predicts in self.spec.data.number_columns.items()
            }
        )

    def limits(self) -> dict[str, np.ndarray]:
        """Returns the minimum and maximum to clip each measured column to, float64 [2]."""
        limits: dict[str, np.ndarray] = {}
        for name in self.spec.measured_columns:
            own = self.summary.numbers[name].limits
            former = self.former.limits.get(name, own)
            limits[name] = np.array([min(own[0], former[0]), max(own[1], former[1])])
        return limits

    @functools.cached_property
    def _vocabularies(self) -> dict[str, tuple[pa.Array, list[int]]]:
        """By column, the values of the vocabulary and the number of values of each age."""
        columns, features = self.spec.vocabulary_columns, self.spec.feature_by_column
        return {name: self._vocabulary(name, features[name]) for name in columns}

    def _vocabulary(self, column: str, feature: Any) -> tuple[pa.Array, list[int]]:
        values = transform_of(feature, self.spec).vocabulary(column, self.summary).cast(pa.binary())
        return self.former.grown(column, values)


def _of_label(column: str, predicts: str, measured: Measured) -> np.ndarray:
    """Returns `center` and `scale` of NumberTask, from the labels of the training rows."""
    if not measured.count:
        raise InputError(f"data.labels: {column} has no number in the training rows; a model needs some of them")
    if predicts == "count":
        return np.array([0.0, measured.mean or 1.0])
    return np.array([measured.mean, np.sqrt(measured.variance) or 1.0])


def write_numbers(path: pathlib.Path, numbers: Numbers) -> None:
    """Writes the result of `Learned.numbers` or `Learned.limits` to a JSON file."""
    write_json(path, {column: values.tolist() for column, values in numbers.items()})


def read_numbers(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the file that `write_numbers` wrote.

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
    """Returns the former numbers of the columns whose transform is unchanged."""
    ours, theirs = today.feature_by_column, former.feature_by_column
    both = (name for name in today.measured_columns if name in numbers)
    alike = [
        name
        for name in both
        if ours[name].meaning(name) == theirs[name].meaning(name)
        and today.derived.get(name) == former.derived.get(name)
    ]
    labels = today.data.number_columns.items() & former.data.number_columns.items()
    return {name: numbers[name] for name in [*alike, *(name for name, _ in labels if name in numbers)]}
