"""Parquet: a piece is a row group."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.stores import is_url
from ctrpipe.transforms.log.files import open_stored
from ctrpipe.transforms.log.formats.columnar import BATCH_ROWS, Columnar, Pieces
from ctrpipe.transforms.log.nested import root_of


class Parquet(Columnar):
    """Reads Parquet."""

    name = "Parquet"

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str) -> Iterator[Pieces]:
        with _read_errors(path), open_stored(path) as source:
            yield _RowGroups(path, _opened(path, source))

    @classmethod
    def row_count(cls, path: str) -> int:
        with open_stored(path) as source:
            rows: int = _opened(path, source).metadata.num_rows
        return rows


class _RowGroups(Pieces):
    def __init__(self, path: str, file: pa.parquet.ParquetFile):
        self._path, self._file = path, file
        self.schema = file.schema_arrow
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        self.rows = [each.num_rows for each in groups]
        self.sizes = [each.total_byte_size for each in groups]

    def batches(self, first: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        roots = [root_of(self.schema, name) or name for name in columns]
        # Of structs alone a part can be read: the path of a list's elements depends on what wrote the file.
        is_struct = [root in self.schema.names and pa.types.is_struct(self.schema.field(root).type) for root in roots]
        read = [name if inner else root for name, root, inner in zip(columns, roots, is_struct, strict=True)]
        try:
            yield from self._file.iter_batches(
                BATCH_ROWS, row_groups=list(range(first, stop)), columns=list(dict.fromkeys(read))
            )
        except pa.ArrowException as error:
            # Arrow cannot read some nested columns, such as missing lists of a fixed size: the file is not damaged.
            for name in dict.fromkeys(roots):
                kind = self.schema.field(name).type
                if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
                    raise InputError(
                        f"{self._path}: column {name} of type {kind} cannot be read ({one_line(error, 200)}); "
                        "write values, or lists of no fixed size"
                    ) from error
            raise


@contextlib.contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Converts errors of reading a Parquet file to InputError."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        text = one_line(error, 200)
        raise InputError(f"{path}: a Parquet file with unsupported features ({text}); write it anew") from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: the Parquet file is damaged ({one_line(error, 200)})") from error


def _opened(path: str, source: IO[bytes]) -> pa.parquet.ParquetFile:
    try:
        file = pa.parquet.ParquetFile(source, pre_buffer=is_url(path))
        list(file.schema_arrow.names)  # decodes them
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({one_line(error, 200)})") from error
    return file
