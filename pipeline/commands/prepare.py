"""`ctrpipe prepare`."""

import pathlib
from typing import TYPE_CHECKING, Any

import click

from common.libraries import load_tensorflow
from common.processes import Workers
from pipeline.commands.options import PATH

if TYPE_CHECKING:
    from transforms.kddcup2012 import Prepared


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
    from pipeline.prepared import join
    from transforms.kddcup2012 import Options

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
    from serving.assets import read_log_spec
    from serving.layout import find_version
    from serving.request_rows import write_rows

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
@click.option("--unmatched", help="Label of rows that LABELS lacks, as 0. Default: they are left out.")
def labels(log: str, labels: str, output: pathlib.Path, key: str | None, unmatched: str | None) -> None:
    """Join LOG with a file of LABELS, by the order of the rows or by a key. Both may be quoted globs.

    \b
    Leaves in OUTPUT:
      log/*.parquet              the log with the labels beside its columns, all as text
      dead_letter/rejects.jsonl  malformed rows of both with file, line and reason
      summary.json               counts
    Formats are found as `ctrpipe init` finds them. A label without a name is the column `label`; where LABELS has only
    the key, as a list of clicks has, its rows are the positive ones: --unmatched 0.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from pipeline.labelled import join_labels

    joined = join_labels([log], [labels], output, key, unmatched)
    given = "left out" if unmatched is None else f"labelled {unmatched}"
    click.echo(
        f"{joined.rows:,} rows with {', '.join(joined.label)}; {joined.unmatched:,} without a label, {given}; "
        f"{joined.unused:,} labels of no row; {joined.rejected:,} malformed rows in {output / 'dead_letter'}"
    )
    click.echo(f"Next: ctrpipe init '{joined.log}'")
