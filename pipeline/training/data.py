"""Packed files -> batches of packed tensors, for any backend."""

import functools
import glob
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from common.errors import InputError
from models.feature_map import FeatureMap
from pipeline.training.learner import Batch
from transforms.features.packed_files import DTYPES, PackedReader, Rows, label_means

if TYPE_CHECKING:
    import tensorflow as tf

BATCHES_AHEAD = 4
TEXT_STEP = 16  # so that there are few different lengths


def packed_batches(
    patterns: list[str],
    feature_map: FeatureMap,
    batch_size: int,
    shuffle_seed: int | None = None,
    skip: int = 0,
    take: int | None = None,
    by_length: bool = False,
) -> Iterable[Batch]:
    """Batches (packed tensors by name, label float32 [N, tasks]) as the backend likes them.

    The tensors are those of the feature map: ids int32 [N, S], dense float32 [N, D], tokens and segments int32 [N, T].
    They can be iterated again, in the same order.

    Args:
        patterns: Globs of packed files.
        feature_map: The description of the packed tensors.
        batch_size: Rows of a batch; the last one may have fewer.
        shuffle_seed: The same seed gives the same order; None: that of the log.
        skip, take: Batches left out at the start, and batches after them; None: all.
        by_length: On TensorFlow, shuffled batches are of texts of about the same length, and every batch is cut behind
            its longest text, at a multiple of TEXT_STEP. JAX would compile every length anew.

    Raises:
        InputError: no file matches, a file is damaged, or its rows are not as the feature map says.
    """
    on_tensorflow, text = keras.backend.backend() == "tensorflow", feature_map.text
    if not (by_length and on_tensorflow and text):
        reader = packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take)
        batches: Iterable[Batch] = packed_dataset(reader) if on_tensorflow else reader
        return batches
    length = functools.partial(_text_lengths, padding_id=text.padding_id)
    reader = packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take, length)
    cut: Iterable[Batch] = packed_dataset(reader).map(functools.partial(_cut_texts, padding_id=text.padding_id))
    return cut


def _text_lengths(rows: Rows, padding_id: int) -> np.ndarray:
    """How many tokens each row's text has, [N]."""
    lengths: np.ndarray = (rows["tokens"] != padding_id).sum(axis=1)
    return lengths


def _cut_texts(inputs: dict[str, Any], label: Any, padding_id: int) -> Batch:
    """Without the columns behind the longest text."""
    import tensorflow as tf

    longest = tf.reduce_max(tf.math.count_nonzero(tf.not_equal(inputs["tokens"], padding_id), axis=1))
    end = -(-longest // TEXT_STEP) * TEXT_STEP
    return {**inputs, **{name: inputs[name][:, :end] for name in ("tokens", "segments")}}, label


def packed_dataset(reader: PackedReader) -> "tf.data.Dataset":
    """The reader's batches as a dataset, which a strategy can distribute. A file's damage: see `input_errors`."""
    import tensorflow as tf

    specs = {name: tf.TensorSpec([None, width], DTYPES[name]) for name, width in reader.widths.items()}
    label = specs.pop("label")

    def windows() -> Iterator[Batch]:
        for rows in reader.windows():
            yield {name: rows[name] for name in specs}, rows["label"]

    # Python is asked for a window, not for every batch, and TensorFlow cuts it: with batches of 512 twice as fast.
    windowed = tf.data.Dataset.from_generator(windows, output_signature=(specs, label))
    options = tf.data.Options()
    # There is nothing to tune, and now and then the end of a dataset waits for the tuner to wake, which sleeps for
    # twice as long every time: an epoch of 1.1 seconds then takes 1.27 or 2.55.
    options.autotune.enabled = False
    return windowed.rebatch(reader.batch_size).prefetch(BATCHES_AHEAD).with_options(options)


def packed_reader(
    patterns: list[str],
    feature_map: FeatureMap,
    batch_size: int,
    shuffle_seed: int | None = None,
    skip: int = 0,
    take: int | None = None,
    length: Callable[[Rows], np.ndarray] | None = None,
) -> PackedReader:
    """`packed_batches` as numpy arrays; `length`: see PackedReader."""
    reader = PackedReader(_files(patterns), batch_size, shuffle_seed, skip, take, length)
    expected = {"ids": feature_map.total_slots, "dense": len(feature_map.dense), "label": len(feature_map.tasks)}
    if feature_map.text:
        expected |= dict.fromkeys(("tokens", "segments"), feature_map.text.length)
    if reader.widths != {name: width for name, width in expected.items() if width}:
        raise InputError(f"{reader.files[0]}: a row has {reader.widths}, not {expected}; transform the log again")
    return reader


def prediction_rows(feature_map: FeatureMap) -> int:
    """Rows of a batch of predictions; an encoder's states of a text take megabytes."""
    return 128 if feature_map.text else 8192


def count_rows(patterns: list[str]) -> int:
    """The rows of the files that match, which are not read for it; raises as `packed_batches`."""
    return PackedReader(_files(patterns), batch_size=1).rows


def base_rates(patterns: list[str]) -> np.ndarray:
    """The share of the rows that has each label, [tasks]; raises as `packed_batches`."""
    return label_means(PackedReader(_files(patterns), batch_size=1).files)


def input_errors(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches of a dataset; what is an InputError in a file is one here too: TensorFlow keeps only its text."""
    import tensorflow as tf

    try:
        yield from batches
    except tf.errors.UnknownError as error:
        if found := re.search(r"InputError: (.*)", str(error)):
            raise InputError(found[1]) from error
        raise


def _files(patterns: list[str]) -> list[pathlib.Path]:
    return sorted(pathlib.Path(name) for pattern in patterns for name in glob.glob(pattern))
