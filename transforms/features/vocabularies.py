"""The vocabularies of a log's columns: their files, and look-ups of values in the transform graph.

With few columns, each vocabulary has its own file and lookup table. Each table adds 20 to 40 ms whenever the graph is
traced, saved or loaded, about a dozen times per run. With many columns, small vocabularies therefore share one table,
with keys that consist of the column's number and the value. For Criteo's 26 columns, a look-up in the shared table
takes a fifth longer for 1,000 rows, a fifth less for 100 rows, and the same time for one row. A large vocabulary keeps
its own table, because each table is filled by a single core.

A column with a line break in a value has its own file (see `vocabulary_files`) and table. The graph escapes the values
that it looks up in this table only.
"""

import pathlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from ctrpipe.transforms.features.vocabulary_files import (
    END,
    ESCAPED,
    ESCAPES,
    SHARED,
    column_numbers,
    escape,
    read_vocabularies,
    vocabulary_name,
    write_lines,
)
from ctrpipe.transforms.log.spec import LogSpec

MOST_TABLES = 8  # with more vocabularies, the small ones share a table
LARGE = 1 << 16  # a vocabulary of at least this many values has its own table


def write_vocabularies(spec: LogSpec, values: Mapping[str, Sequence[bytes]], folder: pathlib.Path) -> "Vocabularies":
    """Writes vocabularies to files, one value per line in the order of their ids.

    Args:
        spec: The description of the log.
        values: The vocabulary of each column.
        folder: An existing folder; TFT copies the files when it saves the graph.
    """
    numbers = column_numbers(spec)
    # An empty vocabulary has its own file: a column without a file or values in the shared file is an error.
    escaped = frozenset(column for column, known in values.items() if any(map(_has_line_break, known)))
    small = {
        column: number
        for column, number in numbers.items()
        if 0 < len(values[column]) < LARGE and column not in escaped
    }
    sharing = small if len(numbers) > MOST_TABLES else {}
    files: dict[str, str] = {}
    for column in values.keys() - sharing.keys():
        name, lines = vocabulary_name(column), values[column]
        if column in escaped:
            name, lines = f"{ESCAPED}{name}", [escape(value) for value in lines]
        files[column] = write_lines(folder / name, lines)
    shared = None
    if sharing:
        lines = [f"{number}{END}".encode() + value for column, number in sharing.items() for value in values[column]]
        shared = write_lines(folder / SHARED, lines)
    sizes = {column: len(known) for column, known in values.items()}
    return Vocabularies(sizes, files, sharing, shared, escaped, folder)


def _has_line_break(value: bytes) -> bool:
    return b"\n" in value or b"\r" in value


def vocabulary_sizes(transform: tft.TFTransformOutput, spec: LogSpec) -> dict[str, int]:
    """Returns the vocabulary sizes of a finished transform by column; a text's under its first column."""
    assets = pathlib.Path(transform.transform_savedmodel_dir) / "assets"
    return {column: len(values) for column, values in read_vocabularies(assets, spec).items()}


class Vocabularies:
    """Looks up values in a graph that is being traced.

    Args:
        sizes: The number of values of each column's vocabulary.
        files: The file of each column that has its own table.
        sharing: Maps the columns of the shared table, in the order of its lines, to their number in its keys.
        shared: The shared table's file; None without a shared table.
        escaped: The columns whose file has escapes.
        folder: The folder of the files, for further ones.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        files: dict[str, str],
        sharing: Mapping[str, int],
        shared: str | None,
        escaped: Collection[str] = (),
        folder: pathlib.Path = pathlib.Path(),
    ):
        self.sizes = sizes
        self._folder = folder
        self._files = files
        self._escaped = escaped
        self._numbers = sharing
        self._starts = dict(zip(sharing, np.cumsum([0, *(sizes[column] for column in sharing)]), strict=False))
        self._shared = shared
        self._table: tf.lookup.StaticHashTable | None = None

    def places(self, columns: Sequence[str], values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the indices of the columns' values, [N] each, in their vocabularies; -1 if absent. int64 [N, C]."""
        value = dict(zip(columns, values, strict=True))
        places = {column: self.places_of(column, value[column]) for column in columns if column not in self._numbers}
        if sharing := [column for column in columns if column in self._numbers]:
            together = self._shared_places(sharing, tf.stack([value[column] for column in sharing], axis=1))
            if not places:
                return together
            places |= zip(sharing, tf.unstack(together, axis=1), strict=True)
        return tf.stack([places[column] for column in columns], axis=1)

    def places_of(self, column: str, values: tf.Tensor) -> tf.Tensor:
        """Returns the indices of one column's values, [N] or [N, slots], in its vocabulary; -1 if absent. int64."""
        if column in self._numbers:
            return self._shared_places([column], values)
        if column in self._escaped:
            for text, written in ESCAPES:
                # A backslash is written as two in an expression, and in what replaces it.
                pattern, rewriting = (part.replace(b"\\", b"\\\\") for part in (text, written))
                values = tf.strings.regex_replace(values, pattern, rewriting)
        return tft.apply_vocabulary(values, self._files[column], default_value=-1)

    def places_among(self, name: str, keys: Sequence[bytes], values: tf.Tensor) -> tf.Tensor:
        """Returns the indices of values, [N], among keys that are not a vocabulary; -1 if absent. int64 [N].

        Args:
            name: The name of the file that holds the keys.
            keys: Distinct keys without line breaks, because a file has one key per line.
            values: The values.
        """
        file = write_lines(self._folder / vocabulary_name(name), keys)
        return tft.apply_vocabulary(values, file, default_value=-1)

    def _shared_places(self, columns: Sequence[str], values: tf.Tensor) -> tf.Tensor:
        keys = tf.raw_ops.Add(x=tf.constant([f"{self._numbers[column]}{END}" for column in columns]), y=values)
        lines = self._shared_table().lookup(keys)
        return tf.where(lines < 0, tf.constant(-1, tf.int64), lines - [self._starts[column] for column in columns])

    def _shared_table(self) -> tf.lookup.StaticHashTable:
        if self._table is None:
            # Outside the traced function, as in TFT: calls must not fill the table again.
            with tf.init_scope():
                lines = tf.lookup.TextFileInitializer(
                    self._shared,
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                )
                self._table = tf.lookup.StaticHashTable(lines, -1)
        return self._table
