"""`ctrpipe compare`."""

import pathlib

import click

from common.errors import InputError
from common.progress import throttled_announce
from pipeline.commands.options import PATH


@click.command()
@click.argument("models", type=PATH, nargs=-1, metavar="A B [C ...]")
@click.option("--task", default=None, help="The label to judge by. Default: the first.")
@click.option(
    "--shards", type=click.IntRange(20), default=20, show_default=True, help="Of the test rows, for t values."
)
@click.option(
    "--resamples", type=click.IntRange(0), default=1000, show_default=True, help="Of the rows; 0: no interval."
)
@click.option(
    "--config", type=PATH, default=None, help="The log's configuration: says which columns of a scored log are labels."
)
@click.option(
    "--output", type=PATH, default=None, metavar="FILE.json", help="Also write JSON, and a picture beside it."
)
def compare(
    models: tuple[pathlib.Path, ...],
    task: str | None,
    shards: int,
    resamples: int,
    config: pathlib.Path | None,
    output: pathlib.Path | None,
) -> None:
    """Compare models on the same test rows: is B better than A by more than chance?

    \b
      ctrpipe compare runs/a runs/b                          finished runs
      ctrpipe compare runs/sweep/results/fm-*.parquet        trainings of a sweep
      ctrpipe compare scores_a scores_b --config log.yaml    scorings of a labelled log
    AUC and RIG on all rows, on the Tail slice and on the slices of the runs; the differences to the first, with paired
    t values over shards of the test rows, DeLong's test and a bootstrap interval.
    """
    # numpy, pyarrow and rich: 0.2 s that `ctrpipe --help` does without.
    from pipeline.compare.models import compare as compare_models
    from pipeline.compare.show import print_comparison, write_comparison
    from pipeline.compare.sources import read_sources

    if len(models) < 2:
        raise InputError("give two models or more: ctrpipe compare runs/a runs/b")
    log = None
    if config:
        from pipeline.config import load_config  # 0.2 s, which comparing runs does without

        log = load_config(config)
    scored = read_sources(models, log)
    comparison = compare_models(scored, task, shards, resamples, throttled_announce())
    print_comparison(comparison)
    if output:
        picture = write_comparison(comparison, output)
        click.echo(f"Written: {output}, {picture}")
