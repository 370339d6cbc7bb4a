"""Batches of packed tensors from packed files, for any backend."""

import dataclasses
import functools
import glob
import pathlib
from collections.abc import Callable, Iterable, Iterator

import keras
import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import by_number
from ctrpipe.models.base.feature_map import GROUP, SLOT_WEIGHTS, WEIGHT, FeatureMap
from ctrpipe.pipeline.training.learner import Batch
from ctrpipe.transforms.features.packed_files import (
    PackedReader,
    Rows,
    label_means,
    row_groups,
    row_labels,
    row_weights,
    rows_out_of_order,
)

TEXT_STEP = 16  # tokens; lengths are rounded up to a multiple, which keeps the number of shapes small


def packed_batches(
    patterns: list[str],
    feature_map: FeatureMap,
    batch_size: int,
    shuffle_seed: int | None = None,
    skip: int = 0,
    take: int | None = None,
    by_length: bool = False,
    weighted: bool = False,
    grouped: bool = False,
) -> Iterable[Batch]:
    """Returns batches: packed tensors by name, and labels float32 [N, tasks].

    The tensors are numpy arrays and match the feature map: ids int32 [N, slots], dense float32 [N, dense features],
    tokens and segments int32 [N, length], numbers int32 [N, 2 * numbers]. Every iteration gives the same batches in the
    same order. A tf.data.Dataset would be slower to read, and take 60 ms to build for every part of an epoch.

    Args:
        patterns: Globs of packed files.
        feature_map: The description of the packed tensors.
        batch_size: Rows per batch; the last batch may have fewer.
        shuffle_seed: The same seed gives the same order; None keeps the order of the log.
        skip: Number of batches to skip at the start.
        take: Number of batches to return after them; None for all.
        by_length: On TensorFlow, put texts of similar length into the same shuffled batch, and cut every batch at the
            first multiple of TEXT_STEP tokens that fits its longest text. JAX ignores this option, because it would
            compile the step again for every length.
        weighted: Whether inputs include the row `weight`, float32 [N, 1], if the log has weights.
        grouped: Whether inputs include the row's `group`, int32 [N, 2], and the rows of a group are consecutive.

    Raises:
        InputError: no file matches, a file is damaged, or its rows do not fit the feature map.
    """
    text = feature_map.text
    if not (by_length and text) or keras.backend.backend() != "tensorflow":
        return packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take, None, weighted, grouped)
    length = functools.partial(_text_lengths, padding_id=text.padding_id)
    reader = packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take, length, weighted, grouped)
    return _CutTexts(reader, length)


@dataclasses.dataclass(frozen=True)
class _CutTexts:
    """Batches whose texts are cut at the first multiple of TEXT_STEP tokens that fits the longest one."""

    reader: PackedReader
    length: Callable[[Rows], np.ndarray]

    def __iter__(self) -> Iterator[Batch]:
        for inputs, label in self.reader:
            end = -(-int(self.length(inputs).max()) // TEXT_STEP) * TEXT_STEP
            yield {**inputs, **{name: inputs[name][:, :end] for name in ("tokens", "segments")}}, label


def _text_lengths(rows: Rows, padding_id: int) -> np.ndarray:
    """Returns the number of tokens of each row's text, [N]."""
    lengths: np.ndarray = (rows["tokens"] != padding_id).sum(axis=1)
    return lengths


def packed_reader(
    patterns: list[str],
    feature_map: FeatureMap,
    batch_size: int,
    shuffle_seed: int | None = None,
    skip: int = 0,
    take: int | None = None,
    length: Callable[[Rows], np.ndarray] | None = None,
    weighted: bool = False,
    grouped: bool = False,
) -> PackedReader:
    """Returns the reader behind `packed_batches`; see PackedReader for `length`."""
    reader = PackedReader(_files(patterns), batch_size, shuffle_seed, skip, take, length, weighted, grouped)
    expected = {"ids": feature_map.total_slots, "dense": feature_map.dense_width, "label": len(feature_map.tasks)}
    expected["numbers"] = 2 * len(feature_map.numbers)
    expected[SLOT_WEIGHTS] = len(feature_map.weighted_slots)
    if feature_map.text:
        expected |= dict.fromkeys(("tokens", "segments"), feature_map.text.length)
    widths = {name: width for name, width in reader.widths.items() if name not in (WEIGHT, GROUP)}
    if widths != {name: width for name, width in expected.items() if width}:
        raise InputError(f"{reader.files[0]}: a row has {widths}, not {expected}; transform the log again")
    return reader


def prediction_rows(feature_map: FeatureMap) -> int:
    """Returns the batch size for predictions: smaller for texts, whose encoder states take megabytes per row."""
    return 128 if feature_map.text else 8192


def count_rows(patterns: list[str]) -> int:
    """Returns the number of rows in the files, from their metadata.

    Raises InputError as `packed_batches` does.
    """
    return PackedReader(_files(patterns), batch_size=1).rows


def even_batch(rows: int, batch_size: int) -> int:
    """Returns the batch size that splits an epoch evenly into the fewest batches of at most `batch_size` rows.

    With 42,000 rows in batches of 1,024, the last batch would have 16 rows. Each of them would weigh as much as 64
    other rows in Adam's moments. On 60,000 rows of Criteo this cost a logistic regression 0.0016 AUC.
    """
    return -(-rows // -(-rows // batch_size))


def base_rates(patterns: list[str]) -> np.ndarray:
    """Returns the weighted mean of each task's label, [tasks]. Raises InputError as `packed_batches` does."""
    return label_means(PackedReader(_files(patterns), batch_size=1).files)


def out_of_order(patterns: list[str]) -> np.ndarray:
    """Counts, for each task after the first, the rows whose label exceeds the label of the preceding task.

    Raises InputError as `packed_batches` does.
    """
    return rows_out_of_order(PackedReader(_files(patterns), batch_size=1).files)


def check_order(name: str, tasks: tuple[str, ...], patterns: list[str]) -> None:
    """Raises InputError if a row of a funnel model is positive for a task but not for the preceding task.

    Args:
        name: The name of the model.
        tasks: The names of the tasks, in the order of the labels.
        patterns: Globs of packed files.
    """
    counts = out_of_order(patterns)
    for before, task, count in zip(tasks, tasks[1:], counts, strict=False):
        if count:
            raise InputError(
                f"{name}: {count:,} training and validation rows have {task} without {before}; name the labels in the "
                "order in which they follow one another, and leave such rows out of the log"
            )


def weights_of(patterns: list[str]) -> np.ndarray | None:
    """Returns the row weights in the order of the log, [N], or None if there are none.

    Raises InputError as `packed_batches` does.
    """
    return row_weights(PackedReader(_files(patterns), batch_size=1).files)


def groups_of(patterns: list[str]) -> np.ndarray | None:
    """Returns the groups' numbers in the order of the log, int64 [N], or None if there are none.

    Raises InputError as `packed_batches` does.
    """
    return row_groups(PackedReader(_files(patterns), batch_size=1).files)


def labels_of(patterns: list[str]) -> np.ndarray:
    """Returns the labels in the order of the log, float32 [N, tasks]. Raises InputError as `packed_batches` does."""
    return row_labels(PackedReader(_files(patterns), batch_size=1).files)


def _files(patterns: list[str]) -> list[pathlib.Path]:
    return sorted((pathlib.Path(name) for pattern in patterns for name in glob.glob(pattern)), key=by_number)
