"""`ctrpipe compare`."""

import pathlib

import click

from ctrpipe.pipeline.commands.options import PATH


class _Compare(click.Command):
    """Takes every path up to the next option as a value of `--against`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        reference = False  # whether the paths before were those of --against
        for argument in args:
            if reference and not argument.startswith("-") and spread[-1] != "--against":
                spread.append("--against")
            elif argument.startswith("-"):
                reference = argument.partition("=")[0] == "--against"
            spread.append(argument)
        return super().parse_args(ctx, spread)


@click.command(cls=_Compare)
@click.argument("models", type=PATH, nargs=-1, metavar="A B [C ...]")
@click.option(
    "--against",
    type=PATH,
    multiple=True,
    metavar="PATH ...",
    help="Trainings of one model, differing by their seeds, that A B C, then trainings of another, are compared with.",
)
@click.option("--task", default=None, help="The label to judge by. Default: the first.")
@click.option(
    "--shards", type=click.IntRange(20), default=20, show_default=True, help="Of the test rows, for t values in JSON."
)
@click.option(
    "--config", type=PATH, default=None, help="The log's configuration: says which columns of a scored log are labels."
)
@click.option(
    "--output", type=PATH, default=None, metavar="FILE.json", help="Also write JSON, and a picture beside it."
)
def compare(
    models: tuple[pathlib.Path, ...],
    against: tuple[pathlib.Path, ...],
    task: str | None,
    shards: int,
    config: pathlib.Path | None,
    output: pathlib.Path | None,
) -> None:
    """Compare models on the same test rows: is B better than A by more than chance?

    \b
      ctrpipe compare runs/a runs/b                          finished runs
      ctrpipe compare b/seed1 b/seed2 --against a/seed1 a/seed2   a model's runs with another's, by seed
      ctrpipe compare runs/sweep                             every point of a sweep with the first
      ctrpipe compare scores_a scores_b --config log.yaml    scorings of a labelled log
    AUC and RIG on all rows, on the Tail slice and on the slices of the runs; the differences to the first model, or to
    that of --against, with intervals over other test rows and other seeds. With one seed of a model they are over the
    rows alone, and the verdict says so.
    """
    # numpy, pyarrow and rich: 0.2 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.compare.folders import compare_folders
    from ctrpipe.pipeline.compare.show import print_comparison, write_comparison

    log = None
    if config:
        from ctrpipe.pipeline.config import load_config  # 0.2 s, which comparing runs does without

        log = load_config(config)
    sides = [against, models] if against else [(path,) for path in models]
    comparison = compare_folders(sides, task, shards, log)
    print_comparison(comparison)
    if output:
        written = write_comparison(comparison, output)
        click.echo(f"Written: {', '.join(map(str, written))}")
