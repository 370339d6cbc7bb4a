"""Adds an index of item vectors to a version of a two-tower model, and retrieves items for the rows of a log."""

import dataclasses
import hashlib
import json
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_folder, atomic_path, write_json
from ctrpipe.common.near import did_you_mean
from ctrpipe.pipeline.retrieval.cells import Recall, default_cells, divided
from ctrpipe.pipeline.run.model_rows import good_rows, split_files
from ctrpipe.pipeline.run.trained_model import TrainedModel, find_model
from ctrpipe.serving.assets import GoldenRows, read_feature_map, read_log_spec
from ctrpipe.serving.export.export import ITEM_VECTORS, USER_VECTORS, VECTORS
from ctrpipe.serving.export.retrieval import APPROXIMATE, ITEMS, RETRIEVE, SCORES, Cells, Names, Vectors, add_index
from ctrpipe.serving.layout import ASSETS, Asset, asset_path, newest_version
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.logged_values import own_values
from ctrpipe.serving.rows import TRANSFORM, raw_batches
from ctrpipe.serving.server.check import check_servable
from ctrpipe.transforms.log.batches import LogBatch
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.payload import read_payload
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.row_sample import RowSample
from ctrpipe.transforms.log.spec import LogSpec

ITEM_ROWS = 1 << 12  # per call of the item tower
QUERY_ROWS = 64  # per call of the index, which scores all of its items for each row
USERS = 1000  # maximum number of users to measure an approximate index's recall on
SIGNATURES = {"exact": RETRIEVE, "approximate": APPROXIMATE}
_OF_AN_INDEX = {Asset.ITEM_INDEX, Asset.WARMUP, Asset.CHECKSUMS}  # the assets that an index changes
ANSWERS = pa.schema(
    {"file": pa.string(), "line": pa.int64(), ITEMS: pa.list_(pa.binary()), SCORES: pa.list_(pa.float32())}
)


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The items of a log, each once.

    Attributes:
        names: The items' values, bytes [M].
        vectors: Their vectors, float32 [M, vector_dim].
        rows: Number of rows of the log.
        unnamed: Number of rows without an item.
        unknown: Number of out-of-vocabulary items. They are left out, because they all share one embedding.
    """

    names: Names
    vectors: Vectors
    rows: int
    unnamed: int
    unknown: int


@dataclasses.dataclass(frozen=True)
class Approximate:
    """Settings of an approximate index.

    Attributes:
        recall: The share of the exact results to find.
        cells: Number of cells. None for 4 √items.
    """

    recall: float = 0.95
    cells: int | None = None


@dataclasses.dataclass(frozen=True)
class Answered:
    """The numbers of answered and of malformed rows of a log, and the seconds that the index took."""

    rows: int
    malformed: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Indexed:
    """A version with an index.

    Attributes:
        version: Its folder.
        found: The items.
        cells: The cells of the items. None if the index is only exact, or was there already.
        recall: The recall of the approximate index. None if there is none.
        is_new: Whether the version was written; otherwise the newest version had this index already.
    """

    version: pathlib.Path
    found: Catalogue
    cells: Cells | None = None
    recall: Recall | None = None
    is_new: bool = True

    def described(self, top: int, fingerprint: str) -> dict[str, object]:
        """Returns the description of the index that is stored in the version."""
        described: dict[str, object] = {
            "items": len(self.found.names),
            "top": top,
            "approximate": None,
            "fingerprint": fingerprint,
        }
        if self.cells is not None and self.recall is not None:
            sizes = {"cells": len(self.cells.centers), "probes": self.cells.probes}
            described["approximate"] = {**sizes, "recall": self.recall.share, "users": self.recall.users}
        return described


@dataclasses.dataclass(frozen=True)
class Retrieved:
    """The result of `retrieve`.

    Attributes:
        version: The version with the index.
        indexed: The index that was asked for. None if no index was asked for.
        answered: The result of the queries. None without queries.
    """

    version: pathlib.Path
    indexed: Indexed | None
    answered: Answered | None


def retrieve(
    model: pathlib.Path,
    items: Sequence[str],
    output: pathlib.Path | None,
    queries: Sequence[str],
    answers: pathlib.Path | None,
    item: str | None = None,
    top: int = 100,
    index: str = "exact",
    asked: Approximate = Approximate(),  # noqa: B008 it is frozen
) -> Retrieved:
    """Writes a model as a version with an index of items, retrieves items for users, or both.

    Args:
        model: The folder of a finished run, of a model's versions, or of a version.
        items, item, top: As in `index_items`.
        output: The folder of versions for the new version with the index. None if the model already has an index.
        queries: A log of the users. Empty for no retrieval.
        answers: The Parquet file for each user's items.
        index: A key of SIGNATURES, the index to query. `approximate` is written in addition to the exact one.
        asked: The settings of an approximate index.

    Raises:
        InputError: as in `index_items` and `answer`; or there is nothing to do.
    """
    if bool(queries) != (answers is not None):
        raise InputError("--queries and --answers go together: the users, and the file for their items")
    if output is None and (items or not queries):
        raise InputError("--output is missing: the folder for a version with the index of the items")
    source = find_model(model)
    indexed = None
    if output is not None:
        indexed = index_items(source, items, item, top, output, asked if index == "approximate" else None)
    version = indexed.version if indexed else source.version
    return Retrieved(version, indexed, answer(version, queries, answers, index) if answers is not None else None)


def index_items(
    source: TrainedModel,
    items: Sequence[str],
    item: str | None,
    top: int,
    output: pathlib.Path,
    approximate: Approximate | None = None,
) -> Indexed:
    """Writes the model as a new version in `output` with an index, and returns the version and its items.

    Nothing is written if the newest version in `output` already has this index of this model, for example because an
    earlier call was killed after writing it.

    The recall of an approximate index is measured on users of the run's validation rows. If only a version is given, it
    is measured on the version's golden rows.

    Args:
        source: The model.
        items: A log with the item's columns. Other columns may be missing. Empty for the run's training rows. If
            several rows have the same item, the last row counts.
        item: The column of the items' names. None for the spec's `item_column`.
        top: Number of items in each result.
        output: The folder of versions.
        approximate: The settings of a second, approximate index. None for the exact index only.

    Raises:
        InputError: the model has no towers, a column is missing, no item is known, there are more cells than items, or
            the version cannot be written.
    """
    spec = read_log_spec(source.version)
    servable = _loaded(source.version)
    try:
        if ITEM_VECTORS not in servable.signatures:
            raise InputError(
                f"{source.run or source.version}: the model has no towers; train model.name: two_tower or starspace"
            )
        column = _item_column(spec, item)
        catalogue = _catalogue(servable, spec, column, _item_rows(source, items, spec))
        top = min(top, len(catalogue.names))
        fingerprint = _fingerprint(source.version, catalogue, top, approximate)
        if there := _version_with(output, fingerprint):
            return Indexed(there, catalogue, recall=_measured_recall(there), is_new=False)
        divided_by = _divided(servable, source, spec, catalogue.vectors, top, approximate) if approximate else ()
    finally:
        servable.close()
    indexed = Indexed(_next_version(output, source.version), catalogue, *divided_by)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with atomic_folder(indexed.version) as unfinished:
            add_index(source.version, catalogue.names, catalogue.vectors, top, unfinished, indexed.cells)
            write_json(asset_path(unfinished, Asset.ITEM_INDEX), indexed.described(top, fingerprint))
            check_servable(unfinished)
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror}); choose another --output") from error
    return indexed


def _fingerprint(version: pathlib.Path, catalogue: Catalogue, top: int, approximate: Approximate | None) -> str:
    """Returns a hash that two indexes share only if they have the same model, items and settings.

    The model is identified by its extra assets, which include its predictions for some rows. Its graph is not used,
    because an index changes it.
    """
    parts = [top, None if approximate is None else dataclasses.asdict(approximate), catalogue.names.tolist()]
    digest = hashlib.sha256(repr(parts).encode())
    digest.update(np.ascontiguousarray(catalogue.vectors).tobytes())
    for path in sorted((version / ASSETS).iterdir()):
        if path.name not in _OF_AN_INDEX:
            digest.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _version_with(output: pathlib.Path, fingerprint: str) -> pathlib.Path | None:
    """Returns the newest version of a folder if it has this index."""
    newest = newest_version(output)
    return newest if newest and _described(newest).get("fingerprint") == fingerprint else None


def _measured_recall(version: pathlib.Path) -> Recall | None:
    described = _described(version)
    approximate = described["approximate"]
    return approximate and Recall(described["top"], approximate["recall"], approximate["users"])


def _described(version: pathlib.Path) -> dict[str, Any]:
    """Returns the description of a version's index; {} if it has none that can be read."""
    try:
        return dict(json.loads(asset_path(version, Asset.ITEM_INDEX).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _divided(
    servable: Servable, source: TrainedModel, spec: LogSpec, vectors: Vectors, top: int, asked: Approximate
) -> tuple[Cells, Recall]:
    """Returns the cells of an approximate index with the requested recall, and its measured recall."""
    count = default_cells(len(vectors)) if asked.cells is None else asked.cells
    if count > len(vectors):
        raise InputError(f"--cells {count}: there are {len(vectors):,} items; give at most that many cells")
    return divided(vectors, _users(servable, source, spec), count, top, asked.recall)


def _users(servable: Servable, source: TrainedModel, spec: LogSpec) -> Vectors:
    """Returns the vectors of some users, float32 [N, vector_dim]."""
    if source.run is None:
        raw = GoldenRows.load(asset_path(source.version, Asset.GOLDEN)).raw
        users = {name: raw[name] for name in servable.signatures[USER_VECTORS].inputs}
        vectors: Vectors = servable.run(USER_VECTORS, users)[VECTORS]
        return vectors
    sample = RowSample(USERS, np.random.default_rng(0))
    for batch in read_payload(split_files(source.run, "validation"), _of_user(spec)):
        sample.add(batch)
    rows = sample.table()
    assert rows is not None  # a run has validation rows
    [batch] = rows.to_batches()
    inputs = raw_batches(servable, batch, USERS, USER_VECTORS)
    return np.concatenate([servable.run(USER_VECTORS, each)[VECTORS] for each in inputs])


def _of_user(spec: LogSpec) -> list[str]:
    return [name for name in spec.feature_columns if name not in spec.item_columns]


def answer(version: pathlib.Path, queries: Sequence[str], output: pathlib.Path, index: str = "exact") -> Answered:
    """Writes a Parquet file with file, line (from 1), items and scores (best first) of each good row.

    Args:
        version: A version with an index.
        queries: A log with the user's columns. The item's columns may be missing.
        output: The file to write.
        index: A key of SIGNATURES.

    Raises:
        InputError: the version has no such index, a column is missing, or the file cannot be written.
    """
    spec = read_log_spec(version)
    servable = _loaded(version)
    if SIGNATURES[index] not in servable.signatures:
        has_exact = RETRIEVE in servable.signatures
        servable.close()
        if has_exact:
            way = "--index approximate and --output"
            raise InputError(f"{version}: the version has no approximate index; make one with {way}")
        raise InputError(f"{version}: the version has no index; make one with --items and --output")
    reader = LogReader(_only(spec, _of_user(spec)), labels=False, own=own_values(version, spec))
    good, malformed, seconds = 0, 0, 0.0
    try:
        with atomic_path(output) as unfinished, pa.parquet.ParquetWriter(unfinished, ANSWERS) as writer:
            for path in find_files(list(queries)):
                for batch in reader.read(path):
                    good, malformed = good + batch.rows.num_rows, malformed + len(batch.rejects)
                    began = time.perf_counter()
                    answers = _answers(servable, batch, SIGNATURES[index])
                    seconds += time.perf_counter() - began
                    writer.write_table(answers)
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror}); choose another --answers") from error
    finally:
        servable.close()
    return Answered(good, malformed, seconds)


