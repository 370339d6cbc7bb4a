"""The command `ctrpipe compare`."""

import pathlib

import click

from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import written_file
from ctrpipe.pipeline.commands.options import CONFIG, MODEL, PATH_OR_URL


class _Compare(click.Command):
    """A command that treats every path between `--against` and the next option as a value of `--against`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        reference = False  # whether a path at this position belongs to --against
        for argument in args:
            if reference and not argument.startswith("-") and spread[-1] != "--against":
                spread.append("--against")
            elif argument.startswith("-"):
                reference = argument.partition("=")[0] == "--against"
            spread.append(argument)
        return super().parse_args(ctx, spread)


@click.command(cls=_Compare)
@click.argument("models", type=MODEL, nargs=-1, metavar="A B [C ...]")
@click.option(
    "--against",
    type=MODEL,
    multiple=True,
    metavar="PATH ...",
    help="Runs of the reference model with different seeds. A B C are then runs of one other model.",
)
@click.option("--task", default=None, help="Compare this label only. Default: the first, with the others below it.")
@click.option(
    "--shards", type=click.IntRange(20), default=20, show_default=True, help="Shards of the test rows, for t values."
)
@click.option(
    "--config", type=CONFIG, default=None, help="Configuration of a scored log, which names its label columns."
)
@click.option(
    "--output",
    type=PATH_OR_URL,
    default=None,
    metavar="FILE.json",
    help="Also write JSON, and next to it a plot (SVG) and a page (HTML).",
)
def compare(
    models: tuple[pathlib.Path, ...],
    against: tuple[pathlib.Path, ...],
    task: str | None,
    shards: int,
    config: pathlib.Path | None,
    output: pathlib.Path | str | None,
) -> None:
    """Test whether models differ by more than chance.

    \b
    Compare finished runs; models with a run per seed; every point of a sweep
    with the first; or scorings of a labelled log:
      ctrpipe compare runs/a runs/b
      ctrpipe compare b/seed1 b/seed2 --against a/seed1 a/seed2
      ctrpipe compare runs/sweep
      ctrpipe compare scores_a scores_b --config log.yaml

    All models must have the same test rows. Prints AUC and RIG on all rows, on the Tail slice and on the slices of the
    runs, and the differences to the first model (or to --against) with confidence intervals; RMSE and MAE of a task
    that predicts a number. Further tasks are compared on all rows; --task has their slices. The intervals cover the
    choice of test rows and of seeds. With one seed per model they cover the test rows only, and the verdict says so.
    """
    # Lazy: numpy, pyarrow and rich take 0.2 s to import.
    from ctrpipe.pipeline.compare.folders import compare_folders
    from ctrpipe.pipeline.compare.show import print_comparison, write_comparison

    log = None
    if config:
        from ctrpipe.pipeline.config import load_config  # lazy: 0.2 s

        log = load_config(config)
    sides = [against, models] if against else [(path,) for path in models]
    comparison = compare_folders(sides, task, shards, log)
    print_comparison(comparison)
    if output:
        with written_file(output) as place:
            written = write_comparison(comparison, place.folder / pathlib.Path(output).name)
        say(f"Written: {', '.join(map(place.shown, written))}")
