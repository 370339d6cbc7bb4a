"""The command `ctrpipe prepare`."""

import pathlib
from typing import TYPE_CHECKING, Any

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.processes import Workers
from ctrpipe.common.store_folders import Output, written_file, written_output
from ctrpipe.pipeline.commands.options import CONFIG, MODEL, PATH, PATH_OR_URL, pattern_order
from ctrpipe.serving.layout import find_version

if TYPE_CHECKING:
    from ctrpipe.transforms.kddcup2012 import Prepared


@click.group()
def prepare() -> None:
    """Convert other files to a log.

    `ctrpipe run`, `score` and `drift` read the resulting log.
    """


@prepare.command()
@click.argument("folder", type=PATH)
@click.argument("output", type=PATH_OR_URL)
@click.option("--rows", type=click.IntRange(1), help="Read only this many lines of the training file.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed of the split.")
@click.option("--test", type=float, default=1 / 11, help="Share of lines in the test part.  [default: 1/11]")
@click.option("--validation", type=float, default=0.05, show_default=True, help="Share of the others for validation.")
@click.option("--prior-impressions", type=float, default=20.0, show_default=True, help="Weight of the prior in rates.")
@click.option(
    "--folds",
    type=int,
    default=5,
    show_default=True,
    help="Number of folds. The past clicks and impressions of a line are counted in the other folds.",
)
@click.option(
    "--max-bad-row-rate", type=float, default=0.01, show_default=True, help="Maximum share of malformed rows per file."
)
@click.option("--workers", type=click.IntRange(1), help="Maximum number of processes. Default: one per core.")
@click.option("--beam-arg", "beam_args", multiple=True, help="Argument for Beam, which then does the work; repeatable.")
def kddcup2012(
    folder: pathlib.Path,
    output: pathlib.Path | str,
    rows: int | None,
    workers: int | None,
    beam_args: tuple[str, ...],
    **options: Any,
) -> None:
    """Join the files of KDD Cup 2012 track 2 into a log.

    Reads the seven files in FOLDER, and counts the past clicks and impressions of each line.

    \b
    Writes to OUTPUT:
      log/*.parquet              the log, one row per impression: click, part,
                                 position, 11 ids, 2 texts, 45 numbers
      dead_letter/rejects.jsonl  malformed lines with file, line and reason
      summary.json               counts

    All impressions of a line are in the same part. Repeat the command to continue an interrupted run.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.run.prepared import join
    from ctrpipe.transforms.kddcup2012 import Options

    with written_output(output) as place:
        processes = Workers(workers, beam_args, scratch=place.folder)
        joined = join(folder, place.folder, Options(most_lines=rows, **options), processes)
    _print_counts(joined, place)


@prepare.command()
@click.argument("folder", type=PATH)
@click.argument("output", type=PATH_OR_URL)
@click.option("--model", type=MODEL, required=True, help="The served model: a run, DIR/models/<name>, or a version.")
def requests(folder: pathlib.Path, output: pathlib.Path | str, model: pathlib.Path) -> None:
    """Convert logged serving requests to a log.

    Reads what `ctrpipe serve --request_log` wrote for one model to FOLDER, such as requests/ctr. Writes a log without
    labels, the Parquet file OUTPUT, with one row per row of a request:

    \b
      the columns of the log  as received, from signatures with raw columns and
                              from tf.Examples
      request_time            seconds since 1970
      model_version           the version that responded
      served_<task>           the predicted probability

    Requests with packed tensors have no raw columns: they are skipped and counted. `ctrpipe drift --kind skew` and
    `score` read OUTPUT.
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 4 s to import.
    from ctrpipe.serving.assets import read_log_spec
    from ctrpipe.serving.server.request_rows import write_rows

    with written_file(output) as place:
        written = write_rows(folder, read_log_spec(find_version(model)), place.folder / pathlib.Path(output).name)
    for signature, count in sorted(written.skipped.items()):
        say(f"{count:,} requests to {signature} have no raw columns")
    say(f"{written.rows:,} rows of {written.requests:,} requests in {written.files:,} files, written to {output}")


