"""Files of any format, read as text for conversion."""

from collections.abc import Sequence

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.labels.labelled import TextFiles
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.sample import read_sample, spec_of_texts


def text_files(patterns: Sequence[str], columns: Sequence[str], keys: Sequence[str]) -> TextFiles:
    """Returns the files of some patterns.

    Args:
        patterns: Files and globs.
        columns: The column names of files without a header; empty for files with a header.
        keys: The columns whose values are compared. 123.0 equals 123 in these columns.

    Raises:
        InputError: a file cannot be read, `columns` is given for files that name theirs, or a key is missing.
    """
    files = find_files(list(patterns))
    sample = read_sample(files[0])
    texts = TextFiles(files, sample, spec_of_texts(sample, names=columns, ids=list(keys)))
    check_has(texts, "on", keys)
    return texts


def check_has(files: TextFiles, setting: str, columns: Sequence[str]) -> None:
    """Raises InputError if files lack one of the columns that a setting names."""
    if absent := [name for name in columns if name not in files.names]:
        raise InputError(
            f"{files.files[0]}: {setting} {', '.join(absent)}: no such column; it has {excerpt(', '.join(files.names))}"
            f"{did_you_mean(absent[0], files.names)}"
        )
