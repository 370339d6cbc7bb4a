"""`ctrpipe prepare`."""

import pathlib
from typing import TYPE_CHECKING, Any

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.commands.options import PATH

if TYPE_CHECKING:
    from ctrpipe.transforms.kddcup2012 import Prepared


@click.group()
def prepare() -> None:
    """Make a log that `ctrpipe run`, `score` and `drift` read out of other files."""


@prepare.command()
@click.argument("folder", type=PATH)
@click.argument("output", type=PATH)
@click.option("--rows", type=click.IntRange(1), help="Only so many lines of the training file.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the split.")
@click.option("--test", type=float, default=1 / 11, help="Share of the lines for the test.  [default: 1/11]")
@click.option("--validation", type=float, default=0.05, show_default=True, help="Share of the others for validation.")
@click.option("--prior-impressions", type=float, default=20.0, show_default=True, help="How far rates are smoothed.")
@click.option(
    "--folds",
    type=int,
    default=5,
    show_default=True,
    help="Each line is in one of so many folds; its counts of the past are those of the others.",
)
@click.option("--max-bad-row-rate", type=float, default=0.01, show_default=True, help="Of each file.")
@click.option("--workers", type=click.IntRange(1), help="Processes at most. Default: one a core.")
@click.option("--beam-arg", "beam_args", multiple=True, help="An argument for Beam, which then does the work.")
def kddcup2012(
    folder: pathlib.Path,
    output: pathlib.Path,
    rows: int | None,
    workers: int | None,
    beam_args: tuple[str, ...],
    **options: Any,
) -> None:
    """Join the seven files of KDD Cup 2012 track 2 in FOLDER, and count each line's past.

    \b
    Leaves in OUTPUT:
      log/*.parquet              the log, a row an impression: click, part, position, 11 ids, 2 texts, 45 numbers
      dead_letter/rejects.jsonl  malformed lines of all files with file, line and reason
      summary.json               counts
    A line, with all its impressions, is in one part of the log. Running it again continues an interrupted run.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.run.prepared import join
    from ctrpipe.transforms.kddcup2012 import Options

    processes = Workers(workers, beam_args, scratch=output)
    _print_counts(join(folder, output, Options(most_lines=rows, **options), processes))


@prepare.command()
@click.argument("folder", type=PATH)
@click.argument("output", type=PATH)
@click.option("--model", type=PATH, required=True, help="DIR/models/<name>, or one version in it: the served model.")
def requests(folder: pathlib.Path, output: pathlib.Path, model: pathlib.Path) -> None:
    """Turn the requests that `ctrpipe serve --request_log` wrote into a log without labels, the Parquet file OUTPUT.

    \b
    FOLDER is the model's own in that of the server, such as requests/ctr. A row is one that was asked about:
      the columns of the log  as they came, in the signatures with raw columns and in tf.Examples
      request_time            seconds since 1970
      model_version           the version that answered
      served_<task>           the probability that was answered
    Requests with packed tensors have no columns; they are counted. `ctrpipe drift --kind skew` and `score` read OUTPUT.
    """
    load_tensorflow()
    # TensorFlow: 4 s that `ctrpipe --help` does without.
    from ctrpipe.serving.assets import read_log_spec
    from ctrpipe.serving.layout import find_version
    from ctrpipe.serving.server.request_rows import write_rows

    written = write_rows(folder, read_log_spec(find_version(model)), output)
    for signature, count in sorted(written.skipped.items()):
        click.echo(f"{count:,} requests to {signature} have no raw columns")
    click.echo(
        f"{written.rows:,} rows of {written.requests:,} requests in {written.files:,} files, written to {output}"
    )


def _print_counts(joined: "Prepared") -> None:
    rejected = sum(joined.rejected.values())
    click.echo(f"{joined.lines:,} lines in; {rejected:,} malformed lines in all files, in dead_letter/rejects.jsonl")
    for reason, count in sorted(joined.reasons.items()):
        click.echo(f"  {count:,} x {reason}")
    for part, lines in joined.split.items():
        rate = joined.clicks[part] / max(joined.impressions[part], 1)
        click.echo(f"{part}: {lines:,} lines, {joined.impressions[part]:,} impressions, click-through rate {rate:.4f}")
    absent = ", ".join(f"{name} {count:,}" for name, count in joined.without_partner.items() if count)
    click.echo(f"Lines with an id that its table lacks, whose values are missing: {absent or 'none'}")
    click.echo(
        f"{joined.rows:,} rows: --data '{joined.log}'" + (f", and {joined.public_test}" if joined.public_test else "")
    )


@prepare.command()
@click.argument("log")
@click.argument("labels")
@click.argument("output", type=PATH)
@click.option("--key", help="A column of both. Default: the n-th row of one belongs to the n-th of the other.")
@click.option("--unmatched", help="Label of rows that LABELS lacks, as 0. Default: they are left out; with --delay 0.")
@click.option("--time", help="Labels that arrive late: the column of a row's time.")
@click.option("--delay", help="How long a label may take, as 90m, 12h or 3d. Rows that are newer are left out.")
@click.option("--label-time", help="The column of LABELS with the label's time: one after the delay does not count.")
@click.option("--until", help="When the log was cut. Default: the newest time in both files.")
@click.option("--since", help="When the last training's log was cut: what was known then is left out.")
@click.option("--time-format", help="How times are written, as `format` of a column of times. Default: by their form.")
@click.option(
    "--fake-negatives",
    is_flag=True,
    help="Rows do not wait: a negative at once, and a positive beside it when its label comes. A column `part` says "
    "which rows wait, to validate (1) and to test (2).",
)
@click.option("--validation", type=float, help="Of --fake-negatives: the share of rows that validate. Default: 0.1.")
@click.option("--test", type=float, help="The same of those that test. Default: 0.1.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the draw of these rows, by their keys.")
def labels(
    log: str,
    labels: str,
    output: pathlib.Path,
    key: str | None,
    unmatched: str | None,
    fake_negatives: bool,
    seed: int,
    **times: Any,
) -> None:
    """Join LOG with a file of LABELS, by the order of the rows or by a key. Both may be quoted globs.

    \b
    Leaves in OUTPUT:
      log/*.parquet              the log with the labels beside its columns, all as text
      dead_letter/rejects.jsonl  malformed rows of both with file, line and reason
      summary.json               counts
    Formats are found as `ctrpipe init` finds them. A label without a name is the column `label`; where LABELS has only
    the key (and a time), as a list of clicks has, its rows are the positive ones: --unmatched 0.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.commands.prepare_options import label_delay_of_options
    from ctrpipe.transforms.labels.labelled import join_labels
    from ctrpipe.transforms.labels.late_labels import join_late_labels, summary_of

    delay = label_delay_of_options(labels, {"key": key, "unmatched": unmatched, **times})
    if delay is None:
        if fake_negatives:
            raise InputError("--fake-negatives needs --time, --delay and --label-time")
        joined = join_labels([log], [labels], output, key, unmatched)
        given = "left out" if unmatched is None else f"labelled {unmatched}"
        click.echo(
            f"{joined.rows:,} rows with {', '.join(joined.label)}; {joined.unmatched:,} without a label, {given}; "
            f"{joined.unused:,} labels of no row; {joined.rejected:,} malformed rows in {output / 'dead_letter'}"
        )
        click.echo(f"Next: ctrpipe init '{joined.log}'")
        return
    late = join_late_labels([log], delay, output, fake_negatives, seed)
    for line in summary_of(late, delay):
        click.echo(line)
    if fake_negatives:
        click.echo(
            f"Next: --data '{late.log}', with training.fake_negative_weighting, and data.split "
            "{by: time, column: part, validation_from: '1', test_from: '2'}"
        )
    else:
        click.echo(f"Next: ctrpipe init '{late.log}'")


@prepare.command()
@click.argument("log", nargs=-1, required=True)
@click.argument("output", type=PATH)
@click.option("--config", type=PATH, help="A configuration with `events`, in place of the options up to --draw.")
@click.option("--user", default="user", show_default=True, help="Column of the user.")
@click.option("--item", default="item", show_default=True, help="Column of the item.")
@click.option("--time", default="time", show_default=True, help="Column of the time: numbers, or ISO 8601.")
@click.option("--time-format", help="A pattern of strptime for the times.")
@click.option("--columns", metavar="A,B,...", help="Names of the columns of a log without a header.")
@click.option("--label", help="Column of 0 and 1. Default: every event is a positive one.")
@click.option("--threshold", type=float, help="Events whose --label is at least this number are positive.")
@click.option("--item-column", "item_columns", multiple=True, help="A column that belongs to the item; repeatable.")
@click.option("--sequence", "sequences", multiple=True, help="A column that histories have too; repeatable.")
@click.option("--time-gaps", is_flag=True, default=None, help="Histories have how long ago each event was, too.")
@click.option("--history-of", type=click.Choice(["positive", "all"]), default="positive", show_default=True)
@click.option("--max-length", type=click.IntRange(1), default=50, show_default=True, help="Items of a history.")
@click.option("--split", type=click.Choice(["time", "leave_one_out"]), default="time", show_default=True)
@click.option("--validation", type=float, default=0.1, show_default=True, help="Share of the events, by time.")
@click.option("--test", type=float, default=0.1, show_default=True, help="Share of the events, by time.")
@click.option("--validation-from", help="The first time of the validation part, in place of shares.")
@click.option("--test-from", help="The first time of the test part.")
@click.option("--negatives", type=click.IntRange(0), default=0, show_default=True, help="Drawn for a positive event.")
@click.option("--test-negatives", type=click.IntRange(0), help="The same for the test. Default: --negatives.")
@click.option("--draw", type=click.Choice(["uniform", "popularity"]), default="uniform", show_default=True)
@click.option("--max-bad-row-rate", type=float, default=0.01, show_default=True, help="Of the event log.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the negatives and the rows' order.")
@click.option("--workers", type=click.IntRange(1), help="Processes at most. Default: one a core.")
@click.option("--beam-arg", "beam_args", multiple=True, help="An argument for Beam, which then does the work.")
def history(
    log: tuple[str, ...],
    output: pathlib.Path,
    config: pathlib.Path | None,
    max_bad_row_rate: float,
    seed: int,
    workers: int | None,
    beam_args: tuple[str, ...],
    **options: Any,
) -> None:
    """Turn an event LOG (files or quoted globs) into impressions with what their users did before.

    \b
    Leaves in OUTPUT:
      log/*.parquet              the impressions: label, part (0 training, 1 validation, 2 test), weight where negatives
                                 are drawn, the columns of the log, and <column>_history
      dead_letter/rejects.jsonl  malformed events with file, line and reason
      summary.json               counts
    A history has only what is earlier than its event. `ctrpipe run` does the same by a configuration's key `events`.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.commands.prepare_options import events_of_options
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.run.prepared import with_histories

    events = load_config(config, ()).events if config else events_of_options(options)
    if events is None:
        raise InputError(f"{config}: it has no `events`, the columns of an event log; name them in it")
    processes = Workers(workers, beam_args, scratch=output)
    made = with_histories(log, events, output, seed, processes, max_bad_row_rate)
    click.echo(
        f"{made.events:,} events of {made.users:,} users and {made.items:,} items; {made.rejected:,} malformed ones in "
        "dead_letter/rejects.jsonl"
    )
    for reason, count in sorted(made.reasons.items()):
        click.echo(f"  {count:,} x {reason}")
    for part, rows in made.rows.items():
        click.echo(f"{part}: {rows:,} rows, {made.positives[part]:,} of them positive")
    click.echo(f"{made.without_history:,} rows without a history")
    if made.short:
        click.echo(f"{made.short:,} events have fewer negatives than asked for: no more items were known then")
    click.echo(f"Columns: {', '.join(made.columns)}")
    click.echo(
        f"Next: --data '{made.log}', with data.split {{by: time, column: part, validation_from: '1', test_from: '2'}}"
    )