def _answers(servable: Servable, batch: LogBatch, signature: str) -> pa.Table:
    outputs = [servable.run(signature, inputs) for inputs in raw_batches(servable, batch.rows, QUERY_ROWS, signature)]
    columns = {
        "file": [batch.path] * len(batch.lines),
        "line": batch.lines,
        ITEMS: [row for part in outputs for row in part[ITEMS].tolist()],
        SCORES: [row for part in outputs for row in part[SCORES]],
    }
    return pa.table(columns, ANSWERS)


def _loaded(version: pathlib.Path) -> Servable:
    try:
        return Servable(version)
    except Exception as error:
        raise InputError(f"{version}: the model cannot be loaded: {one_line(error, 300)}") from error


def _next_version(output: pathlib.Path, source: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the next version. If there is none yet, uses the source's version number, or 1."""
    if newest := newest_version(output):
        return output / str(int(newest.name) + 1)
    return output / (source.name if source.name.isdecimal() else "1")


def _item_column(spec: LogSpec, item: str | None) -> str:
    """Returns the column of the items' names."""
    column = item or spec.item_column
    single = [name for name in spec.item_columns if name in spec.columns_of("categorical")]
    if column not in single:
        raise InputError(
            f"--item {column}: not a categorical column of the item; those are {', '.join(single)}"
            f"{did_you_mean(column or '', single)}"
        )
    return column


def _only(spec: LogSpec, columns: Sequence[str]) -> LogSpec:
    """Returns the description of a log with some of the feature columns and without labels."""
    whole = spec.whole_number_columns
    features = [
        feature.only(name, name in whole) for feature in spec.features for name in feature.columns if name in columns
    ]
    return spec.model_copy(update={"features": features})


def _item_rows(source: TrainedModel, items: Sequence[str], spec: LogSpec) -> Iterator[pa.RecordBatch]:
    """Yields the item's columns of a log's good rows, or of the run's training rows."""
    if items:
        own = own_values(source.version, spec)
        yield from good_rows(find_files(list(items)), _only(spec, spec.item_columns), own, labels=False)
    elif source.run is None:
        columns = ", ".join(spec.item_columns)
        raise InputError(f"{source.version}: a version has no rows; give --items, a log with {columns}")
    else:
        yield from read_payload(split_files(source.run, "train"), spec.item_columns)


def _catalogue(servable: Servable, spec: LogSpec, column: str, batches: Iterator[pa.RecordBatch]) -> Catalogue:
    """Returns the items of rows that have the item's columns."""
    rows = pa.Table.from_batches(batches).select(spec.item_columns)
    named = rows.filter(rows[column].is_valid())
    codes = named[column].combine_chunks().dictionary_encode()
    last = np.zeros(len(codes.dictionary), np.int64)
    last[codes.indices.to_numpy()] = np.arange(named.num_rows)  # the last row of each item counts
    names, vectors, unknown = [], [], 0
    for batch in named.take(last).combine_chunks().to_batches(ITEM_ROWS):
        [packed] = raw_batches(servable, batch, ITEM_ROWS, TRANSFORM)
        known = _is_known(servable.run(TRANSFORM, packed)["ids"], column, spec, servable.path)
        [inputs] = raw_batches(servable, batch, ITEM_ROWS, ITEM_VECTORS)
        vectors.append(servable.run(ITEM_VECTORS, inputs)[VECTORS][known])
        names.append(inputs[column][known])
        unknown += int((~known).sum())
    if not sum(len(part) for part in names):
        raise InputError(f"none of {unknown:,} items is in the model's vocabulary of {column}; are these its items?")
    return Catalogue(np.concatenate(names), np.concatenate(vectors), rows.num_rows, rows.num_rows - len(codes), unknown)


def _is_known(ids: np.ndarray, column: str, spec: LogSpec, version: pathlib.Path) -> npt.NDArray[np.bool]:
    """Returns whether each row's value of a column has its own id, bool [N]. Hash ids always count as own ids.

    Args:
        ids: Packed ids, int32 [N, slots].
        column: A categorical column.
        spec: The description of the log.
        version: The version that packed the ids.
    """
    feature_map = read_feature_map(version)
    field = next(field for field in feature_map.fields if field.name == column)
    end = field.offset + field.size - (spec.feature_by_column[column].unknown_ids - 1)
    own = ids[:, feature_map.slots_of(column).start]
    known: npt.NDArray[np.bool] = (own > field.missing_id) & (own < end)
    return known
