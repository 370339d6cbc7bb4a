"""The formats by name, and the detection of a file's format.

A new format is a file in this folder, a class in FORMATS, and a value of `data.format`. Two properties of LogSpec,
`line_or_row` and `separator`, also depend on the format, and transforms/log/sample.py detects it for `init`.
"""

from collections.abc import Sequence

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.files import first_bytes, stored_head
from ctrpipe.transforms.log.first_bytes import HEAD_BYTES, binary_format, is_json_array, is_json_lines
from ctrpipe.transforms.log.formats.avro import Avro
from ctrpipe.transforms.log.formats.base import Format
from ctrpipe.transforms.log.formats.columnar import Columnar
from ctrpipe.transforms.log.formats.csv import Csv
from ctrpipe.transforms.log.formats.foreign import OfPackage
from ctrpipe.transforms.log.formats.json_array import JsonArray
from ctrpipe.transforms.log.formats.json_lines import JsonLines
from ctrpipe.transforms.log.formats.orc import Orc
from ctrpipe.transforms.log.formats.parquet import Parquet
from ctrpipe.transforms.log.formats.tsv import Tsv
from ctrpipe.transforms.log.spec import LogSpec

_COLUMNAR: tuple[type[Columnar], ...] = (Parquet, Orc, Avro)
_JSON: tuple[type[Format], ...] = (JsonLines, JsonArray)

# By `data.format` of the configuration.
FORMATS: dict[str, type[Format]] = {
    "tsv": Tsv,
    "csv": Csv,
    "jsonl": JsonLines,
    "json": JsonArray,
    "parquet": Parquet,
    "orc": Orc,
    "avro": Avro,
}


def format_of(path: str, spec: LogSpec, columns: Sequence[str], labels: bool) -> Format:
    """Returns the format of a file: the configured one, unless its first bytes show another.

    A columnar file states its columns, so it can be read with the description of any log: the files of `ctrpipe prepare
    requests` are always Parquet. JSON arrays and JSON lines can also be read with each other's description.

    Args:
        path: The file. If it cannot be read, the returned format reports the error.
        spec: The description of the log.
        columns: See Format.
        labels: See Format.
    """
    name = spec.data.format
    if name not in FORMATS:
        return OfPackage(name, spec, columns, labels)
    kind = FORMATS[name]
    try:
        kind = columnar_of(stored_head(path)) or kind
    except OSError:
        pass  # the format reports it
    if kind in _JSON:
        kind = _of_json(path, spec.data.encoding) or kind
    return kind(spec, columns, labels)


def columnar_of(head: bytes) -> type[Columnar] | None:
    """Returns the columnar format that a file's first bytes show; None for text."""
    name = binary_format(head)
    return next((kind for kind in _COLUMNAR if kind.name == name), None)


def _of_json(path: str, encoding: str) -> type[Format] | None:
    try:
        head = first_bytes(path, HEAD_BYTES, encoding)
    except InputError:
        return None
    if is_json_array(head):
        return JsonArray
    return JsonLines if is_json_lines(head) else None
