"""The command `ctrpipe init`."""

import pathlib

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.extras import COMMANDS, require
from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import fetch_file
from ctrpipe.pipeline.commands.options import PATH_OR_URL, pattern_order
from ctrpipe.pipeline.commands.tune import tune


@click.command()
@click.argument("log", nargs=-1, required=True, callback=pattern_order)
@click.option("--output", type=PATH_OR_URL, help="File to write, or its URL. Default: <name of the log>.yaml here.")
@click.option("--label", help="The label column. Default: the most likely one.")
@click.option("--time", help="Split the log by the time in this column: the last tenth of the time is the test split.")
@click.option("--user", help="User column. It is a feature; without --time, all rows of a user are in the same split.")
@click.option("--group", help="Split the log by this column: all rows with the same value are in the same split.")
@click.option("--weight", help="Column of row weights.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column that is not a feature; repeatable.")
@click.option("--delimiter", help="Delimiter between two values, such as ';' or '::'. Default: inferred.")
@click.option("--dataset", metavar="NAME", help="LOG is the folder of this published data set; see above.")
@click.option(
    "--budget",
    metavar="TIME",
    help="Run `ctrpipe tune` on the draft for this time, e.g. 5m or 2h, in runs/<name>-tune.",
)
@click.pass_context
def init(
    context: click.Context,
    log: tuple[str, ...],
    output: pathlib.Path | str | None,
    label: str | None,
    time: str | None,
    user: str | None,
    group: str | None,
    weight: str | None,
    drop: tuple[str, ...],
    delimiter: str | None,
    dataset: str | None,
    budget: str | None,
) -> None:
    """Draft a configuration from the first rows of LOG.

    Infers the format, the header, the kind of each column and the label from the first 10,000 rows, and proposes a
    model, its training and its gates by the number of rows, columns and clicks. The commented configuration runs
    without changes. Guesses to check are printed, and marked with ? in the file. If `--label` names a column of
    numbers, such as a watch time, the model predicts it in addition to the clicks.

    `--dataset` recognizes the files of a published data set in the folder LOG by their names and columns: criteo,
    criteo_1tb, avazu, kddcup2012, movielens, mind, taobao, kuairand or amazon. Nothing is downloaded.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.draft.page import Said, draft, draft_of_known, write_draft

    if budget:
        require(COMMANDS["tune"], "--budget")
        # Lazy: takes 0.5 s, and only this option needs it. A mistake in it ends the command before it writes a file.
        from ctrpipe.pipeline.tune.plan import read_budget

        read_budget(budget, None)
    said = Said(label, time, user, group, weight, drop, delimiter)
    text, unsure = draft_of_known(dataset, log, said) if dataset else draft(log, said=said)
    path = write_draft(text, output)
    own = command_name()
    for sentence in unsure:
        say(f"Unsure: {sentence}")
    if not budget:
        say(f"Written: {path}")
        click.echo(next_steps([own, "check", str(path)], [own, "run", str(path)]))
    else:
        say(f"Written: {path}")
        click.echo(next_steps([own, "tune", str(path), "--budget", budget], title="Now:"))
        context.invoke(tune, config=fetch_file(path) if isinstance(path, str) else path, data=(), budget=budget)
