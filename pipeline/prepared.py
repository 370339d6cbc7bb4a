"""Joins a log that is several files, as KDD Cup 2012's, into one that the pipeline reads."""

import pathlib
from collections.abc import Sequence

from common.processes import Workers
from common.progress import announce, throttled_announce
from pipeline.config import RunConfig
from pipeline.run_folder import check_output, one_run_at_a_time
from transforms.kddcup2012 import Options, Prepared, is_kddcup2012, prepare

PREPARED = "prepared"


def join(folder: pathlib.Path, output: pathlib.Path, options: Options, workers: Workers) -> Prepared:
    """Joins the files of KDD Cup 2012 track 2, with the output folder locked.

    Raises:
        InputError: as `prepare`; or the output folder cannot be made, or another process works in it.
    """
    check_output(output)
    with one_run_at_a_time(output):
        return prepare(folder, output, options, workers, throttled_announce())


def joined(paths: Sequence[str], config: RunConfig, output: pathlib.Path) -> list[str]:
    """Returns the files and globs of a log; for a folder of KDD Cup 2012, the log in `<output>/prepared`.

    Raises:
        InputError: as `join`.
    """
    folders = [path for path in paths if is_kddcup2012(pathlib.Path(path))]
    if not folders or len(paths) > 1:
        return list(paths)
    place = output / PREPARED
    announce(f"Joining the files of {folders[0]}")
    result = join(pathlib.Path(folders[0]), place, Options(seed=config.seed), config.workers_for(scratch=place))
    rejected = sum(result.rejected.values())
    announce(
        f"{result.rows:,} rows of {result.lines:,} lines; {rejected:,} malformed lines are in {place / 'dead_letter'}"
    )
    return [result.log]
