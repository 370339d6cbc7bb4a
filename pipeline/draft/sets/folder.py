"""The files of a published data set in a folder, and the configuration that is drafted for them."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import by_number
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.sample import LogSample, read_sample

_COMPRESSED = ("", ".gz", ".bz2", ".zst")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".7z", ".rar")
_DEPTHS = ("*", "*/*", "*/*/*")


class SetFolder:
    """The files below a folder, at most three levels deep.

    Omits hidden files, and compressed files with an uncompressed copy beside them.

    Args:
        name: The data set, for messages.
        path: The folder.

    Raises:
        InputError: there is no such folder.
    """

    def __init__(self, name: str, path: pathlib.Path):
        if not path.is_dir():
            raise InputError(f"{path}: no such folder; give the one with the files of {name}")
        self.name, self.path = name, path
        self.lacking: list[str] = []  # sentences about what is not there, and about files that are not read
        files = {file for depth in _DEPTHS for file in path.glob(depth) if file.is_file()}
        once = [file for file in files if file.suffix not in _COMPRESSED[1:] or file.with_suffix("") not in files]
        self._files = sorted((file for file in once if not file.name.startswith(".")), key=lambda f: by_number(str(f)))

    def all(self, pattern: str) -> list[str]:
        """Returns the files whose name matches a pattern, plain or compressed, in the order of their numbers."""
        return [str(file) for file in self._files if any(file.match(pattern + end) for end in _COMPRESSED)]

    def first(self, *patterns: str) -> str | None:
        """Returns the first file that matches the first possible pattern; None if no pattern matches."""
        return next((file for pattern in patterns for file in self.all(pattern)), None)

    def side(self, pattern: str) -> str | None:
        """Returns the first file of a side table that matches a pattern; None, with a sentence, if none does."""
        file = self.first(pattern)
        if file is None:
            self.lacking.append(
                f"{self.path} has no {pattern}: the configuration goes without the columns of this table"
            )
        return file

    def one(self, *patterns: str, without: str = "") -> str:
        """Returns the first file of the first pattern that matches one. A sentence names the other files that match.

        Args:
            patterns: The patterns, the most wanted one first.
            without: The beginning of the names of other files; "" for none.

        Raises:
            InputError: no pattern matches.
        """
        matching = [
            file
            for pattern in patterns
            for file in self.all(pattern)
            if not (without and pathlib.Path(file).name.startswith(without))
        ]
        if not matching:
            self._lack(patterns)
        chosen, *others = dict.fromkeys(matching)
        if others:
            self.lacking.append(f"{chosen} is read, and {excerpt(', '.join(others))} not: a set has one such file")
        return chosen

    def every(self, pattern: str) -> list[str]:
        """Returns the files whose name matches a pattern.

        Raises:
            InputError: no file matches.
        """
        return self.all(pattern) or self._lack([pattern])

    def _lack(self, patterns: Sequence[str]) -> NoReturn:
        present = dict.fromkeys(file.name for file in self._files)
        names = excerpt(", ".join(present)) or "no files, in it and two levels below it"
        archive = next((name for name in present if name.lower().endswith(_ARCHIVES)), None)
        advice = f"; unpack {archive} first" if archive else ""
        raise InputError(
            f"{self.path}: lacks {' or '.join(patterns)} of {self.name}, plain or compressed; it has {names}{advice}"
        )

    def check_columns(self, file: str, columns: Sequence[str]) -> LogSample:
        """Checks that a file with a header has columns, and returns its first rows.

        Raises:
            InputError: a column is missing.
        """
        sample = read_sample(file)
        if absent := [name for name in columns if name not in sample.columns]:
            shown = excerpt(", ".join(sample.columns))
            raise InputError(f"{file}: lacks the column {absent[0]} of {self.name}; it has {shown}")
        return sample

    def check_width(self, file: str, width: int) -> LogSample:
        """Checks that a file without a header has a number of columns, and returns its first rows.

        Raises:
            InputError: it has a header, or more or fewer columns.
        """
        sample = read_sample(file)
        if "columns" not in sample.data or len(sample.columns) != width:
            kind = "without a header" if "columns" in sample.data else "with names"
            raise InputError(
                f"{file}: {len(sample.columns)} columns {kind}; a file of {self.name} has {width} without a header: "
                f"draft another file by `ctrpipe init {file}`, without --dataset"
            )
        return sample


@dataclasses.dataclass(frozen=True)
class KnownSet:
    """A published data set.

    Attributes:
        title: The title in the head of the configuration.
        draft: Returns the `data`, `features` and `events` of a configuration for its files.
    """

    title: str
    draft: Callable[[SetFolder], dict[str, Any]]


def reading(sample: LogSample) -> dict[str, Any]:
    """Returns the keys of `data` for reading a file, without generated column names."""
    return {key: value for key, value in sample.data.items() if key != "columns"}


def parts_by_time(of_events: dict[str, Any]) -> dict[str, Any]:
    """Returns the `events` and `data` of an event log whose impressions are read as Parquet."""
    return {
        "events": of_events,
        "data": {
            "format": "parquet",
            "labels": {"ctr": "label"},
            "split": {"by": "time", "column": "part", "validation_from": "1", "test_from": "2"},
        },
    }
