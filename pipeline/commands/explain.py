"""The command `ctrpipe explain`."""

import contextlib
import pathlib

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import results_at
from ctrpipe.pipeline.commands.options import MODEL, PATH_OR_URL


@click.command()
@click.argument("source", type=MODEL, metavar="RUN")
@click.option("--data", multiple=True, help="Labelled log: file or quoted glob; repeatable. Default: the test rows.")
@click.option("--row", default=None, metavar="FILE:LINE", help="Explain the probability of this row instead.")
@click.option(
    "--baseline",
    default="average",
    show_default=True,
    metavar="average|missing|FILE:LINE",
    help="With --row: compare with rows of the log, with a row of missing values, or with another row.",
)
@click.option(
    "--method",
    type=click.Choice(["gradients", "shapley", "both"]),
    default=None,
    help="With --row: integrated gradients, Shapley values or both. Default: gradients if the model has them.",
)
@click.option(
    "--orders", type=click.IntRange(2), default=200, show_default=True, help="With --row: column orders to sample."
)
@click.option("--group", "groups", multiple=True, metavar="NAME=A,B", help="Permute columns together; repeatable.")
@click.option("--slice", "part", default=None, metavar="COLUMN=VALUE", help="Use only rows with this value.")
@click.option(
    "--rows", type=click.IntRange(10), default=20_000, show_default=True, help="Number of rows to sample and score."
)
@click.option(
    "--repeats", type=click.IntRange(1, 2), default=2, show_default=True, help="Number of permutations per column."
)
@click.option("--pairs", type=click.IntRange(0), default=10, show_default=True, help="Column pairs to permute.")
@click.option(
    "--prune",
    type=click.FloatRange(0, 1, min_open=True),
    default=None,
    metavar="AUC",
    help="Write pruned.yaml to --output: the configuration without columns whose joint removal costs less AUC.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--trust", is_flag=True, help="Import the model's class if it is not a class of ctrpipe.")
@click.option(
    "--output",
    type=PATH_OR_URL,
    default=None,
    metavar="DIR",
    help="Also write JSON and, without --row, a page to this folder or URL.",
)
def explain(
    source: pathlib.Path,
    data: tuple[str, ...],
    row: str | None,
    baseline: str,
    method: str | None,
    orders: int,
    groups: tuple[str, ...],
    part: str | None,
    rows: int,
    repeats: int,
    pairs: int,
    prune: float | None,
    seed: int,
    trust: bool,
    output: pathlib.Path | str | None,
) -> None:
    """Explain a model, or one of its predictions.

    \b
    Explain a run on its test rows, a pushed model on another log, or one row:
      ctrpipe explain runs/mine
      ctrpipe explain runs/mine/models/ctr --data test.tsv
      ctrpipe explain runs/mine --row test.tsv:12

    RUN is a finished run (pushed or not), a folder of versions, or a version. Prints the permutation importance of each
    column and the strongest column pairs. With --row, prints the contribution of each column to the logit of the row.
    """
    settings_of_groups = dict(_two_parts("--group", "NAME=A,B", group) for group in groups)
    if len(settings_of_groups) < len(groups):
        raise InputError("--group: a name is given twice; give each group its own")
    slice_of = _two_parts("--slice", "COLUMN=VALUE", part) if part is not None else None
    load_tensorflow()
    # Lazy: TensorFlow, numpy and pyarrow take 4 s to import.
    from ctrpipe.pipeline.explain.explain import Settings
    from ctrpipe.pipeline.explain.question import explain_model, explain_row
    from ctrpipe.pipeline.explain.show import print_explanation
    from ctrpipe.pipeline.explain.show_row import print_row

    named = {name: members.split(",") for name, members in settings_of_groups.items()}
    settings = Settings(rows, repeats, pairs, named, slice_of, prune, seed)
    with results_at(output) if output is not None else contextlib.nullcontext() as place:
        folder = place.folder if place else None
        if row is not None:
            of_row = explain_row(source, row, data, settings, baseline, orders, method, folder, trust)
            for one in of_row.by_method:
                print_row(one, row)
            written = of_row.written
        else:
            of_model = explain_model(source, data, settings, folder, trust)
            print_explanation(of_model.explanation)
            written = of_model.written
            if of_model.report:
                say(f"Report: {of_model.report}")
    if place is None:
        return
    if row is None and of_model.pruned:
        say(f"Written: {place.shown(of_model.pruned)}")
    if row is None and of_model.page:
        say(f"Page: {place.shown(of_model.page)}")
    say(f"Written: {place.shown(written)}")
    if row is None and of_model.pruned:
        data_options = [part for file in of_model.log for part in ("--data", file)]
        click.echo(next_steps([command_name(), "run", place.shown(of_model.pruned), *data_options]))


def _two_parts(option: str, form: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name and value):
        raise InputError(f"{option} {text}: expected {option} {form}")
    return name, value
