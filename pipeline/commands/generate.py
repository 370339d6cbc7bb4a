"""`ctrpipe generate`."""

import pathlib
from typing import Any

import click

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.commands.options import PATH

KDDCUP2012, HISTORY, FUNNEL = "kddcup2012", "history", "funnel"


@click.command()
@click.option(
    "--format",
    "log_format",
    type=click.Choice(["criteo", "avazu", "text", KDDCUP2012, HISTORY, FUNNEL]),
    default="criteo",
)
@click.option("--rows", type=int, default=40_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--output", type=PATH, required=True, help="The file to write; .gz compresses. Of kddcup2012: the folder."
)
@click.option(
    "--interplay",
    type=click.FloatRange(0, 10),
    default=0.0,
    show_default=True,
    help="Of kddcup2012: how much what a title says depends on the user's age, in logits.",
)
@click.option(
    "--click-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Of kddcup2012, history and funnel. Default: 0.035, 0.3 and 0.1.",
)
@click.option(
    "--conversion-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Of funnel: the share of the clicks that a conversion follows. Default: 0.1.",
)
@click.option(
    "--attention",
    type=click.FloatRange(0, 20),
    help="Of history: how much the earlier item of the candidate's category says, in logits. Default: 4.",
)
@click.option(
    "--history-length",
    type=click.IntRange(4, 500),
    help="Of history: items of the longest history. The longer they are, the less a sum of them says. Default: 24.",
)
@click.option("--categories", type=click.IntRange(2), help="Of history: how many, of 4 items each. Default: 200.")
@click.option(
    "--repeats",
    type=click.IntRange(1),
    help="Of history: how often each other item is in it. The more, the less a sum of them says. Default: 1.",
)
@click.option("--days", type=int, default=10, show_default=True, help="Of --drift: their number.")
@click.option(
    "--drift",
    metavar="RATES",
    help="Write a log a day, each of --rows rows, in the folder --output: what share of a value's effect, of the ids' "
    "order of popularity and of the ids changes a day, as preferences=0.1,popularity=0.05,ids=0.02.",
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
    """Write a sample log with known true probabilities (beside it, in <output>.truth.parquet).

    \b
    criteo, avazu, text: one file, by default criteo.
    kddcup2012: a folder of the competition's files, for `ctrpipe run` or `ctrpipe prepare`; a row is a line of
    training.txt, which may stand for several impressions.
    history: one CSV file of items with what was seen before, whose clicks only attention to the history explains.
    funnel: one CSV file with a click and, after it, a conversion; the truth has the probabilities of both.
    """
    # numpy and pyarrow: 0.3 s that `ctrpipe --help` does without.
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
        raise InputError(f"--interplay is of --format {KDDCUP2012}, not of {log_format}")
    if click_rate is not None and log_format not in (KDDCUP2012, HISTORY, FUNNEL):
        raise InputError(f"--click-rate is of --format {KDDCUP2012}, {HISTORY} and {FUNNEL}, not of {log_format}")
    if conversion_rate is not None and log_format != FUNNEL:
        raise InputError(f"--conversion-rate is of --format {FUNNEL}, not of {log_format}")
    of_history = {
        "attention": attention,
        "history-length": history_length,
        "categories": categories,
        "repeats": repeats,
    }
    for name, value in of_history.items():
        if value is not None and log_format != HISTORY:
            raise InputError(f"--{name} is of --format {HISTORY}, not of {log_format}")
    if drift is not None:
        if log_format in (KDDCUP2012, HISTORY, FUNNEL):
            raise InputError(f"--drift is of --format criteo and text, not of {log_format}")
        generate_days(log_format, days, rows, seed, output, Drift.from_text(drift), click.echo)
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
    click.echo(
        f"{result.rows:,} rows, {result.positives:,} clicks, best possible AUC {result.best_auc:.4f} and log loss "
        f"{result.log_loss:.4f}, written to {result.path}"
    )
