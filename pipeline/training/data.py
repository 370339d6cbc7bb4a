"""Batches of packed tensors from packed files, for any backend."""

import functools
import glob
import pathlib
from collections.abc import Callable, Iterable

import keras
import numpy as np

from common.errors import InputError
from models.feature_map import FeatureMap
from pipeline.training.learner import Batch
from transforms.features.packed_files import PackedReader, Rows, label_means


def packed_batches(
    patterns: list[str],
    feature_map: FeatureMap,
    batch_size: int,
    shuffle_seed: int | None = None,
    skip: int = 0,
    take: int | None = None,
    by_length: bool = False,
) -> Iterable[Batch]:
    """Returns batches: packed tensors by name, and labels float32 [N, tasks].

    On TensorFlow they are a tf.data.Dataset, on other backends a PackedReader of numpy arrays. The tensors are those of
    the feature map: ids int32 [N, slots], dense float32 [N, dense features], tokens and segments int32 [N, length],
    numbers int32 [N, 2 * numbers].
    Iterating again gives the same batches in the same order.

    Args:
        patterns: Globs of packed files.
        feature_map: The description of the packed tensors.
        batch_size: Rows of a batch; the last one may have fewer.
        shuffle_seed: The same seed gives the same order; None for the order of the log.
        skip: The number of batches left out at the start.
        take: The number of batches after them; None for all.
        by_length: On TensorFlow, shuffled batches hold texts of about the same length, and every batch ends at a
            multiple of tensorflow_data.TEXT_STEP tokens behind its longest text. JAX ignores it, because it would
            compile the step again for every length.

    Raises:
        InputError: no file matches, a file is damaged, or its rows do not fit the feature map.
    """
    if keras.backend.backend() != "tensorflow":
        return packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take)
    # A process that trains on JAX has no TensorFlow: see worker.py for what that saves.
    from pipeline.training.tensorflow_data import cut_texts, packed_dataset

    text = feature_map.text
    if not (by_length and text):
        batches: Iterable[Batch] = packed_dataset(
            packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take)
        )
        return batches
    length = functools.partial(_text_lengths, padding_id=text.padding_id)
    reader = packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take, length)
    cut: Iterable[Batch] = packed_dataset(reader).map(functools.partial(cut_texts, padding_id=text.padding_id))
    return cut


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
) -> PackedReader:
    """Returns the batches of `packed_batches` as numpy arrays; see PackedReader for `length`."""
    reader = PackedReader(_files(patterns), batch_size, shuffle_seed, skip, take, length)
    expected = {"ids": feature_map.total_slots, "dense": len(feature_map.dense), "label": len(feature_map.tasks)}
    expected["numbers"] = 2 * len(feature_map.numbers)
    if feature_map.text:
        expected |= dict.fromkeys(("tokens", "segments"), feature_map.text.length)
    if reader.widths != {name: width for name, width in expected.items() if width}:
        raise InputError(f"{reader.files[0]}: a row has {reader.widths}, not {expected}; transform the log again")
    return reader


def prediction_rows(feature_map: FeatureMap) -> int:
    """Returns the rows of a batch of predictions: fewer with a text, whose encoder takes megabytes of states a row."""
    return 128 if feature_map.text else 8192


def count_rows(patterns: list[str]) -> int:
    """Returns the number of rows in the files, from their metadata. Raises InputError as `packed_batches` does."""
    return PackedReader(_files(patterns), batch_size=1).rows


def even_batch(rows: int, batch_size: int) -> int:
    """Returns the rows of a batch that deal an epoch's rows evenly to as few batches of at most `batch_size` as can be.

    Of 42,000 rows in batches of 1,024, the last would have 16, each of which would weigh as much as 64 of the others in
    Adam's means: on 60,000 rows of Criteo that cost a logistic regression 0.0016 AUC.
    """
    return -(-rows // -(-rows // batch_size))


def base_rates(patterns: list[str]) -> np.ndarray:
    """Returns the mean of each task's label, [tasks]. Raises InputError as `packed_batches` does."""
    return label_means(PackedReader(_files(patterns), batch_size=1).files)


def _files(patterns: list[str]) -> list[pathlib.Path]:
    return sorted(pathlib.Path(name) for pattern in patterns for name in glob.glob(pattern))
