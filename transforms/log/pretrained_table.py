"""Reads tables of pretrained vectors by key, and checks them."""

import dataclasses
import functools
import hashlib
import zipfile
import zlib
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.near import did_you_mean
from ctrpipe.transforms.log.files import FileState, open_stored, state_of
from ctrpipe.transforms.log.first_bytes import PARQUET_MARK
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.pretrained import Pretrained
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import TextNumbers, as_binary, is_list, whole_numbers
from ctrpipe.transforms.log.vectors import to_vectors, vector_array

MOST_BYTES = 1 << 30  # of a table, which is a part of the exported graph: a graph has at most 2 GiB


@dataclasses.dataclass(frozen=True)
class VectorTable:
    """Vectors by key: binary keys [rows] without nulls, and float32 vectors [rows, length]."""

    keys: pa.Array
    vectors: npt.NDArray[np.float32]


def pretrained_tables(spec: LogSpec) -> dict[str, Pretrained]:
    """Returns the description of each column's table of pretrained vectors."""
    features = spec.feature_by_column
    tables = {name: each.pretrained for name, each in features.items() if isinstance(each, Categorical)}
    return {column: table for column, table in tables.items() if table is not None}


def tuned_tables(spec: LogSpec) -> dict[str, Pretrained]:
    """Returns the table description of each column whose vectors are fine-tuned."""
    return {column: table for column, table in pretrained_tables(spec).items() if not table.freeze}


def table_fingerprint(path: str) -> str:
    """Returns a hash of a table's file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with open_stored(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]  # type: ignore[arg-type]
    except OSError as error:
        raise _unreadable(path, error) from error


def read_table(table: Pretrained, whole: bool) -> VectorTable:
    """Returns the vectors of a file, scaled by the table's settings.

    Args:
        table: The description of the file.
        whole: Whether the key 123.0 is the same value as 123.

    Raises:
        InputError: the file cannot be read or is too large, lacks a column, or has a key twice, a missing key, or a
            vector of another length or with an element that is not finite.
    """
    try:
        state = state_of(table.path)
    except OSError as error:
        raise _unreadable(table.path, error) from error
    return _read(table.model_dump_json(), whole, state)


@functools.lru_cache(maxsize=4)
def _read(description: str, whole: bool, state: FileState) -> VectorTable:
    table = Pretrained.model_validate_json(description)
    path = table.path
    try:
        with open_stored(path) as file:
            read = _of_parquet if file.read(len(PARQUET_MARK)) == PARQUET_MARK else _of_npz
            file.seek(0)
            keys, lists = read(table, file)
    except OSError as error:
        raise _unreadable(table.path, error) from error
    if not len(keys):
        raise InputError(f"{path}: the table of pretrained vectors has no rows; write one for each key")
    if len(keys) * table.length * 4 > MOST_BYTES:
        raise InputError(
            f"{path}: {len(keys):,} vectors of {table.length} numbers take more than {MOST_BYTES >> 20} MiB; keep "
            "those of the log's values, or fewer numbers"
        )
    texts = as_binary(plain(keys), table.key, path)
    texts = whole_numbers(texts) if whole else texts
    if texts.null_count:
        row = 1 + int(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(f"{path}: row {row}: {table.key} is missing; give each vector a key")
    _check_keys(texts, table)
    faults: dict[int, str] = {}
    feature = Vector(kind="vector", columns=[table.vector], length=table.length)
    vectors = vector_array(to_vectors(plain(lists), table.vector, faults, feature, TextNumbers()))
    missing = np.flatnonzero(np.isnan(vectors).any(axis=1))
    if len(missing):
        faults.setdefault(int(missing[0]), f"{table.vector}: the vector is missing")
    if faults:
        row = min(faults)
        raise InputError(f"{path}: row {row + 1}: {faults[row]}; correct or remove the row, or correct `length`")
    if table.transform == "unit":
        wide = vectors.astype(np.float64)
        lengths = np.sqrt((wide**2).sum(axis=1, keepdims=True))
        vectors = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0).astype(np.float32)
    return VectorTable(texts, vectors)


def _check_keys(keys: pa.Array, table: Pretrained) -> None:
    broken = np.flatnonzero(pc.match_substring_regex(keys, r"[\r\n]").to_numpy(zero_copy_only=False))
    if len(broken):
        raise InputError(f"{table.path}: row {1 + int(broken[0])}: {table.key} has a line break; remove the row")
    counted = pc.value_counts(keys)
    twice = np.flatnonzero(counted.field("counts").to_numpy() > 1)
    if len(twice):
        key = counted.field("values")[int(twice[0])].as_py().decode("utf-8", "replace")
        raise InputError(f"{table.path}: the key '{key}' has several vectors; keep one of them")


def _of_parquet(table: Pretrained, file: IO[bytes]) -> tuple[pa.Array, pa.Array]:
    try:
        read = pa.parquet.ParquetFile(file)
        _check_names(table, read.schema_arrow.names)
        rows = read.read(columns=[table.key, table.vector])
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{table.path}: no readable Parquet file ({one_line(error, 200)}); write it again") from error
    keys, vectors = (rows[name].combine_chunks() for name in (table.key, table.vector))
    if not is_list(plain(vectors).type):
        raise InputError(
            f"{table.path}: {table.vector} of type {vectors.type} has no lists; name the column of vectors"
        )
    return keys, vectors


def _of_npz(table: Pretrained, file: IO[bytes]) -> tuple[pa.Array, pa.Array]:
    try:
        arrays = np.load(file, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with arrays:
            _check_names(table, arrays.files)
            keys, vectors = arrays[table.key], arrays[table.vector]
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # RuntimeError: encrypted
        reason = one_line(error, 100)
        raise InputError(f"{table.path}: neither Parquet nor an .npz file ({reason}); write one of the two") from error
    if keys.ndim != 1 or vectors.ndim != 2 or len(keys) != len(vectors) or vectors.dtype.kind not in "fiu":
        raise InputError(
            f"{table.path}: {table.key} is {keys.dtype} {keys.shape}, {table.vector} {vectors.dtype} {vectors.shape}; "
            "write keys [rows] and vectors of numbers [rows, length]"
        )
    texts = keys.tolist() if keys.dtype.kind == "U" else keys
    texts = [key.decode("utf-8", "replace") for key in keys.tolist()] if keys.dtype.kind == "S" else texts
    ends = np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1]
    return pa.array(texts), pa.ListArray.from_arrays(
        pa.array(ends), pa.array(np.ascontiguousarray(vectors).reshape(-1))
    )


def _check_names(table: Pretrained, names: list[str]) -> None:
    for setting, name in (("key", table.key), ("vector", table.vector)):
        if name not in names:
            has = ", ".join(names[:20])
            raise InputError(
                f"{table.path}: has no {name}, which `{setting}` of pretrained names; it has {has}"
                f"{did_you_mean(name, names)}"
            )


def _unreadable(path: str, error: OSError) -> InputError:
    reason = error.strerror or one_line(error, 200)
    return InputError(f"{path}: the table of pretrained vectors cannot be read ({reason}); check its path")
