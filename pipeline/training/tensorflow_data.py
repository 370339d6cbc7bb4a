"""Packed batches as TensorFlow's datasets."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from common.errors import InputError
from pipeline.training.learner import Batch
from transforms.features.packed_files import DTYPES, PackedReader

BATCHES_AHEAD = 4
TEXT_STEP = 16  # so that there are few different lengths


def packed_dataset(reader: PackedReader) -> tf.data.Dataset:
    """Returns the reader's batches as a dataset, which a strategy can distribute; see `input_errors`."""
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


def cut_texts(inputs: dict[str, Any], label: Any, padding_id: int) -> Batch:
    """Returns a batch without the columns behind its longest text."""
    longest = tf.reduce_max(tf.math.count_nonzero(tf.not_equal(inputs["tokens"], padding_id), axis=1))
    end = -(-longest // TEXT_STEP) * TEXT_STEP
    return {**inputs, **{name: inputs[name][:, :end] for name in ("tokens", "segments")}}, label


def input_errors(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the batches of a dataset.

    Raises:
        InputError: a file is damaged; TensorFlow keeps only the text of the error that the reader raised.
    """
    try:
        yield from batches
    except tf.errors.UnknownError as error:
        if mistake := re.search(r"InputError: (.*)", str(error)):
            raise InputError(mistake[1]) from error
        raise
