"""The days of a log. Each day is a folder or a file."""

import dataclasses
import datetime
import itertools
import re
from collections.abc import Sequence

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import by_number
from ctrpipe.common.stores import check_scheme, name_of
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.transforms.log.files import files_below, is_file, matching
from ctrpipe.transforms.log.readers import LogReader

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclasses.dataclass(frozen=True)
class Day:
    """A day of a log: its files, and the name of its folder or file."""

    name: str
    files: tuple[str, ...]


def readable_days(config: RunConfig, patterns: Sequence[str]) -> tuple[Day, ...]:
    """Returns the days that match globs. Checks the columns of each file before any training run starts.

    Raises:
        InputError: see `find_days`; or a file is empty or lacks a column, or a column's type differs between files.
    """
    days = tuple(find_days(patterns))
    if config.events or config.data.join or config.data.impressions or config.data.label_delay:
        return days  # the configuration describes the log that is prepared from the files
    LogReader(config.log_spec).check_all([path for day in days for path in day.files])
    return days


def find_days(patterns: Sequence[str]) -> list[Day]:
    """Returns the days that match globs of folders or files, in the order of `by_number` of their names.

    Raises:
        InputError: nothing matches, a folder is empty, or the dates in the names skip or repeat a day.
    """
    paths = [path for pattern in map(check_scheme, patterns) for path in matching(pattern)]
    days = sorted((Day(name_of(path), _files_of(path)) for path in paths), key=lambda day: by_number(day.name))
    if not days:
        raise InputError(f"--data {' '.join(patterns)}: no day matches; name folders or files, as in 'logs/day=*'")
    if empty := [day.name for day in days if not day.files]:
        raise InputError(f"--data: the folder of {empty[0]} holds no file; add its log, or leave the folder out")
    dates = [_date_of(day.name) for day in days]
    for (first, one), (second, other) in itertools.pairwise(zip(days, dates, strict=True)):
        if first.name == second.name:
            raise InputError(f"--data: {first.name} appears twice; name each day once")
        if one and other and (other - one).days != 1:
            raise InputError(f"--data: after {first.name} comes {second.name}; give every day, each once")
    return days


def _files_of(path: str) -> tuple[str, ...]:
    return (path,) if is_file(path) else tuple(files_below(path))


def _date_of(name: str) -> datetime.date | None:
    match = _DATE.search(name)
    try:
        return datetime.date.fromisoformat(match[0]) if match else None
    except ValueError:  # such as 2026-13-01
        return None
