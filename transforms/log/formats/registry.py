"""The formats by name, and the format of a file.

A new format is a file of this folder, with a class that FORMATS names, and a value of `data.format`. Two properties of
LogSpec, `line_or_row` and `separator`, also depend on the format, and transforms/log/sample.py guesses it for `init`.
"""

from collections.abc import Sequence

from ctrpipe.transforms.log.files import open_stored
from ctrpipe.transforms.log.formats.base import Format
from ctrpipe.transforms.log.formats.csv import Csv
from ctrpipe.transforms.log.formats.json_lines import JsonLines
from ctrpipe.transforms.log.formats.parquet import Parquet
from ctrpipe.transforms.log.formats.tsv import Tsv
from ctrpipe.transforms.log.spec import LogSpec

# By `data.format` of the configuration.
FORMATS: dict[str, type[Format]] = {"tsv": Tsv, "csv": Csv, "jsonl": JsonLines, "parquet": Parquet}


def format_of(path: str, spec: LogSpec, columns: Sequence[str], labels: bool) -> Format:
    """Returns the format of a file: the configured one, unless that is a text and the file's first bytes are a mark.

    The files of `ctrpipe prepare requests` are always Parquet, but may be read with the description of a text log.

    Args:
        path: The file. If it cannot be read, the format that is returned reports the error.
        spec: The description of the log.
        columns: See Format.
        labels: See Format.
    """
    configured = FORMATS[spec.data.format]
    kind = configured if configured.mark else _marked(path) or configured
    return kind(spec, columns, labels)


def _marked(path: str) -> type[Format] | None:
    marked = [kind for kind in FORMATS.values() if kind.mark]
    try:
        with open_stored(path) as file:
            first = file.read(max(len(kind.mark) for kind in marked))
    except OSError:
        return None
    return next((kind for kind in marked if first.startswith(kind.mark)), None)
