"""The command `ctrpipe generate`."""

import pathlib
from typing import Any

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.errors import InputError
from ctrpipe.common.lines import say
from ctrpipe.pipeline.commands.options import PATH

KDDCUP2012, HISTORY, FUNNEL = "kddcup2012", "history", "funnel"


@click.command()
@click.option(
    "--format",
    "log_format",
    type=click.Choice(["criteo", "avazu", "text", KDDCUP2012, HISTORY, FUNNEL]),
    default="criteo",
    show_default=True,
    help="Format of the log; see above.",
)
@click.option("--rows", type=int, default=40_000, show_default=True, help="Number of rows.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed. The same seed gives the same log.")
@click.option("--output", type=PATH, required=True, help="File to write; .gz compresses it. With kddcup2012: a folder.")
@click.option(
    "--interplay",
    type=click.FloatRange(0, 10),
    default=0.0,
    show_default=True,
    help="With kddcup2012: strength of the interaction between title and age of the user, in logits.",
)
@click.option(
    "--click-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="With kddcup2012, history and funnel. Default: 0.035, 0.3 and 0.1.",
)
@click.option(
    "--conversion-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="With funnel: the share of clicks with a conversion. Default: 0.1.",
)
@click.option(
    "--attention",
    type=click.FloatRange(0, 20),
    help="With history: weight of the earlier item of the candidate's category, in logits. Default: 4.",
)
@click.option(
    "--history-length",
    type=click.IntRange(4, 500),
    help="With history: length of the longest history. Sum pooling gets worse with the length. Default: 24.",
)
@click.option("--categories", type=click.IntRange(2), help="With history: categories of 4 items. Default: 200.")
@click.option(
    "--repeats",
    type=click.IntRange(1),
    help="With history: repeats of each uninformative item. Sum pooling gets worse with repeats. Default: 1.",
)
@click.option("--days", type=int, default=10, show_default=True, help="With --drift: number of days.")
@click.option(
    "--drift",
    metavar="RATES",
    help="Write one log per day, each with --rows rows, to the folder --output. RATES are the shares that change every "
    "day, of the effects of values, of the popularity of ids, and of ids: preferences=0.1,popularity=0.05,ids=0.02.",
)
def generate(
    log_format: str,
    rows: int,
    seed: int,
    output: pathlib.Path,
    interplay: float,
    click_rate: float | None,
    conversion_rate: float | None,
    attention: float | None,
    history_length: int | None,
    categories: int | None,
    repeats: int | None,
    days: int,
    drift: str | None,
) -> None:
    """Generate a sample log with known true probabilities.

    Writes the true probabilities to <output>.truth.parquet.

    \b
    criteo, avazu, text  one file in this format; criteo is the default
    kddcup2012           a folder with the files of the competition, for
                         `ctrpipe run` or `ctrpipe prepare`; --rows counts lines
                         of training.txt, each of one impression or more
    history              one CSV file of impressions with histories; the clicks
                         need attention to the history
    funnel               one CSV file with clicks and conversions after clicks,
                         and the true probabilities of both
    """
    # Lazy: numpy and pyarrow take 0.3 s to import.
    from ctrpipe.transforms.generate import (
        Drift,
        FunnelModel,
        HistoryClickModel,
        TextClickModel,
        generate_days,
        generate_funnel,
        generate_history,
        generate_kddcup2012,
    )
    from ctrpipe.transforms.generate import generate as generate_log

    if interplay and log_format != KDDCUP2012:
        raise InputError(f"--interplay applies to --format {KDDCUP2012}, not of {log_format}")
    if click_rate is not None and log_format not in (KDDCUP2012, HISTORY, FUNNEL):
        raise InputError(f"--click-rate applies to --format {KDDCUP2012}, {HISTORY} and {FUNNEL}, not of {log_format}")
    if conversion_rate is not None and log_format != FUNNEL:
        raise InputError(f"--conversion-rate applies to --format {FUNNEL}, not of {log_format}")
    of_history = {
        "attention": attention,
        "history-length": history_length,
        "categories": categories,
        "repeats": repeats,
    }
    for name, value in of_history.items():
        if value is not None and log_format != HISTORY:
            raise InputError(f"--{name} applies to --format {HISTORY}, not of {log_format}")
    if drift is not None:
        if log_format in (KDDCUP2012, HISTORY, FUNNEL):
            raise InputError(f"--drift applies to --format criteo and text, not of {log_format}")
        generate_days(log_format, days, rows, seed, output, Drift.from_text(drift), say)
        return
    rate: dict[str, Any] = {} if click_rate is None else {"base_rate": click_rate}
    if log_format == HISTORY:
        history: dict[str, Any] = {
            name.removeprefix("history-"): value for name, value in of_history.items() if value is not None
        }
        result = generate_history(rows, seed, output, HistoryClickModel(**history, **rate))
    elif log_format == FUNNEL:
        rates = {"click_rate": click_rate, "conversion_rate": conversion_rate}
        given = {name: value for name, value in rates.items() if value is not None}
        result = generate_funnel(rows, seed, output, FunnelModel(**given))
    elif log_format == KDDCUP2012:
        result = generate_kddcup2012(rows, seed, output, click_model=TextClickModel(interplay=interplay, **rate))
    else:
        result = generate_log(log_format, rows, seed, output)
    say(
        f"{result.rows:,} rows, {result.positives:,} clicks, best possible AUC {result.best_auc:.4f} and log loss "
        f"{result.log_loss:.4f}"
    )
    say(f"Written: {result.path}")
    if log_format != KDDCUP2012:
        click.echo(next_steps([command_name(), "init", str(result.path)]))
