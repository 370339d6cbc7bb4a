"""The command `ctrpipe score`."""

import csv
import pathlib
import sys
from typing import TYPE_CHECKING, Any

import click

from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.extras import install, missing, require
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.pipeline.commands.options import MODEL, PATH_OR_URL

if TYPE_CHECKING:
    from ctrpipe.serving.scoring.score import ScoreResult

SHOWN_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@click.command()
@click.option("--model", type=MODEL, required=True, help="A run, DIR/models/<name>, or one version in it.")
@click.option("--input", "inputs", multiple=True, required=True, help="Raw log: a file or quoted glob; repeatable.")
@click.option("--output", type=PATH_OR_URL, required=True, help="Folder or URL for the Parquet files.")
@click.option(
    "--keep", "kept", multiple=True, metavar="A,B", help="Columns to copy to the scores, e.g. id,user; repeatable."
)
@click.option("--workers", type=click.IntRange(1), help="Parts scored in parallel. Default: one per core.")
@click.option("--beam-arg", "beam_args", multiple=True, help="An argument for Beam, e.g. --beam-arg=--runner=...")
def score(
    model: pathlib.Path,
    inputs: tuple[str, ...],
    output: pathlib.Path | str,
    kept: tuple[str, ...],
    workers: int | None,
    beam_args: tuple[str, ...],
) -> None:
    """Score every line of a raw log, labelled or not.

    Runs on this machine, or with --beam-arg as a Beam job. Writes Parquet files with one row per line of the log: file,
    line (from 1), the columns of --keep as texts, ctr, one column per further task, and model_version. Malformed lines
    have no ctr, and are listed in OUTPUT/_dead_letter. A row whose score is not a finite number has no ctr either,
    and the exit code is 1. The exit code is also 1 if rows of JSON contradict each other, with a line that names them.
    OUTPUT/_summary.json has the counts, the throughput, a histogram of the scores, and the distance of each column from
    the training log. Repeat the command to continue an interrupted scoring.
    """
    if beam_args:
        require("pipeline", "--beam-arg")
    load_tensorflow()
    # Lazy: TensorFlow, and TFDV if installed, take 4 s to import.
    from ctrpipe.pipeline.monitoring.score_log import score_log

    result = score_log(model, inputs, output, workers, beam_args, _names(kept))
    _print_result(result)
    if result.mixtures or any(scores["not_finite"] for scores in result.scores.values()):
        sys.exit(BLOCKED)


def _names(kept: tuple[str, ...]) -> list[str]:
    """Returns the names of --keep. A column whose name holds a comma is named in quotes, as in CSV."""
    return [name for row in csv.reader(kept, skipinitialspace=True) for name in row if name]


def _print_result(result: "ScoreResult") -> None:
    from ctrpipe.serving.scoring.score import not_finite, quantile  # lazy: takes 0.3 s, and score_log has imported it

    for column, scores in result.scores.items():
        if scores["mean"] is not None and scores["histogram"] is None:
            say(f"{column}: mean {scores['mean']:.6g}")
        elif scores["mean"] is not None:
            shares = ", ".join(f"{share:.0%} below {quantile(scores, share):.3f}" for share in SHOWN_SHARES)
            say(f"{column}: mean {scores['mean']:.4f}, {shares}")
    for line in [*not_finite(result), *result.mixtures]:
        say(line, err=True)
    if result.drift is None and missing("pipeline"):
        say(f"Drift: not measured, because this needs {missing('pipeline')}; {install('pipeline')}")
    elif result.drift is None:
        say("Drift: unknown, because the model has no statistics of its training rows")
    else:
        _print_drift(result.drift)
    before = f", {result.parts_before} of them by an earlier run" if result.parts_before else ""
    took = f"{result.seconds:.1f} s after {result.start_seconds:.1f} s of start, {result.rows_per_s:,.0f} rows/s"
    say(f"{result.parts} part{'s' if result.parts != 1 else ''}{before}; {took}")
    say(
        f"{result.rows:,} rows in, {result.scored:,} scored, {result.rejected:,} malformed, "
        f"model version {result.model_version}, written to {result.output}"
    )


def _print_drift(drift: dict[str, Any]) -> None:
    columns = drift["columns"]
    far = [column for column in columns if column["breached"]]
    for column in far:
        say(f"Drift: {column['column']}: {column['text']}")
    say(f"Drift: {len(far)} of {len(columns)} columns are further from the training rows than their limit")
