"""Writes the items' vectors into a version with towers, as an exact index, and answers the rows of a log by it."""

import dataclasses
import pathlib
import time
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from common.errors import InputError, one_line
from common.files import atomic_folder, atomic_path
from models.feature_map import FeatureMap
from pipeline.explain.source import good_rows, split_files
from pipeline.trained_model import TrainedModel
from serving.assets import read_feature_map, read_log_spec
from serving.check import check_servable
from serving.export import ITEM_VECTORS, VECTORS
from serving.layout import newest_version
from serving.loader import Servable
from serving.retrieval import ITEMS, RETRIEVE, SCORES, Names, Vectors, add_index
from serving.scoring.rows import TRANSFORM, raw_batches
from transforms.log.payload import read_payload
from transforms.log.readers import LogBatch, LogReader, find_files
from transforms.log.spec import Categorical, LogSpec

ITEM_ROWS = 1 << 12  # of one call of the item's tower
QUERY_ROWS = 64  # of one call of the index, which has a product for each of its items
ANSWERS = pa.schema(
    {"file": pa.string(), "line": pa.int64(), ITEMS: pa.list_(pa.binary()), SCORES: pa.list_(pa.float32())}
)


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The items of a log, each once.

    Attributes:
        names: The item's values, bytes [M].
        vectors: Their vectors, float32 [M, vector_dim].
        rows: Rows of the log.
        unnamed: Rows without an item.
        unknown: Items that the model's vocabulary lacks; they are left out, because all of them have one embedding.
    """

    names: Names
    vectors: Vectors
    rows: int
    unnamed: int
    unknown: int


@dataclasses.dataclass(frozen=True)
class Answered:
    """How many rows of a log were answered, how many were malformed, and how long the index took for those answered."""

    rows: int
    malformed: int
    seconds: float


def index_items(
    source: TrainedModel, items: Sequence[str], item: str | None, top: int, output: pathlib.Path
) -> tuple[pathlib.Path, Catalogue]:
    """Writes the model as a new version of `output` that also has an index; returns the version and what it holds.

    Args:
        source: The model.
        items: A log with the item's columns, the other ones may be absent; none for the run's training rows. Of rows
            with the same item the last one counts.
        item: The column of the items' names; None for the spec's `item_column`.
        top: How many items an answer has.
        output: The folder of versions.

    Raises:
        InputError: the model has no towers, a column is missing, no item is known, or the version cannot be written.
    """
    spec = read_log_spec(source.version)
    servable = _loaded(source.version)
    try:
        if ITEM_VECTORS not in servable.signatures:
            raise InputError(f"{source.version}: the model has no towers; train model.name: two_tower or starspace")
        column = _item_column(spec, item)
        found = _catalogue(servable, spec, column, _item_rows(source, items, spec))
    finally:
        servable.close()
    version = _next_version(output, source.version)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with atomic_folder(version) as unfinished:
            add_index(source.version, found.names, found.vectors, min(top, len(found.names)), unfinished)
            check_servable(unfinished)
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror}); choose another --output") from error
    return version, found


def answer(version: pathlib.Path, queries: Sequence[str], output: pathlib.Path) -> Answered:
    """Writes a Parquet file with a row for each good line: file, line (from 1), items and scores, the best first.

    Args:
        version: A version with an index.
        queries: A log with the user's columns; the item's may be absent.
        output: The file to write.

    Raises:
        InputError: the version has no index, a column is missing, or too many rows are malformed.
    """
    spec = read_log_spec(version)
    servable = _loaded(version)
    if RETRIEVE not in servable.signatures:
        servable.close()
        raise InputError(f"{version}: the version has no index; make one with --items and --output")
    of_user = [name for name in spec.feature_columns if name not in spec.item_columns]
    reader = LogReader(_only(spec, of_user), labels=False)
    good, malformed, seconds = 0, 0, 0.0
    try:
        with atomic_path(output) as unfinished, pa.parquet.ParquetWriter(unfinished, ANSWERS) as writer:
            for path in find_files(list(queries)):
                for batch in reader.read(path):
                    good, malformed = good + batch.rows.num_rows, malformed + len(batch.rejects)
                    began = time.perf_counter()
                    found = _answers(servable, batch)
                    seconds += time.perf_counter() - began
                    writer.write_table(found)
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror}); choose another --answers") from error
    finally:
        servable.close()
    return Answered(good, malformed, seconds)


def _answers(servable: Servable, batch: LogBatch) -> pa.Table:
    found = [servable.run(RETRIEVE, inputs) for inputs in raw_batches(servable, batch.rows, QUERY_ROWS, RETRIEVE)]
    columns = {
        "file": [batch.path] * len(batch.lines),
        "line": batch.lines,
        ITEMS: [row for part in found for row in part[ITEMS].tolist()],
        SCORES: [row for part in found for row in part[SCORES]],
    }
    return pa.table(columns, ANSWERS)


def _loaded(version: pathlib.Path) -> Servable:
    try:
        return Servable(version)
    except Exception as error:
        raise InputError(f"{version}: the model cannot be loaded: {one_line(error, 300)}") from error


def _next_version(output: pathlib.Path, source: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the version after the newest one; of the first one, the number that the source has."""
    if newest := newest_version(output):
        return output / str(int(newest.name) + 1)
    return output / (source.name if source.name.isdecimal() else "1")


