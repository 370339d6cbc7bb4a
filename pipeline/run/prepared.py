"""Prepares the log of impressions that the pipeline reads, from KDD Cup 2012's files, events or delayed labels."""

import pathlib
from collections.abc import Sequence

from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import announce, throttled_announce
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.transforms.histories import EventLog
from ctrpipe.transforms.histories import Prepared as Impressions
from ctrpipe.transforms.histories import prepare as prepare_impressions
from ctrpipe.transforms.kddcup2012 import Options, Prepared, is_kddcup2012, prepare
from ctrpipe.transforms.labels.late_labels import join_late_labels, summary_of
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.queries import told_of_order, written
from ctrpipe.transforms.log.sample import read_sample, spec_of_texts
from ctrpipe.transforms.log.spec import Data
from ctrpipe.transforms.tables.impressions import rows_of_lists
from ctrpipe.transforms.tables.join import join_tables
from ctrpipe.transforms.tables.join import summary_of as joined_summary

DATA = "data"  # the rows of queries
PREPARED = "prepared"
SHOWN = "impressions"  # the rows of lists of impressions
WITH_TABLES = "joined"  # the log with its side tables, which may be prepared further
MADE_OF_LOG = ("tfx", "work", DATA, PREPARED, SHOWN, WITH_TABLES)  # folders that results do not need


def join(folder: pathlib.Path, output: pathlib.Path, options: Options, workers: Workers) -> Prepared:
    """Joins the files of KDD Cup 2012 track 2, with the output folder locked.

    Raises:
        InputError: as in `prepare`; or the output folder cannot be made, or another process works in it.
    """
    check_output(output)
    with one_run_at_a_time(output):
        return prepare(folder, output, options, workers, throttled_announce())


def with_histories(
    paths: Sequence[str],
    events: EventLog,
    output: pathlib.Path,
    seed: int,
    workers: Workers,
    max_bad_row_rate: float = Data.model_fields["max_bad_row_rate"].default,
) -> Impressions:
    """Writes the impressions of an event log, with the output folder locked.

    Raises:
        InputError: as in `ctrpipe.transforms.histories.prepare`; or the output folder cannot be made, or another
            process works in it.
    """
    files = find_files(list(paths))
    spec = spec_of_texts(read_sample(files[0]), events.label, events.columns, ids=[events.user, events.item])
    data = spec.data.model_copy(update={"max_bad_row_rate": max_bad_row_rate})
    check_output(output)
    with one_run_at_a_time(output):
        return prepare_impressions(
            files, spec.model_copy(update={"data": data}), events, output, seed, workers, throttled_announce()
        )


def joined(paths: Sequence[str], config: RunConfig, output: pathlib.Path) -> list[str]:
    """Returns the files and globs of the log that the pipeline reads.

    Each preparation that the configuration asks for writes new files, in this order: the rows of queries and tables to
    `<output>/data`; the rows of lists of impressions to `<output>/impressions`; the join with side tables to
    `<output>/joined`; and an event log, a log with delayed labels or a folder of KDD Cup 2012 to `<output>/prepared`.

    Raises:
        InputError: the files cannot be read or prepared, the output folder cannot be made, or another process works in
            it.
    """
    if config.data.split.by == "order":
        for line in told_of_order(paths):
            announce(line)
    paths = written(paths, output / DATA)
    if config.data.impressions:
        announce("Making rows of the lists of impressions")
        shown = rows_of_lists(paths, config.data.impressions, output / SHOWN)
        announce(
            f"{shown.rows:,} rows of {shown.lists:,} lists; {shown.rejected:,} malformed ones are in {output / SHOWN}"
        )
        paths = [shown.log]
    if config.data.join:
        announce("Joining the log with its tables")
        with_tables = join_tables(paths, config.data.join, output / WITH_TABLES)
        for line in joined_summary(with_tables):
            announce(line)
        paths = [with_tables.log]
    seed = config.data.split.seed  # not the run's: runs of several seeds have the same rows
    if config.events:
        place = output / PREPARED
        announce("Preparing the impressions of the event log")
        rate = config.data.max_bad_row_rate
        made = with_histories(paths, config.events, place, seed, config.workers_for(scratch=place), rate)
        announce(
            f"{sum(made.rows.values()):,} rows of {made.events:,} events; {made.rejected:,} malformed ones are in "
            f"{place / 'dead_letter'}"
        )
        return [made.log]
    if config.data.label_delay:
        place, delay = output / PREPARED, config.data.label_delay
        announce("Joining the log with its labels" if delay.labels else "Leaving out rows whose label may still come")
        late = join_late_labels(list(paths), delay, place, bool(config.training.fake_negatives), seed)
        for line in summary_of(late, delay):
            announce(line)
        return [late.log]
    folders = [path for path in paths if is_kddcup2012(pathlib.Path(path))]
    if not folders or len(paths) > 1:
        return list(paths)
    place = output / PREPARED
    announce(f"Joining the files of {folders[0]}")
    result = join(pathlib.Path(folders[0]), place, Options(seed=seed), config.workers_for(scratch=place))
    rejected = sum(result.rejected.values())
    announce(
        f"{result.rows:,} rows of {result.lines:,} lines; {rejected:,} malformed lines are in {place / 'dead_letter'}"
    )
    return [result.log]
