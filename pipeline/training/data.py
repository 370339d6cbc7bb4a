"""Packed files -> batches of packed tensors, for any backend."""

import glob
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import keras

from models.feature_map import FeatureMap
from pipeline.training.learner import Batch
from transforms.errors import InputError
from transforms.packed import DTYPES, PackedReader

if TYPE_CHECKING:
    import tensorflow as tf

BATCHES_AHEAD = 4


def packed_batches(
    patterns: list[str],
    feature_map: FeatureMap,
    batch_size: int,
    shuffle_seed: int | None = None,
    skip: int = 0,
    take: int | None = None,
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

    Raises:
        InputError: no file matches, a file is damaged, or its rows are not as the feature map says.
    """
    reader = packed_reader(patterns, feature_map, batch_size, shuffle_seed, skip, take)
    return packed_dataset(reader) if keras.backend.backend() == "tensorflow" else reader


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
) -> PackedReader:
    """`packed_batches` as numpy arrays."""
    reader = PackedReader(_files(patterns), batch_size, shuffle_seed, skip, take)
    expected = {"ids": feature_map.total_slots, "dense": len(feature_map.dense), "label": len(feature_map.tasks)}
    if feature_map.text:
        expected |= dict.fromkeys(("tokens", "segments"), feature_map.text.length)
    if reader.widths != {name: width for name, width in expected.items() if width}:
        raise InputError(f"{reader.files[0]}: a row has {reader.widths}, not {expected}; transform the log again")
    return reader


def count_rows(patterns: list[str]) -> int:
    """The rows of the files that match, which are not read for it; raises as `packed_batches`."""
    return PackedReader(_files(patterns), batch_size=1).rows


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
