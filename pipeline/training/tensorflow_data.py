"""Packed batches as tf.data datasets."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from common.errors import InputError
from pipeline.training.learner import Batch
from transforms.features.packed_files import DTYPES, PackedReader

BATCHES_AHEAD = 4
TEXT_STEP = 16  # tokens; a multiple of it gives few different shapes


def packed_dataset(reader: PackedReader) -> tf.data.Dataset:
    """Returns the reader's batches as a dataset, which a tf.distribute strategy can take.

    Iterate it through `input_errors`, which raises the reader's InputError.
    """
    specs = {name: tf.TensorSpec([None, width], DTYPES[name]) for name, width in reader.widths.items()}
    label = specs.pop("label")

    def windows() -> Iterator[Batch]:
        for rows in reader.windows():
            yield {name: rows[name] for name in specs}, rows["label"]

    # Windows of many batches, which TensorFlow cuts: with batches of 512 twice as fast as a call of Python for each.
    windowed = tf.data.Dataset.from_generator(windows, output_signature=(specs, label))
    options = tf.data.Options()
    # The dataset has nothing to tune, and its end sometimes waits for the tuner's thread, which sleeps twice as long
    # each time: an epoch of 1.1 seconds then takes 1.27 or 2.55.
    options.autotune.enabled = False
    return windowed.rebatch(reader.batch_size).prefetch(BATCHES_AHEAD).with_options(options)


def cut_texts(inputs: dict[str, Any], label: Any, padding_id: int) -> Batch:
    """Returns a batch without the padding behind its longest text, up to a multiple of TEXT_STEP tokens."""
    longest = tf.reduce_max(tf.math.count_nonzero(tf.not_equal(inputs["tokens"], padding_id), axis=1))
    end = -(-longest // TEXT_STEP) * TEXT_STEP
    return {**inputs, **{name: inputs[name][:, :end] for name in ("tokens", "segments")}}, label


def input_errors(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the batches of a dataset.

    Raises:
        InputError: a file is damaged. It is made again from the message of TensorFlow's UnknownError, which is all that
            TensorFlow keeps of an error in a generator.
    """
    try:
        yield from batches
    except tf.errors.UnknownError as error:
        if mistake := re.search(r"InputError: (.*)", str(error)):
            raise InputError(mistake[1]) from error
        raise
