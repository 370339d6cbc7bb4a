"""ORC. A piece is a stripe."""

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.transforms.log.files import open_stored, size_of
from ctrpipe.transforms.log.formats.columnar import BATCH_ROWS, Columnar, Pieces
from ctrpipe.transforms.log.nested import root_of


class Orc(Columnar):
    """Reads ORC."""

    name = "ORC"

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str) -> Iterator[Pieces]:
        import pyarrow.orc  # lazy: few logs are ORC

        try:
            with open_stored(path) as source:
                yield _Stripes(pyarrow.orc.ORCFile(source), size_of(path))
        except (pa.ArrowException, OSError) as error:
            text = one_line(error, 200)
            raise InputError(f"{path}: not a readable ORC file ({text}); copy or write it again") from error


class _Stripes(Pieces):
    def __init__(self, file: "pa.orc.ORCFile", size: int):
        self._file = file
        self.schema = file.schema
        stripes = range(file.nstripes)
        self.rows = [file.nrows] if len(stripes) == 1 else list(map(self._rows_of, stripes))
        self.sizes = [size // len(stripes)] * len(stripes)

    def _rows_of(self, stripe: int) -> int:
        """Returns the number of rows of a stripe. The file does not state it; a column of plain values is read to count
        them.
        """
        plain = [field.name for field in self.schema if not pa.types.is_nested(field.type)]
        rows: int = self._file.read_stripe(stripe, columns=plain[:1] or None).num_rows
        return rows

    def batches(self, first: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        read = list(dict.fromkeys(root_of(self.schema, name) or name for name in columns))
        for stripe in range(first, stop):
            rows = self._file.read_stripe(stripe, columns=read)
            for start in range(0, rows.num_rows, BATCH_ROWS):
                yield rows.slice(start, BATCH_ROWS)
