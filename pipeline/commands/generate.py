"""`ctrpipe generate`."""

import pathlib

import click

from pipeline.commands.options import PATH


@click.command()
@click.option("--format", "log_format", type=click.Choice(["criteo", "avazu"]), default="criteo", show_default=True)
@click.option("--rows", type=int, default=40_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--output", type=PATH, required=True, help="The file to write; .gz compresses.")
def generate(log_format: str, rows: int, seed: int, output: pathlib.Path) -> None:
    """Write a sample log with known true probabilities (beside it, in <output>.truth.parquet)."""
    from transforms.generate import generate as generate_log

    result = generate_log(log_format, rows, seed, output)
    click.echo(
        f"{result.rows:,} rows, {result.positives:,} clicks, best possible AUC {result.best_auc:.4f} and log loss "
        f"{result.log_loss:.4f}, written to {result.path}"
    )
