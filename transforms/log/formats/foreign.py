"""Runs a reader of an installed package (docs/hooks.md). Reports failures and wrong results as one-line errors."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.batches import RawBatch
from ctrpipe.transforms.log.files import Range
from ctrpipe.transforms.log.formats.base import Format
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import is_list


class OfPackage(Format):
    """Reads files with a reader of an installed package, and checks its results.

    Args:
        name: The name of the reader.
        spec, columns, labels: See Format.

    Raises:
        InputError: the reader is not installed, cannot be created, or is not a Format.
    """

    def __init__(self, name: str, spec: LogSpec, columns: Sequence[str], labels: bool):
        super().__init__(spec, columns, labels)
        self._name = name
        kind = hooks.load("readers", name)
        if not (isinstance(kind, type) and issubclass(kind, Format)):
            raise InputError(f"the reader {name} is {kind!r}, not a subclass of Format; see docs/hooks.md")
        with hooks.failures("readers", name):
            self._reader = kind(spec, columns, labels)

    def whole(self, path: str) -> list[Range]:
        with hooks.failures("readers", self._name):
            return self._checked(self._reader.whole(path))

    def ranges(self, path: str) -> list[Range]:
        with hooks.failures("readers", self._name):
            return self._checked(self._reader.ranges(path))

    def read(self, part: Range) -> Iterator[RawBatch]:
        with hooks.failures("readers", self._name):
            batches = iter(self._reader.read(part))
        while True:
            with hooks.failures("readers", self._name):
                batch = next(batches, None)
            if batch is None:
                return
            self._check(part.path, batch)
            yield batch

    def row_count(self, path: str) -> int | None:  # type: ignore[override]  # of an instance: it has the package's name
        with hooks.failures("readers", self._name):
            return self._reader.row_count(path)

    def _checked(self, parts: list[Range]) -> list[Range]:
        if not (isinstance(parts, list) and all(isinstance(part, Range) for part in parts)):
            raise InputError(
                f"the reader {self._name} returned {type(parts).__name__}, not a list of Range; correct it"
            )
        return parts

    def _check(self, path: str, batch: RawBatch) -> None:
        """Raises InputError if a batch does not meet the description of RawBatch."""
        if not isinstance(batch, RawBatch):
            raise self._wrong(path, f"{type(batch).__name__}, no RawBatch")
        numeric, lists = self._spec.numeric_columns, self._spec.vector_lengths
        for name in self._columns:
            if name not in batch.columns:
                raise self._wrong(path, f"no column {name}")
            values = batch.columns[name]
            if not isinstance(values, pa.Array):
                raise self._wrong(path, f"{type(values).__name__} for the column {name}, no Arrow array")
            if len(values) != len(batch.lines):
                raise self._wrong(path, f"{len(values):,} values of the column {name} for {len(batch.lines):,} rows")
            is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
            if not (
                pa.types.is_binary(values.type)
                or (name in numeric and is_number)
                or (name in lists and is_list(values.type))
            ):
                also = " or of numbers" if name in numeric else " or of lists" if name in lists else ""
                raise self._wrong(path, f"the type {values.type} for the column {name}, which must be binary{also}")

    def _wrong(self, path: str, what: str) -> InputError:
        return InputError(f"{path}: the reader {self._name} returned {what}; correct it")