def _item_column(spec: LogSpec, item: str | None) -> str:
    """Returns the column of the items' names."""
    column = item or spec.item_column
    single = [name for name in spec.item_columns if isinstance(spec.feature_by_column[name], Categorical)]
    if column not in single:
        raise InputError(f"--item {column}: no column of the item's of kind categorical; they are {', '.join(single)}")
    return column


def _only(spec: LogSpec, columns: Sequence[str]) -> LogSpec:
    """Returns the description of a log of which some feature columns are read, and no labels."""
    parts = [
        feature.model_copy(update={"columns": [name for name in feature.columns if name in columns]})
        for feature in spec.features
    ]
    return spec.model_copy(update={"features": [feature for feature in parts if feature.columns]})


def _item_rows(source: TrainedModel, items: Sequence[str], spec: LogSpec) -> Iterator[pa.RecordBatch]:
    """Yields the item's columns of a log's good rows, or of the run's training rows."""
    if items:
        yield from good_rows(find_files(list(items)), _only(spec, spec.item_columns), labels=False)
    elif source.run is None:
        columns = ", ".join(spec.item_columns)
        raise InputError(f"{source.version}: a version has no rows; give --items, a log with {columns}")
    else:
        yield from read_payload(split_files(source.run, "train"), spec.item_columns)


def _catalogue(servable: Servable, spec: LogSpec, column: str, batches: Iterator[pa.RecordBatch]) -> Catalogue:
    """Returns the items of rows, which have the item's columns."""
    rows = pa.Table.from_batches(batches).select(spec.item_columns)
    named = rows.filter(rows[column].is_valid())
    codes = named[column].combine_chunks().dictionary_encode()
    last = np.zeros(len(codes.dictionary), np.int64)
    last[codes.indices.to_numpy()] = np.arange(named.num_rows)  # of rows with the same item, the last one
    names, vectors, unknown = [], [], 0
    for batch in named.take(last).combine_chunks().to_batches(ITEM_ROWS):
        [packed] = raw_batches(servable, batch, ITEM_ROWS, TRANSFORM)
        known = _is_known(servable.run(TRANSFORM, packed)["ids"], column, spec, read_feature_map(servable.path))
        [inputs] = raw_batches(servable, batch, ITEM_ROWS, ITEM_VECTORS)
        vectors.append(servable.run(ITEM_VECTORS, inputs)[VECTORS][known])
        names.append(inputs[column][known])
        unknown += int((~known).sum())
    if not sum(len(part) for part in names):
        raise InputError(f"none of {unknown:,} items is in the model's vocabulary of {column}; are these its items?")
    return Catalogue(np.concatenate(names), np.concatenate(vectors), rows.num_rows, rows.num_rows - len(codes), unknown)


def _is_known(ids: np.ndarray, column: str, spec: LogSpec, feature_map: FeatureMap) -> npt.NDArray[np.bool]:
    """Returns whether each row's value of a column has an id of its own, bool [N]; ids of a hash always count as such.

    Args:
        ids: Packed ids, int32 [N, slots].
        column: A categorical column.
        spec: The description of the log.
        feature_map: The description of the packed ids.
    """
    field = next(field for field in feature_map.fields if field.name == column)
    feature = spec.feature_by_column[column]
    assert isinstance(feature, Categorical)
    end = field.offset + field.size - (feature.oov_buckets - 1)
    own = ids[:, feature_map.slots_of(column).start]
    known: npt.NDArray[np.bool] = (own > field.missing_id) & (own < end)
    return known
