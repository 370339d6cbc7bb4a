"""`ctrpipe generate`."""

import pathlib

import click

from common.errors import InputError
from pipeline.commands.options import PATH

KDDCUP2012 = "kddcup2012"


@click.command()
@click.option("--format", "log_format", type=click.Choice(["criteo", "avazu", "text", KDDCUP2012]), default="criteo")
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
    "--click-rate", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="Of kddcup2012. Default: 0.035."
)
def generate(
    log_format: str, rows: int, seed: int, output: pathlib.Path, interplay: float, click_rate: float | None
) -> None:
    """Write a sample log with known true probabilities (beside it, in <output>.truth.parquet).

    \b
    criteo, avazu, text: one file, by default criteo.
    kddcup2012: a folder of the competition's files, for `ctrpipe run` or `ctrpipe prepare`; a row is a line of
    training.txt, which may stand for several impressions.
    """
    # numpy and pyarrow: 0.3 s that `ctrpipe --help` does without.
    from transforms.generate import TextClickModel, generate_kddcup2012
    from transforms.generate import generate as generate_log

    if log_format == KDDCUP2012:
        rate = {} if click_rate is None else {"base_rate": click_rate}
        result = generate_kddcup2012(rows, seed, output, click_model=TextClickModel(interplay=interplay, **rate))
    elif interplay or click_rate is not None:
        raise InputError(f"--interplay and --click-rate are of --format {KDDCUP2012}, not of {log_format}")
    else:
        result = generate_log(log_format, rows, seed, output)
    click.echo(
        f"{result.rows:,} rows, {result.positives:,} clicks, best possible AUC {result.best_auc:.4f} and log loss "
        f"{result.log_loss:.4f}, written to {result.path}"
    )
