"""CSV: values separated by commas, or by `data.delimiter`, which may be quoted (RFC 4180)."""

from collections.abc import Iterator, Sequence

from ctrpipe.transforms.log.files import Range
from ctrpipe.transforms.log.formats.delimited import Delimited
from ctrpipe.transforms.log.lines import Lines, whole_records


class Csv(Delimited):
    """Reads CSV. With `data.quoted_line_breaks`, a file is one range, because a value may contain a line break."""

    quoted = True

    def ranges(self, path: str) -> list[Range]:
        return self.whole(path) if self._spec.data.quoted_line_breaks else super().ranges(path)

    def _lines(self, chunks: Iterator[bytes], names: Sequence[str]) -> Iterator[Lines]:
        if self._spec.data.quoted_line_breaks:
            return whole_records(map(self._notation.prepared, chunks), self._delimiter, len(names))
        return super()._lines(chunks, names)