def _print_counts(joined: "Prepared", place: Output) -> None:
    rejected = sum(joined.rejected.values())
    say(f"{joined.lines:,} lines in; {rejected:,} malformed lines in all files, in dead_letter/rejects.jsonl")
    for reason, count in sorted(joined.reasons.items()):
        say(f"  {count:,} x {reason}")
    for part, lines in joined.split.items():
        rate = joined.clicks[part] / max(joined.impressions[part], 1)
        say(f"{part}: {lines:,} lines, {joined.impressions[part]:,} impressions, click-through rate {rate:.4f}")
    absent = ", ".join(f"{name} {count:,}" for name, count in joined.without_partner.items() if count)
    say(f"Lines with an id that its table lacks, whose values are missing: {absent or 'none'}")
    also = f", and {place.shown(joined.public_test)}" if joined.public_test else ""
    say(f"{joined.rows:,} rows: --data '{place.shown(joined.log)}'{also}")


@prepare.command()
@click.argument("log")
@click.argument("labels")
@click.argument("output", type=PATH_OR_URL)
@click.option("--key", help="Join column of both files. Default: join the n-th row of LOG with the n-th of LABELS.")
@click.option("--unmatched", help="Label of rows without one. Default: drop these rows; with --delay, label them 0.")
@click.option("--time", help="With late labels: the column of LOG with the time of the row.")
@click.option("--delay", help="Maximum delay of a label: 90m, 12h or 3d. Newer rows are left out.")
@click.option("--label-time", help="The column of LABELS with the time of the label. Labels after --delay are ignored.")
@click.option("--until", help="Time when the log was cut. Default: the newest time in both files.")
@click.option("--since", help="Time when the log of the last training was cut. Rows complete by then are left out.")
@click.option("--time-format", help="Format of the times, as in a `time` feature. Default: inferred from the values.")
@click.option(
    "--fake-negatives",
    is_flag=True,
    help="Write each row at once as a negative, and again as a positive when its label arrives. Only rows for "
    "validation (`part` 1) and test (`part` 2) wait for their labels.",
)
@click.option("--validation", type=float, help="With --fake-negatives: share of validation rows. Default: 0.1.")
@click.option("--test", type=float, help="With --fake-negatives: share of test rows. Default: 0.1.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the hash that selects these rows by key.")
def labels(
    log: str,
    labels: str,
    output: pathlib.Path | str,
    key: str | None,
    unmatched: str | None,
    fake_negatives: bool,
    seed: int,
    **times: Any,
) -> None:
    """Join a log with a file of labels.

    Joins LOG and LABELS by row order or by a key. Both may be quoted globs.

    \b
    Writes to OUTPUT:
      log/*.parquet              the columns of the log and the labels, as text
      dead_letter/rejects.jsonl  malformed rows of both with file, line and reason
      summary.json               counts

    File formats are inferred as in `ctrpipe init`. A label without a name becomes the column `label`. If LABELS has
    only the key (and a time), such as a list of clicks, its rows are the positives: use --unmatched 0.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.commands.prepare_options import label_delay_of_options
    from ctrpipe.transforms.labels.labelled import join_labels
    from ctrpipe.transforms.labels.late_labels import join_late_labels, summary_of

    delay = label_delay_of_options(labels, {"key": key, "unmatched": unmatched, **times})
    if delay is None:
        if fake_negatives:
            raise InputError("--fake-negatives needs --time, --delay and --label-time")
        with written_output(output) as place:
            joined = join_labels([log], [labels], place.folder, key, unmatched)
        given = "left out" if unmatched is None else f"labelled {unmatched}"
        say(
            f"{joined.rows:,} rows with {', '.join(joined.label)}; {joined.unmatched:,} without a label, {given}; "
            f"{joined.unused:,} labels of no row; {joined.rejected:,} malformed rows in {place.name}/dead_letter"
        )
        click.echo(next_steps([command_name(), "init", place.shown(joined.log)]))
        return
    with written_output(output) as place:
        late = join_late_labels([log], delay, place.folder, fake_negatives, seed)
    for line in summary_of(late, delay):
        say(place.shown(line))
    if fake_negatives:
        say("Next, in a configuration with training.fake_negative_weighting:")
        click.echo(_of_parts(place.shown(late.log)))
    else:
        click.echo(next_steps([command_name(), "init", place.shown(late.log)]))


@prepare.command()
@click.argument("log", nargs=-1, required=True, callback=pattern_order)
@click.argument("output", type=PATH_OR_URL)
@click.option("--column", default="impressions", show_default=True, help="Column of the lists.")
@click.option("--separator", default=" ", help="Separator between two items.  [default: a blank]")
@click.option("--label-separator", default="-", show_default=True, help="Separator between an item and its label.")
@click.option("--item", default="item", show_default=True, help="Name of the new item column.")
@click.option("--label", default="label", show_default=True, help="Name of the new label column.")
@click.option("--columns", metavar="A,B,...", help="Column names of a log without a header.")
def impressions(log: tuple[str, ...], output: pathlib.Path | str, columns: str | None, **options: str) -> None:
    """Convert lists of impressions, such as MIND's, to rows.

    LOG is files or quoted globs. Each of their rows lists the items that were shown together, such as N55689-1
    N35729-0. Each item becomes a row.

    \b
    Writes to OUTPUT:
      log/*.parquet              the columns of the log except the list, the item
                                 and its label, all as text
      dead_letter/rejects.jsonl  malformed rows with file, line and reason
      summary.json               counts

    `ctrpipe run` does the same if the configuration has the key `data.impressions`.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.commands.prepare_options import impressions_of_options
    from ctrpipe.transforms.tables.impressions import rows_of_lists

    lists = impressions_of_options({**options, "columns": columns.split(",") if columns else []})
    with written_output(output) as place:
        shown = rows_of_lists(log, lists, place.folder)
    say(f"{shown.rows:,} rows of {shown.lists:,} lists; {shown.rejected:,} malformed rows in dead_letter/")
    click.echo(next_steps([command_name(), "init", place.shown(shown.log)]))


@prepare.command()
@click.argument("log")
@click.argument("tables", nargs=-1, required=True)
@click.option(
    "--on",
    multiple=True,
    required=True,
    help="Key of a table: COLUMN, COLUMN,COLUMN or LOG=TABLE. Once for each table, or once for all.",
)
@click.option("--as-of", help="Column of LOG with the time of the row, for tables with --time.")
@click.option("--time", multiple=True, help="Column of a table with the time from which a row holds; - for none.")
@click.option("--prefix", multiple=True, help="Prefix of the columns from a table; - for none.")
@click.option(
    "--duplicates",
    multiple=True,
    type=click.Choice(["refuse", "first", "last"]),
    help="What to do if several rows have the same key.  [default: refuse]",
)
@click.option("--time-format", help="Format of the times of LOG, as in a `time` feature. Default: inferred.")
@click.option("--columns", metavar="A,B,...", help="Column names of a LOG without a header.")
@click.option("--output", type=PATH_OR_URL, default="joined", show_default=True, help="Output folder or URL.")
def join(
    log: str,
    tables: tuple[str, ...],
    output: pathlib.Path | str,
    as_of: str | None,
    time_format: str | None,
    columns: str | None,
    **options: tuple[str, ...],
) -> None:
    """Join a log with side tables, such as users and items.

    LOG and TABLES are files or quoted globs. Each row of LOG gets the columns of the row with its key, or missing
    values. With --as-of and --time, it gets the newest of the older rows with its key, and no value from the future.

    \b
    Writes to OUTPUT:
      log/*.parquet              the columns of the log and the tables, as text
      dead_letter/rejects.jsonl  malformed rows with file, line and reason
      summary.json               counts

    File formats are inferred as in `ctrpipe init`. The tables may be larger than the memory. `ctrpipe run` does the
    same join if the configuration has the key `data.join`.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.commands.prepare_options import join_of_options
    from ctrpipe.transforms.tables.join import join_tables, summary_of

    of_log = {"as_of": as_of, "time_format": time_format, "columns": columns.split(",") if columns else None}
    with written_output(output) as place:
        made = join_tables([log], join_of_options(tables, options, of_log), place.folder)
    for line in summary_of(made):
        say(place.shown(line))
    click.echo(next_steps([command_name(), "init", place.shown(made.log)]))


@prepare.command()
@click.argument("log", nargs=-1, required=True, callback=pattern_order)
@click.argument("output", type=PATH_OR_URL)
@click.option("--config", type=CONFIG, help="Configuration with `events`. Replaces the options up to --draw.")
@click.option("--user", default="user", show_default=True, help="User column.")
@click.option("--item", default="item", show_default=True, help="Item column.")
@click.option("--time", default="time", show_default=True, help="Time column: numbers, or ISO 8601.")
@click.option("--time-format", help="The strptime pattern of the times.")
@click.option("--columns", metavar="A,B,...", help="Column names of a log without a header.")
@click.option("--label", help="Column of 0 and 1. Default: every event is positive.")
@click.option("--threshold", type=float, help="Events whose --label is at least this number are positive.")
@click.option("--item-column", "item_columns", multiple=True, help="A column that belongs to the item; repeatable.")
@click.option("--sequence", "sequences", multiple=True, help="A further column to build histories of; repeatable.")
@click.option("--time-gaps", is_flag=True, default=None, help="Also write how long ago each event of a history was.")
@click.option(
    "--history-of",
    type=click.Choice(["positive", "all"]),
    default="positive",
    show_default=True,
    help="Events of a history.",
)
@click.option(
    "--max-length", type=click.IntRange(1), default=50, show_default=True, help="Maximum length of a history."
)
@click.option(
    "--split",
    type=click.Choice(["time", "leave_one_out"]),
    default="time",
    show_default=True,
    help="Test rows: the newest ones, or each user's last.",
)
@click.option("--validation", type=float, default=0.1, show_default=True, help="Share of the events, by time.")
@click.option("--test", type=float, default=0.1, show_default=True, help="Share of the events, by time.")
@click.option("--validation-from", help="Start time of the validation part, instead of shares.")
@click.option("--test-from", help="Start time of the test part.")
@click.option("--negatives", type=click.IntRange(0), default=0, show_default=True, help="Negatives per positive event.")
@click.option("--test-negatives", type=click.IntRange(0), help="The same for the test part. Default: --negatives.")
@click.option(
    "--draw",
    type=click.Choice(["uniform", "popularity"]),
    default="uniform",
    show_default=True,
    help="How negatives are drawn.",
)
@click.option(
    "--max-bad-row-rate", type=float, default=0.01, show_default=True, help="Maximum share of malformed events."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed of the negatives and the row order.")
@click.option("--workers", type=click.IntRange(1), help="Maximum number of processes. Default: one per core.")
@click.option("--beam-arg", "beam_args", multiple=True, help="Argument for Beam, which then does the work; repeatable.")
def history(
    log: tuple[str, ...],
    output: pathlib.Path | str,
    config: pathlib.Path | None,
    max_bad_row_rate: float,
    seed: int,
    workers: int | None,
    beam_args: tuple[str, ...],
    **options: Any,
) -> None:
    """Convert an event log to impressions with histories.

    LOG is files or quoted globs.

    \b
    Writes to OUTPUT:
      log/*.parquet              the impressions: label, part (0 training,
                                 1 validation, 2 test), weight (with negatives),
                                 the columns of the log, and <column>_history
      dead_letter/rejects.jsonl  malformed events with file, line and reason
      summary.json               counts

    The history of an impression contains only earlier events of the user. `ctrpipe run` does the same conversion if the
    configuration has the key `events`.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.commands.prepare_options import events_of_options
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.run.prepared import with_histories

    events = load_config(config, ()).events if config else events_of_options(options)
    if events is None:
        raise InputError(f"{config}: it has no section `events`; add the columns of the event log to it")
    with written_output(output) as place:
        processes = Workers(workers, beam_args, scratch=place.folder)
        made = with_histories(log, events, place.folder, seed, processes, max_bad_row_rate)
    say(
        f"{made.events:,} events of {made.users:,} users and {made.items:,} items; {made.rejected:,} malformed ones in "
        "dead_letter/rejects.jsonl"
    )
    for reason, count in sorted(made.reasons.items()):
        say(f"  {count:,} x {reason}")
    for part, rows in made.rows.items():
        say(f"{part}: {rows:,} rows, {made.positives[part]:,} of them positive")
    say(f"{made.without_history:,} rows without a history")
    if made.short:
        say(f"{made.short:,} events have fewer negatives than asked for: no more items were known then")
    say(f"Columns: {', '.join(made.columns)}")
    click.echo(f"Next, in a configuration:\n{_of_parts(place.shown(made.log))}")


def _of_parts(log: str) -> str:
    """Returns the lines of a configuration for a log whose column `part` gives the split of each row."""
    return f"""  data:
    paths: ['{log.replace("'", "''")}']
    split: {{by: time, column: part, validation_from: '1', test_from: '2'}}"""
