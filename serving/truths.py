"""Converts booleans to the form in which a model's training log writes them.

A CSV that pandas wrote has True and False, one of Spark true and false, and Parquet and JSON have booleans, which are 1
and 0 here. In another format, the same log would have values that the model does not know.
"""

import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.layout import GRAPH_ASSETS, Asset, asset_path
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.spec import LogSpec

WRITINGS = ((b"1", b"0"), (b"True", b"False"), (b"true", b"false"), (b"TRUE", b"FALSE"))
_NO_CHANGES: Mapping[bytes, bytes] = {}

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


class Truths:
    """Converts booleans to the form of a version's training log, in columns of a single value.

    A column has booleans if the model knows True and False, or true and false, or nothing but 1 and 0.

    Args:
        version: The version's folder.
        spec: The description of its log.
    """

    def __init__(self, version: pathlib.Path, spec: LogSpec) -> None:
        self._assets = version / GRAPH_ASSETS
        self._spec = spec
        self._likely = dict(_likely(version, spec))
        self._vocabularies: dict[str, pa.Array] | None = None

    def of_rows(self, rows: Rows) -> Rows:
        """Returns rows with booleans in the log's form; `rows` itself if there is nothing to change.

        Args:
            rows: The columns from the log's reader.
        """
        for column in self._likely.keys() & set(rows.schema.names):
            texts = self.of_array(column, rows[column])
            if texts is not rows[column]:
                rows = rows.set_column(rows.schema.get_field_index(column), column, texts)
        return rows

    def of_array(self, column: str, values: pa.Array) -> pa.Array:
        """Returns a column's values with booleans in the log's form; `values` itself if there is nothing to change."""
        known = self._likely.get(column)
        if known is None or not pa.types.is_binary(values.type):
            return values
        if pc.any(pc.is_in(values, value_set=pa.array(list(known)))).as_py() and (changes := self._changes(column)):
            return pa.array([changes.get(value, value) for value in values.to_pylist()], pa.binary())
        return values

    def of_texts(self, column: str, texts: Sequence[bytes]) -> Sequence[bytes]:
        """Returns a column's values with booleans in the log's form; `texts` itself if there is nothing to change."""
        if self._likely.get(column, _NO_CHANGES).keys().isdisjoint(texts) or not (changes := self._changes(column)):
            return texts
        return [changes.get(text, text) for text in texts]

    def _changes(self, column: str) -> Mapping[bytes, bytes]:
        """Returns the log's own word for each other one; none if its vocabulary has booleans in several ways."""
        if self._vocabularies is None:
            try:
                self._vocabularies = read_vocabularies(self._assets, self._spec)
            except OSError:  # another exporter's version
                self._vocabularies = {}
        known = set(self._vocabularies[column].to_pylist()) if column in self._vocabularies else set()
        changes = self._likely[column]
        return changes if set(_writing(known)) == set(changes.values()) else _NO_CHANGES


def _likely(version: pathlib.Path, spec: LogSpec) -> Iterator[tuple[str, Mapping[bytes, bytes]]]:
    """Yields the columns that have booleans in a few rows of the log, with the changes of the other words."""
    single = set(spec.vocabulary_columns) - {*spec.separators, *spec.weight_separators}
    for column, values in rows_of_log(version).items():
        if column in single and (own := _writing(set(values.tolist()) - {b""})):
            others = (words for words in WRITINGS if words != own)
            yield column, {word: of_log for words in others for word, of_log in zip(words, own, strict=True)}


def _writing(texts: Collection[bytes]) -> tuple[bytes, ...]:
    """Returns how texts write booleans; () if in several ways or not at all. 1 and 0 count if no value differs."""
    found = [words for words in WRITINGS if not set(words).isdisjoint(texts)]
    if len(found) != 1 or (found[0] == WRITINGS[0] and not set(texts) <= set(WRITINGS[0])):
        return ()
    return found[0]


def rows_of_log(version: pathlib.Path) -> Mapping[str, npt.NDArray[np.generic]]:
    """Returns the columns of a few rows of the log that a version was trained on; {} if the version has none."""
    try:
        return dict(GoldenRows.load(asset_path(version, Asset.GOLDEN)).raw)
    except (OSError, KeyError, ValueError):
        return {}
