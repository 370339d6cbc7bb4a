"""Packed files: transformed rows on disk, which training reads as NumPy batches, in log order or shuffled.

A file is Parquet: `ids` int32 [N, S], `dense` float32 [N, D], `tokens` and `segments` int32 [N, T], `numbers` int32 [N,
2 M], `slot_weights` float32 [N, W], `label` float32 [N, tasks], `weight` float32 [N, 1], `group` int32 [N, 2] (the
halves of an int64). Each column stores a row as one fixed-size binary value, little endian. A column is absent if the
log has no such features, weights or groups.

Formats compared in rows per CPU second of one core (AMD EPYC), with 60,000 rows of Criteo (39 ids, 2 dense features, 1
label) repeated eight times, in blocks of 8192:

    format                                   bytes a row    rows/s read    rows/s written
    Arrow IPC, lz4                                  84.5           21.1            2.5 million
    Arrow IPC, lz4, a CRC of our own                84.5           11.4            2.8
    Arrow IPC, zstd                                 56.5            5.3            1.8
    Parquet, fixed-size lists, lz4, CRC             84.6            4.0            1.4
    Parquet, fixed-size binary, lz4, CRC            84.6           11.0            2.2
    Parquet, fixed-size binary, zstd, CRC           56.6            4.5            1.7

Uncompressed, a row has 168 bytes. IPC has no checksums, so training would not notice an id that a bad disk has changed.
Parquet stores a level for every number of a list. zstd saves a third of the disk space and doubles the time to read.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path
from ctrpipe.common.processes import cores
from ctrpipe.models.base.feature_map import GROUP, SLOT_WEIGHTS, WEIGHT

# A block is read at once. A window of blocks is held in memory; its rows are shuffled together.
BLOCK_ROWS = 1 << 13
SHUFFLE_ROWS = 200_000  # rows of a shuffled window
READ_ROWS = 1 << 16  # rows of a window in log order
WINDOW_BYTES = 1 << 28  # of a window, which of long vectors holds fewer rows
BUCKET_BATCHES = 50
LEAST_AHEAD, MOST_AHEAD = 2, 4  # windows to read ahead, each in a thread
THREAD = "packed-reader"

INPUTS = {
    "ids": np.dtype("<i4"),
    "dense": np.dtype("<f4"),
    "tokens": np.dtype("<i4"),
    "segments": np.dtype("<i4"),
    "numbers": np.dtype("<i4"),
    SLOT_WEIGHTS: np.dtype("<f4"),
}
DTYPES = {**INPUTS, "label": np.dtype("<f4"), WEIGHT: np.dtype("<f4"), GROUP: np.dtype("<i4")}


Rows = dict[str, np.ndarray]  # by the names of DTYPES, [N, width] each
Batch = tuple[Rows, np.ndarray]  # the model's inputs and the label


class PackedWriter(contextlib.AbstractContextManager["PackedWriter"]):
    """Writes rows in order to one file, created by an atomic rename. Without rows, no file is written.

    Args:
        path: The file, in an existing folder.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._file = contextlib.ExitStack()
        self._writer: pa.parquet.ParquetWriter | None = None
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_rows = 0

    def write(self, rows: Mapping[str, np.ndarray]) -> None:
        """Adds rows: arrays [n, width] by the names of DTYPES. The arrays must not be modified afterwards.

        Raises:
            ValueError: an array has another name, dtype or rank.
        """
        batch = _as_batch(rows)
        if not batch.num_rows:
            return
        self._buffered.append(batch)
        self._buffered_rows += batch.num_rows
        if self._buffered_rows >= BLOCK_ROWS:
            self._write_blocks(self._buffered_rows // BLOCK_ROWS * BLOCK_ROWS)

    def _write_blocks(self, rows: int) -> None:
        table = pa.Table.from_batches(self._buffered)
        if self._writer is None:
            settings = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
            unfinished = self._file.enter_context(atomic_path(self._path))
            self._writer = self._file.enter_context(
                pa.parquet.ParquetWriter(unfinished, table.schema, write_page_checksum=True, **settings)
            )
        self._writer.write_table(table.slice(0, rows), row_group_size=BLOCK_ROWS)
        self._buffered = table.slice(rows).to_batches()
        self._buffered_rows -= rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.__exit__(kind, error, trace)
            return
        with self._file:
            if self._buffered_rows:
                self._write_blocks(self._buffered_rows)


def _as_batch(rows: Mapping[str, np.ndarray]) -> pa.RecordBatch:
    columns = {}
    for name, values in rows.items():
        if name not in DTYPES or values.dtype != DTYPES[name] or values.ndim != 2:
            raise ValueError(
                f"packed rows should be ids int32, dense float32, tokens int32, segments int32, numbers int32, "
                f"slot_weights float32, label float32, weight float32 and group int32, [rows, width] each. "
                f"Received: {name} {values.dtype} {values.shape}"
            )
        if values.shape[1]:
            kind = pa.binary(values.shape[1] * values.itemsize)
            buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
            columns[name] = pa.FixedSizeBinaryArray.from_buffers(kind, len(values), buffers)
    return pa.RecordBatch.from_pydict(columns)


def packed_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of a split, in the order of the log."""
    return sorted(folder.glob("*.parquet"))


def packed_rows(files: Sequence[pathlib.Path]) -> int:
    """Returns the number of rows of all files, from their metadata.

    Raises:
        InputError: a file is damaged.
    """
    return sum(_metadata(file).num_rows for file in files)


def label_means(files: Sequence[pathlib.Path]) -> np.ndarray:
    """Returns the mean of each label over the rows that have it, weighted if the rows have weights. float64 [tasks].

    It is 0 for a label that no row has.

    Raises:
        InputError: a file is damaged.
    """
    rows, total = np.zeros(1), np.zeros(1)
    for file in files:
        with _damage_as_input_error(file):
            table = pa.parquet.read_table(
                file, columns=_present(file, ["label", WEIGHT]), page_checksum_verification=True
            )
        for batch in table.to_batches():
            labels = _as_numpy(batch["label"], "label").astype(np.float64)
            weights = _as_numpy(batch[WEIGHT], WEIGHT) if WEIGHT in table.column_names else np.ones((len(labels), 1))
            known = ~np.isnan(labels)
            rows = rows + (weights * known).sum(axis=0, dtype=np.float64)
            total = total + (weights * np.where(known, labels, 0.0)).sum(axis=0)
    means: np.ndarray = np.divide(total, rows, out=np.zeros_like(total), where=rows > 0)
    return means


def rows_out_of_order(files: Sequence[pathlib.Path]) -> np.ndarray:
    """Returns the number of rows whose label of a task exceeds the previous task's label, int64 [tasks - 1].

    Raises:
        InputError: a file is damaged.
    """
    counts = np.zeros(1, np.int64)
    for file in files:
        with _damage_as_input_error(file):
            column = pa.parquet.read_table(file, columns=["label"], page_checksum_verification=True)["label"]
        for chunk in column.chunks:
            counts = counts + (np.diff(_as_numpy(chunk, "label"), axis=1) > 0).sum(axis=0)
    return counts


def row_weights(files: Sequence[pathlib.Path]) -> np.ndarray | None:
    """Returns the weights of all rows in the order of the files, float32 [N]; None without weights.

    Raises:
        InputError: a file is damaged.
    """
    weights = _column(files, WEIGHT)
    return None if weights is None else weights[:, 0]


def row_groups(files: Sequence[pathlib.Path]) -> np.ndarray | None:
    """Returns the group number of all rows in the order of the files, int64 [N]; None without groups.

    Raises:
        InputError: a file is damaged.
    """
    halves = _column(files, GROUP)
    return None if halves is None else _group_numbers(halves)


def row_labels(files: Sequence[pathlib.Path]) -> np.ndarray:
    """Returns the labels of all rows in the order of the files, float32 [N, tasks]; NaN for one that is missing.

    Raises:
        InputError: a file is damaged.
    """
    labels = _column(files, "label")
    assert labels is not None  # every file has it
    return labels


def _column(files: Sequence[pathlib.Path], name: str) -> np.ndarray | None:
    """Returns a column of all rows in the order of the files, [N, width]; None if a file lacks it."""
    parts = []
    for file in files:
        with _damage_as_input_error(file):
            if not _present(file, [name]):
                return None
            column = pa.parquet.read_table(file, columns=[name], page_checksum_verification=True)[name]
        parts += [_as_numpy(chunk, name) for chunk in column.chunks]
    return np.concatenate(parts)


def _group_numbers(halves: np.ndarray) -> np.ndarray:
    """Joins the two halves of group numbers, int32 [N, 2], to int64 [N]."""
    return np.ascontiguousarray(halves).view("<i8")[:, 0]


def _present(file: pathlib.Path, columns: list[str]) -> list[str]:
    names = pa.parquet.read_schema(file).names
    return [name for name in columns if name in names]


@dataclasses.dataclass(frozen=True)
class _Block:
    file: int
    group: int  # the row group in the file
    rows: int


class PackedReader:
    """Reads packed files as batches of `batch_size` rows; the last batch may be smaller. Can be iterated repeatedly.

    To shuffle, the order of all files' blocks is drawn from the seed, and the rows of each window of about SHUFFLE_ROWS
    rows are shuffled. A smaller log is shuffled as a whole. Threads read ahead until the iterator ends: one core reads
    and shuffles three million rows of Criteo's width a second, and a GPU trains a small model on more.

    Args:
        files: Files of PackedWriter, read in the order of their paths.
        batch_size: Number of rows of a batch.
        shuffle_seed: A non-negative seed for the order of the rows; None for the order of the log.
        skip: Number of batches to skip at the start, most of them without reading them.
        take: Maximum number of batches after the skipped ones; None for all.
        length: Returns each row's length, [N]. Shuffled rows of similar length then share a batch; None to ignore
            lengths.
        weighted: Whether the inputs of a batch include the rows' weights, if the files have them.
        grouped: Whether the inputs of a batch include the rows' groups. When shuffled, the rows of a group are then
            consecutive within a window, and most of them share a batch.

    Raises:
        InputError: there is no file, a file is damaged, or the files are of different logs. A damaged block raises it
            only when it is read.
    """

    def __init__(
        self,
        files: Sequence[pathlib.Path],
        batch_size: int,
        shuffle_seed: int | None = None,
        skip: int = 0,
        take: int | None = None,
        length: Callable[[Rows], np.ndarray] | None = None,
        weighted: bool = False,
        grouped: bool = False,
    ):
        if not files:
            raise InputError("no packed files to read: the split has no rows; give it some in data.split")
        self.files = sorted(files)
        self.batch_size = batch_size
        self._seed = shuffle_seed
        self._length = length
        self._weighted = weighted
        self._grouped = grouped
        self._metadata = [_metadata(file) for file in self.files]
        self.widths = _widths(self.files, self._metadata)
        total: int = sum(metadata.num_rows for metadata in self._metadata)
        self._first = min(skip * batch_size, total)
        self._end = total if take is None else min((skip + take) * batch_size, total)

    @property
    def rows(self) -> int:
        """The number of rows of all batches."""
        return self._end - self._first

    def __len__(self) -> int:
        """Returns the number of batches."""
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        with contextlib.closing(_rebatched(self.windows(), self.batch_size)) as batches:
            for rows in batches:
                label = rows.pop("label")
                if not self._weighted:
                    rows.pop(WEIGHT, None)
                if not self._grouped:
                    rows.pop(GROUP, None)
                yield rows, label

    def windows(self) -> Generator[Rows, None, None]:
        """Yields the rows in the order of the batches, one window at a time."""
        parts = self._window_parts()
        with ThreadPoolExecutor(self._ahead(), THREAD) as threads:
            waiting = collections.deque(threads.submit(part) for part in itertools.islice(parts, self._ahead()))
            try:
                while waiting:
                    rows = waiting.popleft().result()
                    waiting.extend(threads.submit(part) for part in itertools.islice(parts, 1))
                    yield rows
            finally:
                for future in waiting:
                    future.cancel()

    def _ahead(self) -> int:
        """Returns the number of windows to read ahead: fewer for long rows, which take more memory."""
        of_memory = WINDOW_BYTES // (4 * sum(self.widths.values()) * SHUFFLE_ROWS)
        return max(LEAST_AHEAD, min(MOST_AHEAD, cores(), of_memory))

    def _window_parts(self) -> Iterator[Callable[[], Rows]]:
        """Returns, for each window with wanted rows, the function that reads them."""
        before = 0
        for index, blocks in enumerate(self._order()):
            count = sum(block.rows for block in blocks)
            first, end = max(self._first - before, 0), min(self._end - before, count)
            before += count
            if first < end:
                yield functools.partial(self._read_window, index, blocks, slice(first, end))

    def _read_window(self, index: int, blocks: Sequence[_Block], wanted: slice) -> Rows:
        if self._seed is None:
            return {name: values[wanted] for name, values in self._read(blocks).items()}
        random = np.random.default_rng([self._seed, 1 + index])
        order = random.permutation(sum(block.rows for block in blocks))
        if not self._grouped and self._length is None:
            return {name: values[wanted] for name, values in self._read(blocks, order).items()}
        rows = self._read(blocks)
        if self._grouped:
            order = by_group(order, _group_numbers(rows[GROUP]))
        elif self._length is not None:
            order = bucketed(order, self._length(rows), self.batch_size, random)
        order = order[wanted]
        return {name: np.take(values, order, axis=0) for name, values in rows.items()}

    def _order(self) -> list[list[_Block]]:
        """Returns the blocks of each window, sorted by file and position, the fastest order to read."""
        blocks = [
            _Block(file, group, metadata.row_group(group).num_rows)
            for file, metadata in enumerate(self._metadata)
            for group in range(metadata.num_row_groups)
        ]
        of_memory = max(WINDOW_BYTES // (4 * sum(self.widths.values())), 1)
        rows = min(READ_ROWS if self._seed is None else SHUFFLE_ROWS, of_memory)
        windows = max(-(-sum(block.rows for block in blocks) // rows), 1)
        order = np.arange(len(blocks))
        if self._seed is not None:
            order = np.random.default_rng(self._seed).permutation(order)
        return [[blocks[index] for index in np.sort(part)] for part in np.array_split(order, windows)]

    def _read(self, blocks: Sequence[_Block], order: np.ndarray | None = None) -> Rows:
        """Returns the rows of some blocks. Memory holds them once, and one block twice.

        Args:
            blocks: The blocks, sorted by file.
            order: For each returned row, its number among the rows of the blocks, [N]; None for their order.
        """
        count = sum(block.rows for block in blocks)
        rows = {name: np.empty((count, width), DTYPES[name]) for name, width in self.widths.items()}
        places = np.empty(count, np.int64)
        places[slice(None) if order is None else order] = np.arange(count)
        start = 0
        for table in self._tables(blocks):
            own = places[start : start + table.num_rows]
            for name, values in rows.items():
                values[own] = np.concatenate([_as_numpy(chunk, name) for chunk in table[name].chunks])
            start += table.num_rows
        return rows

    def _tables(self, blocks: Sequence[_Block]) -> Iterator[pa.Table]:
        """Yields the rows of each block."""
        for file, of_file in itertools.groupby(blocks, lambda block: block.file):
            with (
                _damage_as_input_error(self.files[file]),
                pa.parquet.ParquetFile(
                    self.files[file], metadata=self._metadata[file], page_checksum_verification=True
                ) as opened,
            ):
                for block in of_file:
                    yield opened.read_row_group(block.group, list(self.widths), use_threads=False)


def bucketed(order: np.ndarray, length: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """Reorders rows to put rows of similar length into the same batch.

    Sorts the rows of every BUCKET_BATCHES batches by length, then shuffles all batches except the last, which may be
    smaller.
    """
    parts: list[np.ndarray] = []
    for start in range(0, len(order), size * BUCKET_BATCHES):
        some = order[start : start + size * BUCKET_BATCHES]
        by_length = some[np.argsort(length[some], kind="stable")]
        parts += np.split(by_length, range(size, len(some), size))
    if not parts:
        return order
    return np.concatenate([*(parts[index] for index in random.permutation(len(parts) - 1)), parts[-1]])


def by_group(order: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Reorders rows so that the rows of a group are consecutive, at the position of the group's first row."""
    _, first, number = np.unique(groups[order], return_index=True, return_inverse=True)
    reordered: np.ndarray = order[np.argsort(first[number], kind="stable")]
    return reordered


def _as_numpy(values: pa.FixedSizeBinaryArray, name: str) -> np.ndarray:
    """Returns the rows as an array [N, width], without a copy."""
    size = values.type.byte_width
    flat = np.frombuffer(values.buffers()[1], DTYPES[name], len(values) * size // 4, values.offset * size)
    return flat.reshape(len(values), -1)


def _metadata(file: pathlib.Path) -> pa.parquet.FileMetaData:
    with _damage_as_input_error(file):
        metadata = pa.parquet.read_metadata(file)
        # A file's footer has no checksum, but it holds the number of rows twice.
        if sum(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)) != metadata.num_rows:
            raise ValueError("its counts of rows disagree")
        return metadata


def _widths(files: list[pathlib.Path], metadata: list[pa.parquet.FileMetaData]) -> dict[str, int]:
    """Returns the width of each tensor, by name."""
    schemas = []
    for file, each in zip(files, metadata, strict=True):
        with _damage_as_input_error(file):
            schema = each.schema.to_arrow_schema()
        schemas.append(schema)
        if "label" not in schema.names or not all(map(_is_packed, schema)):
            raise InputError(f"{file}: not a file of packed rows; delete the run's output folder and run again")
        if not schema.equals(schemas[0]):
            raise InputError(
                f"{file}: its rows are packed differently from those of {files[0]}; transform the log again"
            )
    return {field.name: field.type.byte_width // 4 for field in schemas[0]}


def _is_packed(field: pa.Field) -> bool:
    return field.name in DTYPES and pa.types.is_fixed_size_binary(field.type) and field.type.byte_width % 4 == 0


@contextlib.contextmanager
def _damage_as_input_error(file: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
        reason = str(error).splitlines()[0]
        raise InputError(f"{file}: cannot be read ({reason}); delete the run's output folder and run again") from error


def _rebatched(chunks: Generator[Rows, None, None], size: int) -> Generator[Rows, None, None]:
    """Yields the rows in batches of `size`; the last batch may be smaller."""
    left: list[Rows] = []
    missing = size
    with contextlib.closing(chunks):
        for chunk in chunks:
            start, count = 0, len(chunk["label"])
            while count - start >= missing:
                left.append({name: values[start : start + missing] for name, values in chunk.items()})
                start, missing = start + missing, size
                yield _joined(left)
                left = []
            if start < count:
                left.append({name: values[start:] for name, values in chunk.items()})
                missing -= count - start
    if left:
        yield _joined(left)


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
